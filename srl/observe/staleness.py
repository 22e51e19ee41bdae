"""How many updates the rows of each sample stream lay behind when they were trained on."""

from __future__ import annotations

import math
from dataclasses import dataclass

from srl.workers.base import Reading


@dataclass(slots=True)
class _Lag:
    low: float = math.inf
    high: float = -math.inf
    mean: float = 0.0
    """Of the last row in which something was trained."""
    total: float = 0.0
    number: float = 0.0


class Staleness:
    """Smallest and largest of the whole run, mean since the last row."""

    def __init__(self) -> None:
        self._lags: dict[str, _Lag] = {}

    def take(self, stream: str, reading: Reading) -> None:
        """What the trainer at the end of a stream reported; others have nothing to say."""
        if "staleness_max" not in reading.totals:
            return
        lag = self._lags.setdefault(stream, _Lag())
        lag.low = min(lag.low, reading.totals["staleness_min"])
        lag.high = max(lag.high, reading.totals["staleness_max"])
        value, number = reading.means.get("staleness", (0.0, 0.0))
        lag.total += value
        lag.number += number

    def of(self, stream: str) -> tuple[float, float, float] | None:
        """Smallest, mean and largest; None where nothing was trained."""
        lag = self._lags.get(stream)
        if lag is None:
            return None
        return lag.low, lag.total / lag.number if lag.number else lag.mean, lag.high

    def row(self) -> dict[str, float]:
        """Figures for metrics.jsonl: `stream/<name>/staleness_min`, `_mean`, `_max`; means start anew."""
        values = {}
        for stream, lag in self._lags.items():
            if lag.number:
                lag.mean, lag.total, lag.number = lag.total / lag.number, 0.0, 0.0
            for name, value in (("min", lag.low), ("mean", lag.mean), ("max", lag.high)):
                values[f"stream/{stream}/staleness_{name}"] = value
        return values
