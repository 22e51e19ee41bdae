"""metrics.jsonl, the source of truth of every figure, and events.jsonl."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from typing import Any

from srl.observe.report import Report
from srl.observe.result import RunResult
from srl.observe.sinks.base import Sink
from srl.store.lines import LineFile, read_numbers
from srl.store.run_folder import RunFolder


class JsonLines(Sink):
    """One object a report: time, wall, env_steps, update, then flat names. NaN and infinities become null.

    An evaluation has a line of its own, at the env step of the version evaluated.
    """

    def __init__(self, folder: RunFolder, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._folder = folder
        self._file = LineFile(folder.metrics)
        self._clock = clock
        earlier = list(read_numbers(folder.metrics))
        self._start = clock() - float((earlier[-1].get("wall") if earlier else None) or 0.0)
        """Less what earlier sessions of the run took."""

    def report(self, report: Report) -> None:
        for one in report.evaluated:
            self._write(one.env_steps, one.update, one.values)
        self._write(report.env_steps, report.update, report.metrics)

    def event(self, what: str, /, **facts: Any) -> None:
        self._folder.append_event(what, **facts)

    def end(self, result: RunResult) -> None:
        self._file.close()

    def _write(self, env_steps: int, update: int, values: Mapping[str, float]) -> None:
        row: dict[str, Any] = {
            "time": round(time.time(), 3),
            "wall": round(self._clock() - self._start, 3),
            "env_steps": int(env_steps),
            "update": int(update),
        }
        lost = 0
        for name, value in values.items():
            if name in row:
                raise ValueError(f"metric {name!r}: the name is taken by the line itself; choose another")
            number = float(value)
            row[name] = number if math.isfinite(number) else None
            lost += row[name] is None
        if lost:
            row["nonfinite"] = lost
        self._file.append(row)
