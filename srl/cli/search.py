"""Searching settings: values drawn from ranges, and successive halving (Jamieson and Talwalkar 2016) of runs that are paused."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from srl.core.errors import UserError

_RANGE = re.compile(r"(log|uniform|int)\(([^,]+),([^,]+)\)")
RATE = 3
"""Of so many runs one goes on to the next round, for so many times the env steps."""


@dataclass(frozen=True, slots=True)
class Range:
    """`algorithm.lr=log(1e-5,1e-2)`"""

    key: str
    kind: str
    low: float
    high: float

    @classmethod
    def read(cls, axis: str) -> Range | None:
        """The range of an axis; None if it lists values."""
        key, _, text = axis.partition("=")
        if (found := _RANGE.fullmatch(text.replace(" ", ""))) is None:
            if re.match(r"\w+\(", text):
                raise UserError(
                    f"'--sweep {axis}' is not a range",
                    ("expected", f"{key}=log(1e-5,1e-2), {key}=uniform(0,1), {key}=int(1,10), or values: {key}=1,2,3"),
                    code="E12",
                )
            return None
        try:
            low, high = float(found[2]), float(found[3])
        except ValueError:
            low = high = math.nan
        whole = found[1] != "int" or (low.is_integer() and high.is_integer())
        if not low < high or not math.isfinite(high - low) or not whole or (found[1] == "log" and low <= 0):
            rule = {"log": "two numbers above 0", "uniform": "two numbers", "int": "two whole numbers"}[found[1]]
            raise UserError(
                f"'--sweep {axis}' must be from a smaller to a larger number", ("expected", f"{found[1]}: {rule}"), code="E12"
            )
        return cls(key, found[1], low, high)

    def draw(self, dice: random.Random) -> str:
        """`algorithm.lr=0.000213`: three digits are enough, and both ends are possible."""
        if self.kind == "int":
            return f"{self.key}={dice.randint(int(self.low), int(self.high))}"
        if self.kind == "log":
            value = math.exp(dice.uniform(math.log(self.low), math.log(self.high)))
        else:
            value = dice.uniform(self.low, self.high)
        value = float(f"{value:.3g}") if self.kind == "log" else round(value, 3 - math.floor(math.log10(self.high - self.low)))
        return f"{self.key}={min(max(value, self.low), self.high):g}"


def drawn(axes: Sequence[str], lists: Sequence[Sequence[str]], trials: int) -> list[tuple[str, ...]]:
    """One combination for each trial: a value of every range, and one of every list. The same axes always give the same.

    More trials continue the same sequence. A combination that is drawn twice counts once.
    """
    dice = random.Random("|".join(axes))
    found = []
    for _ in range(trials):
        chosen = []
        for axis, values in zip(axes, lists, strict=True):
            wanted = Range.read(axis)
            chosen.append(wanted.draw(dice) if wanted is not None else dice.choice(list(values)))
        found.append(tuple(chosen))
    return list(dict.fromkeys(found))


def budgets(total: int, trials: int) -> list[int]:
    """Env steps at which the runs of each round end: the last round has all of them."""
    rounds = max(1, math.floor(math.log(trials, RATE) + 1e-9) + 1)
    return [max(1, total // RATE ** (rounds - 1 - i)) for i in range(rounds)]


def survivors(scores: Sequence[float]) -> list[int]:
    """The indices of the best, one of `RATE`, at least one; a run without a score comes last."""
    order = sorted(range(len(scores)), key=lambda i: (-scores[i] if math.isfinite(scores[i]) else math.inf, i))
    return sorted(order[: max(1, len(scores) // RATE)])


def halve(trials: int, total: int, run: Callable[[list[int], int | None], list[float]]) -> list[int]:
    """Successive halving. `run(trials, env steps)` lets them go on to there, or to their end, and gives their scores.

    Returns the round that each trial reached.
    """
    alive, reached = list(range(trials)), [0] * trials
    rounds = budgets(total, trials)
    for i, budget in enumerate(rounds):
        scores = run(alive, None if i == len(rounds) - 1 else budget)
        for one in alive:
            reached[one] = i
        if i < len(rounds) - 1:
            alive = [alive[place] for place in survivors(scores)]
    return reached
