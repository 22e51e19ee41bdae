"""Prioritised experience replay (Schaul et al. 2016): windows are drawn in proportion to priority^alpha."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from srl.core.errors import RunError
from srl.core.tree import Array
from srl.replay.rings import Rings
from srl.replay.sum_tree import SumTree

_LEAST = 1e-6
"""Every window can be drawn."""


class Prioritised:
    """New windows have the highest priority that was ever given, so that each is drawn soon."""

    def __init__(self, rings: Rings, alpha: float) -> None:
        self.alpha = alpha
        self.highest = 1.0
        """Of all weights (priority^alpha) so far."""
        self._rings = rings
        self._start = rings.arrays["start"]
        self.tree = SumTree(rings.shape.columns, rings.shape.starts)

    def state(self) -> dict[str, Array]:
        """Weights by column and place, and the highest so far."""
        return {"weights": self.tree.leaves, "highest": np.array(self.highest)}

    def restore(self, saved: Mapping[str, Array]) -> None:
        """The inverse of `state`."""
        self.tree.put_range(slice(0, self.tree.columns), slice(0, self.tree.width), saved["weights"])
        self.highest = float(saved["highest"])

    def changed(self, columns: slice, low: int, high: int) -> None:
        """Windows of these columns have come or gone."""
        for part in self._rings.start_spans(low, high):
            self.tree.put_range(columns, part, np.where(self._start[columns, part], np.float32(self.highest), np.float32(0.0)))

    def draw(self, count: int, rng: np.random.Generator, beta: float) -> tuple[Array, Array | None]:
        """(places in `start`, importance weights: (N x probability)^-beta, divided by the largest of the batch)."""
        places, weights = self.tree.draw(count, rng)
        weights /= weights.min()
        np.power(weights, np.float32(-beta), out=weights)
        return places, weights

    def give(self, places: Array, priority: Array) -> None:
        """Set the priorities of windows; not negative."""
        if not np.isfinite(priority).all() or (priority < 0).any():
            raise RunError("a priority must be finite and not negative", ("found", str(priority[:8])), code="R05")
        weights = np.maximum(priority, _LEAST).astype(np.float32, copy=False) ** np.float32(self.alpha)
        if len(weights):
            self.highest = max(self.highest, float(weights.max()))
        self.tree.put(places, weights)
