"""Ended episodes: their metrics, and records of which version of each policy played them. Shapes: T rows, E envs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from srl.api.env import EnvSpec
from srl.core.readings import Reading
from srl.core.spec import Leaf
from srl.core.tree import Array
from srl.streams.base import Version
from srl.workers.player import Player

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


class EpisodeMetrics:
    """Returns, lengths and the env's own numbers of the episodes that end in one group."""

    def __init__(self, spec: EnvSpec, reading: Reading, title: str) -> None:
        self.kept: dict[str, list[float]] | None = None
        """Return of every agent in every episode counted, by the name of its metric; None: they are not kept."""
        self._reading, self._title = reading, title
        self._several = len(spec.teams) > 1
        self._own_length = "length" in spec.stats
        self._means = [(index, name) for index, name in enumerate(spec.stats) if name not in spec.labels]

    def count(self, players: Sequence[Player], stats: Array, ended: Array) -> None:
        """`[E]`: the episodes that are reported."""
        over = np.flatnonzero(ended)
        for player in players:
            lived, returns = player.rows_lived[over], player.returns[over]
            took_part = lived > 0  # an agent that was never there has no return
            for team, agents in player.slices.items():
                name = f"{self._title}/return/{team}" if self._several else f"{self._title}/return"
                ended_with = returns[:, agents][took_part[:, agents]]
                self._reading.episode(name, float(ended_with.sum()), float(len(ended_with)))
                if self.kept is not None:
                    self.kept.setdefault(name, []).extend(ended_with.tolist())
            if not self._own_length:
                length = float(lived.max(1).sum()) / len(players)
                self._reading.episode(f"{self._title}/length", length, len(over) / len(players))
        for index, name in self._means:
            numbers = stats[over, index]
            known = numbers[~np.isnan(numbers)]
            self._reading.episode(f"{self._title}/{name}", float(known.sum()), len(known))
        self._reading.count("episodes", len(over))
