"""Random numbers for building one world: drawn in chunks, because scalar draws cost microseconds each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np

Item = TypeVar("Item")


class Draws:
    """A stream of numbers that depends on the generator alone."""

    __slots__ = ("_left", "_rng")

    def __init__(self, rng: np.random.Generator) -> None:
        self._rng = rng
        self._left: list[float] = []

    def unit(self) -> float:
        """In [0, 1)."""
        if not self._left:
            self._left = self._rng.random(128).tolist()
        return self._left.pop()

    def uniform(self, low: float, high: float) -> float:
        return low + (high - low) * self.unit()

    def integer(self, low: int, high: int) -> int:
        """In [low, high); low when the interval is empty."""
        return low + int(self.unit() * (high - low)) if high > low else low

    def within(self, ends: tuple[int, int]) -> int:
        """In [low, high], both included."""
        return self.integer(ends[0], ends[1] + 1)

    def choice(self, items: Sequence[Item]) -> Item:
        return items[self.integer(0, len(items))]

    def chance(self, probability: float) -> bool:
        return self.unit() < probability
