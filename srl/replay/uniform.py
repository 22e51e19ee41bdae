"""Every window is drawn with the same probability, with replacement."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from srl.core.tree import Array
from srl.replay.rings import Rings

_ROUNDS = 8
"""Draws of places that may be without a window, before those with one are listed."""


class Uniform:
    """Draws among the places that are in use, and draws again where no window starts."""

    def __init__(self, rings: Rings) -> None:
        self._rings = rings
        self._start = rings.flat["start"]
        columns, starts = rings.shape.columns, rings.shape.starts
        self._used = np.zeros(columns, np.int64)
        """Places in use, by column; then summed up, and what leads from a number among them to a place."""
        self._first_unused = np.zeros(columns, np.int64)
        self._shift = np.zeros(columns, np.int64)
        self._all, self._plain = 0, columns == 1
        self._size = columns * starts

    def state(self) -> dict[str, Array]:
        """Nothing but what the rings say."""
        return {}

    def restore(self, saved: Mapping[str, Array]) -> None:
        """The rings have been restored."""
        self._all = 0
        self._used[...] = 0
        for column in np.flatnonzero(self._rings.started).tolist():
            self.changed(slice(column, column + 1), 0, 0)

    def changed(self, columns: slice, low: int, high: int) -> None:
        """Windows of these columns have come or gone."""
        if self._all == self._size:
            return
        shape = self._rings.shape
        head = int(self._rings.heads[columns.start])
        used = self._used[columns] = min(head // shape.every + 1, shape.starts)
        if shape.columns == 1:
            self._all = used
            return
        self._first_unused = np.cumsum(self._used)
        self._shift = np.arange(shape.columns) * shape.starts - (self._first_unused - self._used)
        self._all = int(self._first_unused[-1])
        self._plain = shape.columns == 1 or self._all == self._size

    def draw(self, count: int, rng: np.random.Generator, beta: float) -> tuple[Array, Array | None]:
        """(places in `start`, importance weights: None stands for ones)."""
        places = self._places(count, rng)
        good = self._start.take(places)
        for _ in range(_ROUNDS):
            if (found := int(np.count_nonzero(good))) == count:
                return places, None
            bad = np.flatnonzero(~good)
            places[bad] = again = self._places(count - found, rng)
            good[bad] = self._start.take(again)
        known = np.flatnonzero(self._start)
        bad = np.flatnonzero(~good)
        places[bad] = known[(rng.random(len(bad)) * len(known)).astype(np.int64)]
        return places, None

    def _places(self, count: int, rng: np.random.Generator) -> Array:
        drawn = rng.random(count)
        drawn *= self._all
        places: Array = drawn.astype(np.int64)
        if not self._plain:
            places += self._shift[np.searchsorted(self._first_unused, places, "right")]
        return places
