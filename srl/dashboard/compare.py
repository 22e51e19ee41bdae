"""Runs beside each other: groups that differ in their seed only, their settings, final figures, and curves."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from srl.core.option import written
from srl.core.progress import Tell, silent
from srl.core.readings import RETURN
from srl.core.text import columns, figure
from srl.dashboard.curves import Columns, read_curves
from srl.dashboard.runs import Runs, differing
from srl.dashboard.statistics import Interval, interquartile_mean, interval, probability_of_improvement

AT_THE_END = 0.05
"""The final return of a run is the mean over this last part of its env steps."""
GRID = 72
"""Points of a curve in the terminal."""
_BARS = "▁▂▃▄▅▆▇█"
_NAME = 60
"""A group with a longer name has its letter only."""
_OF_ONE_RUN = ("seed", "name", "dashboard")
"""Settings in which the runs of one group may differ."""


@dataclass(slots=True)
class Group:
    """Runs that differ in their seed only."""

    label: str
    settings: dict[str, Any]
    """Those in which the groups differ."""
    curves: list[tuple[NDArray[np.float64], NDArray[np.float64]]] = field(default_factory=list)
    """Env steps and returns of each run that has any."""
    runs: list[str] = field(default_factory=list)
    wall: list[float] = field(default_factory=list)
    env_steps: list[float] = field(default_factory=list)
    evaluated: list[float] = field(default_factory=list)

    @property
    def final(self) -> NDArray[np.float64]:
        """The return of each run at its end."""
        return np.array([returns[steps >= (1 - AT_THE_END) * steps[-1]].mean() for steps, returns in self.curves])

    def middle(self, grid: NDArray[np.float64]) -> NDArray[np.float64]:
        """The interquartile mean over the runs at these env steps; NaN where one of them was not."""
        values = self.returns(grid)
        return np.where(np.isnan(values).any(axis=0), np.nan, interquartile_mean(values.T))

    def returns(self, grid: NDArray[np.float64]) -> NDArray[np.float64]:
        """The returns of each run at these env steps `[runs, points]`; NaN where it was not."""
        return np.array([np.interp(grid, steps, returns, left=np.nan, right=np.nan) for steps, returns in self.curves])


@dataclass(slots=True)
class Comparison:
    """All groups, in the order of their runs."""

    metric: str
    groups: list[Group]
    varying: list[str]

    @property
    def last(self) -> float:
        """Env steps of the longest run."""
        return max((steps[-1] for group in self.groups for steps, _ in group.curves), default=0.0)


def compare(runs: Runs, metric: str = RETURN, tell: Tell = silent) -> Comparison:
    """Read and group the runs."""
    found = {name: (run, {key: value for key, (value, _) in runs.settings(run).items()}) for name, run in runs.all().items()}
    varying = [name for name in differing([settings for _, settings in found.values()]) if name not in _OF_ONE_RUN]
    groups: dict[str, Group] = {}
    for number, (name, (run, settings)) in enumerate(reversed(found.items())):  # oldest first
        tell("runs", number, len(found))
        own = {key: settings[key] for key in varying if key in settings}
        key = json.dumps(own, default=repr)
        group = groups.setdefault(key, Group(_label(own) or str(settings.get("name", name)), own))
        curves = read_curves(run)
        group.runs.append(name)
        group.wall += curves["columns"].get("wall", [])[-1:]
        group.env_steps += curves["columns"].get("env_steps", [])[-1:]
        group.evaluated += [value for value in curves["evaluations"].get("eval/return", [])[-1:] if value is not None]
        if (curve := _curve(curves["columns"], metric)) is not None:
            group.curves.append(curve)
    return Comparison(metric, list(groups.values()), varying)


def _curve(table: Columns, metric: str) -> tuple[NDArray[np.float64], NDArray[np.float64]] | None:
    pairs = zip(table.get("env_steps", []), table.get(metric, []), strict=False)
    points = sorted((steps, value) for steps, value in pairs if steps is not None and value is not None)
    if not points:
        return None
    steps, values = np.array(points, np.float64).T
    return steps, values


def _label(settings: dict[str, Any]) -> str:
    return " ".join(f"{key.rpartition('.')[2]}={written(value)}" for key, value in settings.items())


# words ------------------------------------------------------------------------------------------------------------


def as_text(found: Comparison, width: int = 100) -> str:
    """Curves, differences of settings and final figures, for a terminal."""
    return "\n\n".join(part for part in (_settings(found), _curves(found, width), _figures(found), _notes(found)) if part)


def _settings(found: Comparison) -> str:
    if not found.varying:
        return "settings: all the same but for the seed"
    rows = [("setting", *(_letter(number) for number in range(len(found.groups))))]
    for name in found.varying:
        rows.append((name, *(written(group.settings[name]) if name in group.settings else "-" for group in found.groups)))
    return columns(rows)


def _curves(found: Comparison, width: int) -> str:
    """One line of bars for each group, all of one scale."""
    points = max(10, min(GRID, width - 28))
    grid = np.linspace(0, found.last, points)
    curves = [group.middle(grid) if group.curves else np.full(points, np.nan) for group in found.groups]
    known = np.concatenate([curve[~np.isnan(curve)] for curve in curves]) if curves else np.array([])
    if not len(known):
        return f"no run has reported {found.metric} yet"
    low, high = float(known.min()), float(known.max())
    head = f"{found.metric} from {figure(low)} to {figure(high)}, over {figure(int(found.last))} env steps"
    return "\n".join([head, *(f"{_letter(number)}  {_bars(curve, low, high)}" for number, curve in enumerate(curves))])


def _bars(curve: NDArray[np.float64], low: float, high: float) -> str:
    def bar(value: float) -> str:
        if math.isnan(value):
            return " "
        return _BARS[min(len(_BARS) - 1, int(len(_BARS) * (value - low) / (high - low or 1.0)))]

    return "".join(map(bar, curve)).rstrip()


def _figures(found: Comparison) -> str:
    head = ("", "runs", "final return", "95 % interval", "evaluated", "env steps", "seconds", "better than A")
    rows: list[tuple[str, ...]] = [head]
    first = found.groups[0].final if found.groups else np.array([])
    for number, group in enumerate(found.groups):
        cells = ["", "", ""]
        if group.curves:
            final = interval([group.final])
            chance = f"{100 * probability_of_improvement(group.final, first):.0f} %" if number and len(first) else ""
            cells = [figure(final.value), _range(final) if len(group.curves) > 1 else "one seed", chance]
        name = f"{_letter(number)} {group.label if len(group.label) <= _NAME else ''}".rstrip()  # the settings are above
        means = [figure(sum(values) / len(values)) if values else "" for values in (group.evaluated, group.env_steps, group.wall)]
        rows.append((name, str(len(group.runs)), cells[0], cells[1], *means, cells[2]))
    told = [at for at in range(len(head)) if any(row[at] for row in rows[1:])]  # no column without a figure
    return columns([[row[at] for at in told] for row in rows], right=range(1, len(told)))


def _notes(found: Comparison) -> str:
    end = f"final return: mean of the last {100 * AT_THE_END:.0f} % of the env steps of a run, interquartile mean over runs"
    few = [_letter(number) for number, group in enumerate(found.groups) if 1 < len(group.curves) < 5]
    return end + (
        f"\nfew seeds ({', '.join(few)}): such intervals are too narrow; ten or more seeds give honest ones" if few else ""
    )


def _range(final: Interval) -> str:
    return f"{figure(final.low)} to {figure(final.high)}"


def _letter(number: int) -> str:
    """A, B ... Z, AA"""
    return (_letter(number // 26 - 1) if number >= 26 else "") + chr(ord("A") + number % 26)
