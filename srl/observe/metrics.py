"""Figures of a run: rates over windows, and metrics.jsonl, the source of truth."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from srl.store.lines import LineFile, read_numbers


class MetricsWriter:
    """Appends one object a report: time, wall, env_steps, update, then flat names. NaN and infinities become null."""

    def __init__(self, path: Path, *, wall: float = 0.0, clock: Callable[[], float] = time.monotonic) -> None:
        """`wall`: seconds that earlier legs of this run took (`last_wall`)."""
        self._file = LineFile(path)
        self._clock = clock
        self._start = clock() - wall
        self.nonfinite = 0
        """Values written as null so far."""

    def write(self, env_steps: int, update: int, values: Mapping[str, float]) -> None:
        """Append one line."""
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
            self.nonfinite += lost
            row["nonfinite"] = lost
        self._file.append(row)

    def close(self) -> None:
        """Close the file. Idempotent."""
        self._file.close()


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """The lines of metrics.jsonl, without what a crash tore."""
    return list(read_numbers(path))


def last_wall(path: Path) -> float:
    """Seconds that a run had taken when its last line was written; 0 for a new one."""
    rows = read_metrics(path)
    return float(rows[-1].get("wall") or 0.0) if rows else 0.0


def last_leg(rows: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The curve: lines after which a run went back (a resume from an earlier checkpoint) are replaced by the later ones."""
    kept: list[Mapping[str, Any]] = []
    for row in rows:
        while kept and kept[-1]["env_steps"] >= row["env_steps"]:
            kept.pop()
        kept.append(row)
    return kept


class Rate:
    """Items a second over the last `seconds`, from a counter that grows. One that falls was restarted and counts from zero
    again; a `level` (env steps trained on) fell back to where it was before, which is no work."""

    def __init__(self, seconds: float = 10.0, *, level: bool = False) -> None:
        self.seconds = seconds
        self._level = level
        self._seen = 0.0
        self._total = 0.0
        self._samples: deque[tuple[float, float]] = deque()

    def update(self, counter: float, now: float) -> float:
        """Report where the counter stands; returns the rate."""
        fallen = 0.0 if self._level else counter
        step = counter - self._seen if counter >= self._seen else fallen
        self._total = self._total + step if self._samples else 0.0
        self._seen = counter
        self._samples.append((now, self._total))
        while len(self._samples) > 2 and self._samples[1][0] <= now - self.seconds:
            self._samples.popleft()
        return self.value

    @property
    def value(self) -> float:
        """0 before two reports."""
        if len(self._samples) < 2:
            return 0.0
        (start, before), (end, after) = self._samples[0], self._samples[-1]
        return (after - before) / (end - start) if end > start else 0.0
