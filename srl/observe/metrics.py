"""Figures of a run: accumulators, rates over windows, and metrics.jsonl, the source of truth."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from srl.store.lines import LineFile, read_lines


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
    return list(read_lines(path))


def last_wall(path: Path) -> float:
    """Seconds that a run had taken when its last line was written; 0 for a new one."""
    rows = read_metrics(path)
    return float(rows[-1].get("wall", 0.0)) if rows else 0.0


def last_leg(rows: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The curve: lines after which a run went back (a resume from an earlier checkpoint) are replaced by the later ones."""
    kept: list[Mapping[str, Any]] = []
    for row in rows:
        while kept and kept[-1]["env_steps"] >= row["env_steps"]:
            kept.pop()
        kept.append(row)
    return kept


class Mean:
    """Weighted mean, minimum and maximum of what was added since the last `pop`."""

    __slots__ = ("max", "min", "total", "weight")

    total: float
    weight: float
    min: float
    max: float

    def __init__(self) -> None:
        self.clear()

    def add(self, value: float, weight: float = 1.0) -> None:
        """Add a value that stands for `weight` items."""
        if weight > 0:
            self.total += value * weight
            self.weight += weight
            self.min = min(self.min, value)
            self.max = max(self.max, value)

    def merge(self, other: Mean) -> None:
        """Add what another one has."""
        self.total += other.total
        self.weight += other.weight
        self.min = min(self.min, other.min)
        self.max = max(self.max, other.max)

    @property
    def value(self) -> float:
        """NaN when nothing was added."""
        return self.total / self.weight if self.weight else math.nan

    def pop(self) -> float:
        """The mean; starts again."""
        value = self.value
        self.clear()
        return value

    def clear(self) -> None:
        """Forget everything."""
        self.total = 0.0
        self.weight = 0.0
        self.min = math.inf
        self.max = -math.inf


class Episodes:
    """Return, length and the env's own figures of the last `window` episodes, per team. The team of a single agent is ``""``."""

    def __init__(self, window: int = 100) -> None:
        self.window = window
        self.count = 0
        """Episodes since the start."""
        self._lengths: deque[float] = deque(maxlen=window)
        self._returns: dict[str, deque[float]] = {}
        self._stats: dict[str, deque[float]] = {}

    def add(self, returns: Mapping[str, float], length: float, stats: Mapping[str, float] | None = None) -> None:
        """One episode that has ended."""
        self.count += 1
        self._lengths.append(length)
        for team, value in returns.items():
            self._window(self._returns, team).append(value)
        for name, value in (stats or {}).items():
            self._window(self._stats, name).append(value)

    def returns(self) -> dict[str, float]:
        """Mean return per team."""
        return {team: _mean(values) for team, values in self._returns.items()}

    @property
    def full(self) -> bool:
        """True once as many episodes as the window holds have ended: only then is a mean an answer."""
        return len(self._lengths) == self.window

    def flat(self) -> dict[str, float]:
        """For metrics.jsonl: `episode/return` (or `episode/<team>/return`), `/length`, `/count` and `/stats/<name>`."""
        if not self._lengths:
            return {}
        row = {f"episode/{team}/return" if team else "episode/return": value for team, value in self.returns().items()}
        row |= {"episode/length": _mean(self._lengths), "episode/count": float(self.count)}
        return row | {f"episode/stats/{name}": _mean(values) for name, values in self._stats.items()}

    def _window(self, windows: dict[str, deque[float]], name: str) -> deque[float]:
        return windows.setdefault(name, deque(maxlen=self.window))


class Rate:
    """Items a second over the last `seconds`, from a counter that grows; a counter that falls (a restart) counts anew."""

    def __init__(self, seconds: float = 10.0) -> None:
        self.seconds = seconds
        self._seen = 0.0
        self._total = 0.0
        self._samples: deque[tuple[float, float]] = deque()

    def update(self, counter: float, now: float) -> float:
        """Report where the counter stands; returns the rate."""
        step = counter - self._seen if counter >= self._seen else counter
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


def _mean(values: deque[float]) -> float:
    return sum(values) / len(values)
