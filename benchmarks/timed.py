"""Runs of the engine that benchmarks time: in a folder that is thrown away, read from its metrics."""

from __future__ import annotations

import statistics
import tempfile
from typing import Any

from srl.control.controller import Controller
from srl.graph.spec import Graph
from srl.plan.specs import Derived
from srl.store.lines import read_lines
from srl.store.run_folder import RunFolder


def rows_of(graph: Graph, derived: Derived) -> list[dict[str, Any]]:
    """The lines of metrics.jsonl of one run."""
    with tempfile.TemporaryDirectory() as place:
        folder = RunFolder.create(place, "bench", 1)
        result = Controller(graph, folder=folder, derived=derived).run()
        if result.exit_code:
            raise SystemExit(result.format())
        return list(read_lines(folder.metrics))


def rate_of(graph: Graph, derived: Derived) -> float:
    """Env steps a second that its actors took: the median over the second half of the run."""
    rates = [row["rate/env"] for row in rows_of(graph, derived) if row.get("rate/env")]
    return statistics.median(rates[len(rates) // 2 :])
