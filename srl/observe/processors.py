"""The load of this machine beside the run."""

from __future__ import annotations

import os
from pathlib import Path

from srl.observe.metrics import Rate


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
