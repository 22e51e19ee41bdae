"""Rules of a league: which kept version plays next."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from srl.core.errors import NotImportable
from srl.core.registry import REGISTRIES
from srl.core.tree import Array
from srl.streams.base import Version

_WINDOW = 200.0
"""Episodes that a win rate looks back on, about: the learner changes."""
_FADES = 0.98
"""Factor on all results at each choice, so that versions which are not played become unknown again."""


class Rule(ABC):
    """The rule of one policy in one match: it sees results and chooses among the kept versions."""

    needs_results: ClassVar[bool] = False
    """A version plays on until an episode against it has ended."""

    def __init__(self, power: float = 1.0) -> None:
        """`power`: `opponents.power`, for rules that have a use for it."""

    @abstractmethod
    def choose(self, kept: Sequence[Version], draw: float) -> Version:
        """One of `kept`, oldest first; `draw` is uniform in [0, 1)."""

    def result(self, version: Version, won: float, played: int) -> None:
        """Episodes against one version; `won` counts those that the learner won, and may be a fraction."""

    def state(self) -> Array:
        """For exact resume."""
        return np.zeros((0, 3))

    def restore(self, saved: Array) -> None:
        """The inverse of `state`."""


class Uniform(Rule):
    """Every kept version alike."""

    def choose(self, kept: Sequence[Version], draw: float) -> Version:
        return kept[int(draw * len(kept))]


class Latest(Rule):
    """The kept version `back` places before the newest."""

    def __init__(self, back: int) -> None:
        super().__init__()
        self._back = back

    def choose(self, kept: Sequence[Version], draw: float) -> Version:
        return kept[max(0, len(kept) - 1 - self._back)]


class WinRate(Rule):
    """Prioritised fictitious self-play: a version by (1 - how often the learner beats it) to a power."""

    needs_results = True

    def __init__(self, power: float = 1.0) -> None:
        super().__init__(power)
        self._power = power
        self._results: dict[Version, tuple[float, float]] = {}
        """Version -> (won, played), recent episodes counting most."""

    def result(self, version: Version, won: float, played: int) -> None:
        wins, games = self._results.get(version, (0.0, 0.0))
        wins, games = wins + won, games + played
        shrink = min(1.0, _WINDOW / games)
        self._results[version] = wins * shrink, games * shrink

    def rate(self, version: Version) -> float:
        """won / (played + 1): an unknown version counts as unbeaten, and no rate stays at 1."""
        wins, games = self._results.get(version, (0.0, 0.0))
        return wins / (games + 1.0)

    def chances(self, versions: Sequence[Version]) -> Array:
        """The probability of each to be chosen."""
        weights = np.array([(1.0 - self.rate(version)) ** self._power for version in versions])
        chances: Array = weights / weights.sum()
        return chances

    def choose(self, kept: Sequence[Version], draw: float) -> Version:
        """By their chances. Older results fade, those of versions that are kept no longer are dropped."""
        steps = np.cumsum(self.chances(kept))
        chosen = kept[min(int(np.searchsorted(steps, draw, side="right")), len(kept) - 1)]
        there = set(kept)
        self._results = {
            version: (wins * _FADES, games * _FADES) for version, (wins, games) in self._results.items() if version in there
        }
        return chosen

    def state(self) -> Array:
        """`[versions, 3]`: version, won, played."""
        rows = [(version, *results) for version, results in self._results.items()]
        return np.array(rows, np.float64).reshape(-1, 3)

    def restore(self, saved: Array) -> None:
        self._results = {int(version): (float(won), float(played)) for version, won, played in saved}


def find_rule(choose: str, power: float) -> Rule:
    """`latest-<n>`, or a rule by its registered name or path: `uniform`, `win_rate`, `my.py:Rule`."""
    if match := re.fullmatch(r"latest-(\d+)", choose):
        return Latest(int(match[1]))
    try:
        rule: Rule = REGISTRIES["rule"].resolve(choose)(power)
    except NotImportable as error:
        raise error.add("or", "latest-<n>, the version n places before the newest") from None
    return rule
