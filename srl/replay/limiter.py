"""The limiter of a replay: it holds the number of updates per env step, whatever is faster.

    owed = updates_per_step * (inserted - warmup) - drawn

A batch may be drawn while at least one is owed. A slab may be started while fewer than `ahead` env steps would then be without
their updates, those under way included: so `owed` stays between 0 and updates_per_step * ahead + 1.
"""

from __future__ import annotations

_ROUNDING = 1e-9


class Limiter:
    """Counts env steps that came in and batches that went out."""

    def __init__(self, *, updates_per_step: float, warmup: int, ahead: int) -> None:
        self.updates_per_step = updates_per_step
        self.warmup = warmup
        self.ahead = ahead
        self.inserted = 0
        self.drawn = 0

    @property
    def owed(self) -> float:
        """Batches that may be drawn now, below 0 before the end of the warm-up."""
        return self.updates_per_step * (self.inserted - self.warmup) - self.drawn

    @property
    def may_draw(self) -> bool:
        """Whether the next batch is owed."""
        return self.owed >= 1 - _ROUNDING

    def may_insert(self, steps: int) -> bool:
        """Whether so many env steps, those under way included, may come in."""
        later = self.updates_per_step * (self.inserted + steps - self.warmup) - self.drawn
        return later < self.updates_per_step * self.ahead + 1 - _ROUNDING
