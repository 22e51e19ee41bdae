"""Records of ended episodes: which version of each policy played them, and how they ended. Shapes: T rows, E envs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from srl.core.spec import Leaf
from srl.core.tree import Array
from srl.streams.base import Version

SEVERAL = -1
"""In place of a version: more than one played the episode."""


def episodes_spec(steps: int, envs: int, policies: Iterable[str], stats: int) -> dict[str, Any]:
    """One slab of records: a row holds the episodes that ended with it."""
    names, rows = list(policies), (steps, envs)
    spec: dict[str, Any] = {
        "ended": Leaf(rows, "bool"),
        "version": {name: Leaf(rows, "int64") for name in names},
        "return": {name: Leaf(rows, "float64") for name in names},
    }
    return {**spec, "stats": Leaf((*rows, stats), "float64")} if stats else spec


class EpisodeLog:
    """Of one group: the versions that play the present episodes, and the slab that ended ones are written into."""

    def __init__(self, envs: int, policies: Iterable[str]) -> None:
        self._playing = {name: np.full(envs, SEVERAL, np.int64) for name in policies}
        self._begins = {name: np.ones(envs, bool) for name in self._playing}
        self._tree: dict[str, Any] = {}

    def begin(self) -> None:
        """All envs were reset."""
        for begins in self._begins.values():
            begins[...] = True

    def open(self, tree: Any) -> None:
        """Write into this slab."""
        self._tree = tree
        tree["ended"][...] = False

    def answered(self, policy: str, version: Version) -> None:
        """This version plays the present row of all envs."""
        playing, begins = self._playing[policy], self._begins[policy]
        playing[~begins & (playing != version)] = SEVERAL
        playing[begins] = version
        begins[...] = False

    def ended(self, row: int, over: Array, returns: Mapping[str, Array], stats: Array) -> None:
        """`[E]`: the episodes that ended with this row."""
        self._tree["ended"][row] = over
        for name, playing in self._playing.items():
            self._tree["version"][name][row] = playing
            self._tree["return"][name][row] = returns[name]
            self._begins[name][over] = True
        if "stats" in self._tree:
            self._tree["stats"][row] = stats

    @property
    def arrays(self) -> dict[str, Any]:
        """What outlives a slab: to be copied, or written into."""
        return {"playing": self._playing, "begins": self._begins}
