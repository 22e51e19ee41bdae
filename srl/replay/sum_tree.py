"""A sum tree for numpy: few levels of many branches, so that each step down or up is one pass over all draws.

The leaves are float32. A node is the sum of its 16 children, always worked out from them: nothing drifts. The nodes of the
top level are summed up anew for each draw.
"""

from __future__ import annotations

import numpy as np

from srl.core.tree import Array

_FAN = 16
_TOP = 4096
"""The top level has at most this many nodes, unless there are more columns."""
_BELOW_ONE = 1.0 - 2.0**-20
"""Keeps a draw within its node, in spite of the rounding of float32 sums."""


class SumTree:
    """Weights `[columns, width]`, drawn in proportion. Columns begin at nodes of the top level, so that ranges are slices."""

    def __init__(self, columns: int, width: int) -> None:
        self.columns, self.width = columns, width
        shapes = _shapes(columns, width)
        self._padded = shapes[0][1]
        self.levels: list[Array] = [np.zeros(shape, np.float64 if level else np.float32) for level, shape in enumerate(shapes)]
        """From the leaves to the top."""
        self._blocks = [level.reshape(-1, _FAN) for level in self.levels[:-1]]
        """Children by node."""
        self._before = [np.tri(_FAN, k=-1, dtype=blocks.dtype) for blocks in self._blocks]
        """Times the children: the sums of those before each."""

    @staticmethod
    def bytes_of(columns: int, width: int) -> int:
        """Memory of a tree of this size."""
        return sum(columns * nodes * (8 if level else 4) for level, (_, nodes) in enumerate(_shapes(columns, width)))

    @property
    def leaves(self) -> Array:
        """All weights `[columns, width]`: a view."""
        return self.levels[0][:, : self.width]

    def weights(self, places: Array) -> Array:
        """The weights at `column * width + place`."""
        found: Array = self.levels[0].reshape(-1).take(self._leaf(places))
        return found

    def put(self, places: Array, weights: Array) -> None:
        """Set weights at `column * width + place`; of equal places the last counts."""
        nodes = self._leaf(places)
        self.levels[0].reshape(-1)[nodes] = weights
        for blocks, above in zip(self._blocks, self.levels[1:], strict=True):
            nodes = nodes // _FAN
            above.reshape(-1)[nodes] = np.add.reduce(blocks.take(nodes, 0), axis=1, dtype=np.float64)

    def put_range(self, columns: slice, part: slice, weights: Array) -> None:
        """Set weights `[columns, places]` that lie side by side."""
        self.levels[0][columns, part] = weights
        low, high = part.start, part.stop
        for below, above in zip(self.levels, self.levels[1:], strict=False):
            low, high = low // _FAN, -(-high // _FAN)
            children = below[columns, low * _FAN : high * _FAN]
            above[columns, low:high] = np.add.reduce(children.reshape(len(children), -1, _FAN), axis=2, dtype=np.float64)

    def draw(self, count: int, rng: np.random.Generator) -> tuple[Array, Array]:
        """(places `column * width + place` in order, one from each of `count` equal parts of the total; their weights)."""
        lines = np.arange(count)
        below = rng.random(count)
        below += lines
        top = np.zeros(self.levels[-1].size + 1)
        np.add.accumulate(self.levels[-1].reshape(-1), out=top[1:])
        below *= top[-1] / count
        np.minimum(below, top[-1] * _BELOW_ONE, out=below)
        nodes: Array = top[1:].searchsorted(below, "right")
        below -= top.take(nodes)
        for blocks, before in reversed(list(zip(self._blocks, self._before, strict=True))):
            weights = blocks.take(nodes, 0, None, "clip").T
            below = below.astype(weights.dtype, copy=False)
            sums = before @ weights  # [16, count] of the children before each
            np.minimum(below, (sums[-1] + weights[-1]) * _BELOW_ONE, out=below)
            child = np.add.reduce((sums <= below).view(np.uint8), axis=0, dtype=np.uint8) - np.uint8(1)
            below -= sums.reshape(-1).take(child * np.int64(count) + lines, 0, None, "clip")
            nodes *= _FAN
            nodes += child
        drawn: Array = self.levels[0].reshape(-1).take(nodes, 0, None, "clip")
        if not drawn.all():  # rounding led to a place without weight: as good as never
            return self.draw(count, rng)
        if self._padded != self.width and self.columns > 1:
            nodes -= nodes // self._padded * (self._padded - self.width)
        return nodes, drawn

    def _leaf(self, places: Array) -> Array:
        if self._padded != self.width and self.columns > 1:
            places = places + places // self.width * (self._padded - self.width)
        return places


def _shapes(columns: int, width: int) -> list[tuple[int, int]]:
    """(columns, nodes of one) of every level, from the leaves to the top."""
    depth = 1
    while columns * -(-width // _FAN**depth) > _TOP and _FAN**depth < width:
        depth += 1
    top = -(-width // _FAN**depth)
    return [(columns, top * _FAN ** (depth - level)) for level in range(depth + 1)]
