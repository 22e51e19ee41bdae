"""Rates over windows: of counters, and of this machine's idle cores."""

from __future__ import annotations

import os
from collections import deque
from pathlib import Path

WINDOW = 10.0
"""Seconds that a rate is of."""


class Rate:
    """Items a second over the last seconds, from a counter that grows. One that falls was restarted and counts from zero
    again; a `level` (env steps trained on) fell back to where it was before, which is no work."""

    def __init__(self, *, level: bool = False) -> None:
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
        while len(self._samples) > 2 and self._samples[1][0] <= now - WINDOW:
            self._samples.popleft()
        return self.value

    @property
    def value(self) -> float:
        """0 before two reports."""
        if len(self._samples) < 2:
            return 0.0
        (start, before), (end, after) = self._samples[0], self._samples[-1]
        return (after - before) / (end - start) if end > start else 0.0


class Processors:
    """How many of the cores that this process may use are idle, over the last seconds."""

    def __init__(self, path: Path = Path("/proc/stat"), cores: frozenset[int] | None = None) -> None:
        self._path = path
        self._names = {f"cpu{number}".encode() for number in (os.sched_getaffinity(0) if cores is None else cores)}
        self._second = os.sysconf("SC_CLK_TCK")
        self._rate = Rate()
        self._known = False

    def idle(self, now: float) -> float | None:
        """Cores; None where the system does not tell, and at the first call."""
        try:
            lines = [line.split() for line in self._path.read_bytes().splitlines()]
        except OSError:
            return None
        idle = [sum(map(int, fields[4:6])) for fields in lines if fields and fields[0] in self._names]
        if len(idle) < len(self._names) or not any(idle):
            return None
        rate = self._rate.update(sum(idle) / self._second, now)
        known, self._known = self._known, True
        return min(rate, float(len(idle))) if known else None
