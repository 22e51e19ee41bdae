"""Prometheus: every figure of the newest report at http://HOST:PORT/metrics, as the text format says."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

from srl.core.errors import UserError
from srl.core.load import option
from srl.graph.spec import Graph
from srl.observe.report import Lines, Report
from srl.observe.result import RunResult
from srl.observe.sinks.base import Sink

_CLOSES = 0.1
"""Seconds within which it stops listening."""


@dataclass(frozen=True, kw_only=True)
class PrometheusConfig:
    port: int = option(9464, "port to listen on; 0: any free one", low=0, high=65535)
    host: str = option("127.0.0.1", "address to listen on; anyone who can reach it can read the figures")


class Prometheus(Sink):
    """Figures are gauges named `srl_...` with labels for experiment and run; those under `total/` are counters."""

    Config: ClassVar[type] = PrometheusConfig

    def __init__(self, folder: Path, config: PrometheusConfig) -> None:
        self._labels = f'run="{_escaped(folder.name)}"'
        self._text = b""
        sink = self

        class Handler(_Handler):
            shown = sink

        try:
            self._server = ThreadingHTTPServer((config.host, config.port), Handler)
        except OSError as error:
            raise UserError(
                f"prometheus cannot listen on {config.host}:{config.port}",
                ("found", error.strerror or str(error)),
                ("try", "'sinks=[{use: prometheus, port: 0}]', which takes any free port"),
            ) from error
        self._server.daemon_threads = True
        self.address = f"http://{config.host}:{self._server.server_port}/metrics"
        threading.Thread(target=self._server.serve_forever, args=(_CLOSES,), name="srl-prometheus", daemon=True).start()

    @property
    def text(self) -> bytes:
        """What is served."""
        return self._text

    def begin(self, graph: Graph, plan: Lines) -> None:
        self._labels += f',experiment="{_escaped(graph.name)}"'

    def report(self, report: Report) -> None:
        self._text = "".join(self._lines(report)).encode()

    def end(self, result: RunResult) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _lines(self, report: Report) -> Iterator[str]:
        figures = {"env_steps": report.env_steps, "updates": report.update, **report.metrics}
        seen: set[str] = set()
        for figure, value in figures.items():
            name = "srl_" + re.sub(r"[^a-zA-Z0-9_]", "_", figure)
            if name not in seen:
                seen.add(name)
                kind = "counter" if figure.startswith("total/") else "gauge"
                yield f"# TYPE {name} {kind}\n{name}{{{self._labels}}} {_number(float(value))}\n"


class _Handler(BaseHTTPRequestHandler):
    shown: ClassVar[Prometheus]
    timeout = 5.0

    def do_GET(self) -> None:
        if self.path.partition("?")[0] != "/metrics":
            self.send_error(404)
            return
        text = self.shown.text
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, format: str, *args: object) -> None:
        """Silent."""


def _number(value: float) -> str:
    return {"inf": "+Inf", "-inf": "-Inf", "nan": "NaN"}.get(text := repr(value), text)


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ")
