"""live.json: the newest report as `srl top` and the dashboard show it, with the graph of its rows. It stays after the end."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from srl.core.types import SIDES
from srl.graph.placement import members, via_of
from srl.graph.spec import Graph
from srl.observe.report import Lines, Report
from srl.observe.result import RunResult
from srl.observe.screen import screen
from srl.store.atomic import swap_file
from srl.store.run_folder import RunFolder

EVERY = 0.9
"""Seconds between two writes, at least."""
_LEFT_OUT = ("metrics", "charts", "charted", "evaluated")
"""Parts of a report that are in metrics.jsonl."""


class Live:
    """Replaces the file at most once a second."""

    def __init__(self, folder: RunFolder, graph: Graph, plan: Lines) -> None:
        self._path = folder.live
        self._graph, self._plan = drawn(graph), list(plan)
        self._told: dict[str, Any] = {}
        self._due = 0.0
        self._write()

    def report(self, report: Report, loads: Callable[[], Mapping[str, Any]]) -> None:
        """`loads`: hosts and processes as `srl top` lists them."""
        if (now := time.monotonic()) >= self._due:
            self._due = now + EVERY
            self._told = {**plain(report), "progress": report.progress, "eta": report.eta, "screen": screen(report), **loads()}
            self._write()

    def end(self, report: Report | None, result: RunResult) -> None:
        """The last report, and how the run ended."""
        if report is not None:
            self._told = {**plain(report), "progress": report.progress, "eta": report.eta}
        self._write(result.format())

    def _write(self, result: str = "") -> None:
        facts = {"time": time.time(), **self._told, "graph": self._graph, "plan": self._plan, "result": result}
        swap_file(self._path, json.dumps(facts, separators=(",", ":")))


def plain(value: Any) -> Any:
    """For JSON. NaN and infinities become null, as in metrics.jsonl."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    if is_dataclass(value):
        return {one.name: plain(getattr(value, one.name)) for one in fields(value) if one.name not in _LEFT_OUT}
    return value


def drawn(graph: Graph) -> dict[str, Any]:
    """Nodes, and streams with their ends: what a picture of the graph needs."""
    shown = ("name", "worker", "count", "inside", "device", "hosts")
    nodes = [{key: getattr(one, key) for key in shown} for one in graph.nodes]
    streams = []
    for stream in graph.streams:
        ends = [(node.name, side) for node, _, side in members(graph, stream.name)]
        gives, takes = ([name for name, at in ends if at == side] for side in SIDES[stream.kind])
        via = via_of(graph, stream)
        streams.append(
            {"name": stream.name, "kind": stream.kind, "via": via, "policy": stream.policy, "gives": gives, "takes": takes}
        )
    return {"mode": graph.mode, "nodes": nodes, "streams": streams}
