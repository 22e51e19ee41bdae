"""Frame stacks: an observation that is the newest k frames is kept as one frame a row, and stacked again when it is drawn."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from srl.core.errors import SettingError
from srl.core.tree import Array, leaves

_CHECKED = 100
"""Pairs of rows that are looked at before a leaf is believed to be a stack."""
_UNKNOWN, _AGAIN, _ZEROS = 0, 1, 2
"""Nothing seen yet; the first frame again; zeros."""


class Frames:
    """One leaf of the observation, `[k, ...]` in every row, the oldest frame first."""

    def __init__(self, path: str, count: int) -> None:
        self.path = path
        self.count = count
        self.padding = _UNKNOWN
        """What stands before an episode's first frame."""
        self._left = _CHECKED

    @classmethod
    def of(cls, record: Mapping[str, Any], history: Sequence[str]) -> tuple[Frames, ...]:
        """The leaves with these paths, as `obs` or `obs/screen`."""
        known = dict(leaves(record["obs"], "obs"))
        for path in history:
            if path not in known or len(known[path].shape) < 4 or known[path].shape[3] < 2:
                found = ", ".join(f"{path} {leaf.shape[3:]}" for path, leaf in known.items())
                raise SettingError("history", f"must name observations that are stacks of frames, not '{path}'", ("found", found))
        return tuple(cls(path, known[path].shape[3]) for path in history)

    def older(self, slab: Mapping[str, Any]) -> Array:
        """`[columns, k - 1, ...]` the frames of row 0 that came before it."""
        leaf = self._leaf(slab)
        frames: Array = leaf[0].reshape(-1, *leaf.shape[3:])[:, :-1]
        return frames

    def check(self, slab: Mapping[str, Any]) -> None:
        """SettingError if this is no stack: each row must have the frames of the row before, moved by one."""
        leaf, first = self._leaf(slab), slab["first"]
        if self._left > 0:
            follows = slab["valid"] & ~first[1:]
            self._left -= int(np.count_nonzero(follows))
            if (leaf[1:][follows][:, :-1] != leaf[:-1][follows][:, 1:]).any():
                raise SettingError("history", f"must name stacks of frames, the oldest first: '{self.path}' is none")
        if first.any():
            stacks = leaf[first]
            older, newest = stacks[:, :-1], stacks[:, -1:]
            again, zeros = bool((older == newest).all()), not older.any()
            if again and zeros:
                return
            if self.padding == _UNKNOWN:
                self.padding = _ZEROS if zeros else _AGAIN
            if not (zeros if self.padding == _ZEROS else again):
                raise SettingError(
                    "history", f"must name stacks that begin with zeros or with their first frame again: '{self.path}' does not"
                )

    def take(self, frames: Array, first: Array, slots: Array, before: Callable[[Array], Array], out: Array) -> None:
        """The stacks of the rows at these slots into `out`, `[*slots, k, ...]`."""
        chosen = np.empty((*slots.shape, self.count), np.int64)
        blank = np.zeros(chosen.shape, bool)
        over = np.zeros(slots.shape, bool)
        for back in range(self.count):
            chosen[..., self.count - 1 - back] = slots
            blank[..., self.count - 1 - back] = over
            over |= first.take(slots, 0, None, "wrap")
            slots = np.where(over, slots, before(slots))
        frames.take(chosen, 0, out, "wrap")
        if self.padding == _ZEROS:
            out[blank] = 0

    def _leaf(self, slab: Mapping[str, Any]) -> Array:
        leaf: Any = slab
        for key in self.path.split("/"):
            leaf = leaf[key]
        found: Array = leaf
        return found
