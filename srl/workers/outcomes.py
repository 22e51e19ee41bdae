"""How episodes against past versions ended: found out where they are played, told with the next question, counted by version."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from srl.core.tree import Array
from srl.streams.base import Version

NOBODY = -1
"""In place of a version: no episode has ended, or more than one version played it."""
LEAVES = ("faced", "won")
"""Leaves of a question to a past opponent that its policy does not read."""
_WINDOW = 200.0
"""Episodes that a win rate looks back on, about: the learner changes."""
_FADES = 0.98
"""What is left of the results against a version when another one is chosen: unplayed ones become unknown again."""


class Outcomes:
    """Of E envs: which version of the opponent plays the episode, and, when it is over, what came of it."""

    def __init__(self, envs: int) -> None:
        self.leaves: dict[str, Array] = {"faced": np.full(envs, NOBODY, np.int64), "won": np.zeros(envs, np.float32)}
        """What goes with the next question. `won`, for the side that learns: 1 won, 0.5 neither, 0 lost."""
        self._version = np.full(envs, NOBODY, np.int64)
        self._begins = np.ones(envs, bool)

    def begin(self) -> None:
        """All envs were reset."""
        self._begins[...] = True

    def answered(self, version: Version) -> None:
        """This version plays the present row of all envs."""
        self._version[~self._begins & (self._version != version)] = NOBODY
        self._version[self._begins] = version
        self._begins[...] = False

    def ended(self, over: Array, won: Array) -> None:
        """`[E]`: the episodes that are over, and how they ended."""
        self.leaves["faced"][over] = self._version[over]
        self.leaves["won"][over] = won[over]
        self._begins[over] = True

    def told(self) -> None:
        """A question that carried them was answered."""
        self.leaves["faced"][...] = NOBODY

    @property
    def arrays(self) -> dict[str, Array]:
        """All there is to know, as it is now: to be copied, or written into."""
        return {**self.leaves, "version": self._version, "begins": self._begins}


class WinRates:
    """How often the side that learns beats each version, and which version it should meet next."""

    def __init__(self, power: float) -> None:
        self._power = power
        self._results: dict[Version, tuple[float, float]] = {}
        """Version -> (won, played), recent episodes counting most."""

    def save(self) -> Array:
        """`[versions, 3]`: version, won, played."""
        rows = [(version, *results) for version, results in self._results.items()]
        return np.array(rows, np.float64).reshape(-1, 3)

    def load(self, saved: Array) -> None:
        """The inverse of `save`."""
        self._results = {int(version): (float(won), float(played)) for version, won, played in saved}

    def add(self, version: Version, won: float, played: int) -> None:
        """Episodes against one version; `won` may be a fraction."""
        wins, games = self._results.get(version, (0.0, 0.0))
        wins, games = wins + won, games + played
        shrink = min(1.0, _WINDOW / games)
        self._results[version] = wins * shrink, games * shrink

    def rate(self, version: Version) -> float:
        """won / (played + 1): a version that nobody has met counts as unbeaten, and none as beaten for ever."""
        wins, games = self._results.get(version, (0.0, 0.0))
        return wins / (games + 1.0)

    def chances(self, versions: Sequence[Version]) -> Array:
        """The probability of each to be chosen: (1 - rate) ** power, divided by the sum of all."""
        weights = np.array([(1.0 - self.rate(version)) ** self._power for version in versions])
        chances: Array = weights / weights.sum()
        return chances

    def choose(self, versions: Sequence[Version], draw: float) -> Version:
        """One of `versions` by their chances; `draw` is in [0, 1). Older results fade, versions not among them are forgotten."""
        steps = np.cumsum(self.chances(versions))
        chosen = versions[min(int(np.searchsorted(steps, draw, side="right")), len(versions) - 1)]
        there = set(versions)
        self._results = {
            version: (wins * _FADES, games * _FADES) for version, (wins, games) in self._results.items() if version in there
        }
        return chosen
