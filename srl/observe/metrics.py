"""Rates over windows, and what metrics.jsonl says of earlier sessions."""

from __future__ import annotations

from collections import deque
from pathlib import Path
from typing import Any

from srl.store.lines import read_numbers


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """The lines of metrics.jsonl, without what a crash tore."""
    return list(read_numbers(path))


def last_wall(path: Path) -> float:
    """Seconds that a run had taken when its last line was written; 0 for a new one."""
    rows = read_metrics(path)
    return float(rows[-1].get("wall") or 0.0) if rows else 0.0


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
