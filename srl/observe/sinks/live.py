"""live.json: the newest report as the dashboard shows it, with the graph that its rows belong to. It stays after the end."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from srl.core.types import SIDES
from srl.graph.placement import members, via_of
from srl.graph.spec import Graph
from srl.observe.report import Report
from srl.observe.result import RunResult
from srl.observe.sinks.base import Lines, Sink
from srl.store.atomic import swap_file
from srl.store.run_folder import RunFolder

EVERY = 0.9
"""Seconds between two writes, at least."""
_LEFT_OUT = ("metrics", "charts", "charted", "evaluated")
"""Parts of a report that are in metrics.jsonl."""


class Live(Sink):
    """Replaces the file at most once a second."""

    def __init__(self, folder: RunFolder) -> None:
        self._path = folder.live
        self._graph: dict[str, Any] = {}
        self._plan: list[tuple[str, str]] = []
        self._last: Report | None = None
        self._due = 0.0

    def begin(self, graph: Graph, plan: Lines) -> None:
        self._graph, self._plan = drawn(graph), list(plan)
        self._write()

    def report(self, report: Report) -> None:
        self._last = report
        if (now := time.monotonic()) >= self._due:
            self._due = now + EVERY
            self._write()

    def end(self, result: RunResult) -> None:
        self._write(result.format())

    def _write(self, result: str = "") -> None:
        last = self._last
        told = {**plain(last), "progress": last.progress, "eta": last.eta} if last is not None else {}
        facts = {"time": time.time(), **told, "graph": self._graph, "plan": self._plan, "result": result}
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
    nodes = [
        {
            "name": one.name,
            "worker": one.worker,
            "count": one.count,
            "inside": one.inside,
            "device": one.device,
            "hosts": one.hosts,
        }
        for one in graph.nodes
    ]
    streams = []
    for stream in graph.streams:
        ends = [(node.name, side) for node, _, side in members(graph, stream.name)]
        gives, takes = ([name for name, at in ends if at == side] for side in SIDES[stream.kind])
        via = via_of(graph, stream)
        streams.append(
            {"name": stream.name, "kind": stream.kind, "via": via, "policy": stream.policy, "gives": gives, "takes": takes}
        )
    return {"mode": graph.mode, "nodes": nodes, "streams": streams}
