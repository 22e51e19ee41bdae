"""Payoff matrices: the saved versions of one team play those of the other. Needs only the run folder."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from srl.core.errors import UserError
from srl.core.progress import Tell, silent
from srl.core.text import count
from srl.loaded import LoadedPolicy, LoadedRun
from srl.store import checkpoint
from srl.store.atomic import replace_file
from srl.store.weights import archive_folder, checkpoint_folder, initial_folder, tagged

FILE = "cross_play.json"
_ENVS = 32
_UNITS = ((1e9, "G"), (1e6, "M"), (1e3, "k"))


@dataclass(frozen=True, slots=True)
class Version:
    """One saved version of a policy."""

    name: str
    """`initial`, `latest`, `best`, `step_000100000` of the archive, or `fixed`: a policy that does not learn."""
    step: int = 0
    path: Path | None = None

    @property
    def label(self) -> str:
        """For the table: env steps in short form, with the name if it says more."""
        if self.name in ("initial", "fixed"):
            return self.name
        short = next((f"{self.step / unit:.3g}{mark}" for unit, mark in _UNITS if self.step >= unit), str(self.step))
        return short if self.name.startswith("step_") else f"{self.name} {short}"


@dataclass(frozen=True, slots=True)
class Side:
    """A team, and the versions that play for it."""

    team: str
    policy: str
    versions: tuple[Version, ...]


@dataclass(slots=True)
class Payoff:
    """The matrix: a cell for each version of `rows` against each of `columns`."""

    run: Path
    rows: Side
    columns: Side
    statistic: str
    episodes: int
    greedy: bool
    cells: list[list[dict[str, float]]] = field(default_factory=list)
    """Of each match: means over its episodes of `return/<team>` and of the statistics of the env."""

    @property
    def matrix(self) -> list[list[float]]:
        """The statistic alone."""
        return [[cell[self.statistic] for cell in row] for row in self.cells]

    def head(self) -> list[str]:
        """The lines above the matrix."""
        how = "most likely actions" if self.greedy else "sampled actions"
        return [
            f"{self.statistic}: rows {self.rows.team}, columns {self.columns.team}; {self.episodes} episodes each, {how}",
            self._line("", [*(one.label for one in self.columns.versions), "mean"]),
        ]

    def line(self, number: int) -> str:
        """One row of the matrix, with its mean."""
        shares = self.matrix[number]
        return self._line(self.rows.versions[number].label, [f"{value:.3g}" for value in [*shares, np.mean(shares)]])

    def foot(self) -> str:
        """The means of the columns."""
        means = np.mean(self.matrix, axis=0)
        return self._line("mean", [f"{value:.3g}" for value in [*means, means.mean()]])

    def write(self) -> Path:
        """Write all of it into the run folder."""
        data = {name: getattr(self, name) for name in ("statistic", "episodes", "greedy", "matrix", "cells")}
        for name, side in (("rows", self.rows), ("columns", self.columns)):
            listed = [
                {"name": one.name, "step": one.step, "path": str(one.path.relative_to(self.run)) if one.path else None}
                for one in side.versions
            ]
            data[name] = {"team": side.team, "policy": side.policy, "versions": listed}
        path = self.run / FILE
        replace_file(path, json.dumps(data, indent=1) + "\n")
        return path

    def _line(self, label: str, cells: Sequence[str]) -> str:
        first = max(len("mean"), *(len(one.label) for one in self.rows.versions))
        wide = max(9, *(len(one.label) + 2 for one in self.columns.versions))
        return f"{label:<{first}}{''.join(f'{cell:>{wide}}' for cell in cells)}"


def play_all(
    run: LoadedRun,
    *,
    episodes: int = 32,
    versions: int | None = 8,
    envs: int | None = None,
    greedy: bool | None = None,
    statistic: str | None = None,
    show: Callable[[str], None] = lambda line: None,
    tell: Tell = silent,
) -> Payoff:
    """Play all matches with the same seeds. `versions`: at most so many of each team (None: all).

    `greedy`: None, as the run's own evaluator plays. `statistic`: None, the env's first headline, else the return of the rows.
    """
    rows, columns = (side(run, team, versions) for team in _two_teams(run))
    statistic = statistic or next(iter(run.derived.env.headline), f"return/{rows.team}")
    payoff = Payoff(run.folder, rows, columns, statistic, episodes, run.greedy if greedy is None else greedy)
    here, there = ([run.policy(version.path or "best", name=one.policy) for version in one.versions] for one in (rows, columns))
    for number, ours in enumerate(here):
        payoff.cells.append([])
        for theirs in there:
            tell("matches", number * len(there) + len(payoff.cells[-1]), len(here) * len(there))
            cell = _match(run, payoff, {rows.team: ours, columns.team: theirs}, envs or min(episodes, _ENVS))
            if statistic not in cell:
                raise UserError(f"no match has the statistic '{statistic}'", ("known", ", ".join(cell)))
            payoff.cells[-1].append(cell)
        for line in [*(payoff.head() if number == 0 else []), payoff.line(number)]:
            show(line)
    show(payoff.foot())
    return payoff


def side(run: LoadedRun, team: str, limit: int | None = None) -> Side:
    """The saved versions of the policy that plays a team, oldest first; if more than `limit`, evenly spaced ones."""
    policy = next(name for name, info in run.derived.policies.items() if team in info.teams)
    if run.graph.policies[policy].algorithm is None:
        return Side(team, policy, (Version("fixed"),))
    found = saved(run, policy)
    if limit is not None and limit < len(found):
        found = [found[index] for index in np.linspace(0, len(found) - 1, limit).round().astype(int)]
    return Side(team, policy, tuple(found))


def saved(run: LoadedRun, policy: str) -> list[Version]:
    """The initial, archived, best and latest versions of a policy, oldest first, one per env step."""
    place = checkpoint_folder(run.folder, run.graph.policies, policy)
    named: list[tuple[str, Path | None]] = [
        (path.name, path) for path in checkpoint.checkpoints(archive_folder(run.folder, run.graph.policies, policy))
    ]
    named += [("best", checkpoint.best(place)), ("latest", run.checkpoint("latest", policy))]
    named += tagged(run.folder, run.graph.policies, policy).items()
    named += [("initial", checkpoint.latest(initial_folder(run.folder, run.graph.policies, policy)))]
    by_step = {checkpoint.step_of(path): Version(name, checkpoint.step_of(path), path) for name, path in named if path}
    return [by_step[step] for step in sorted(by_step)]


def _two_teams(run: LoadedRun) -> list[str]:
    teams = list(run.derived.env.teams)
    if len(teams) != 2:
        raise UserError(
            "cross-play requires an env with exactly two teams",
            ("found", f"{count(len(teams), 'team')}: {', '.join(teams)}"),
        )
    return teams


def _match(run: LoadedRun, payoff: Payoff, players: dict[str, LoadedPolicy], envs: int) -> dict[str, float]:
    """Play one match in new envs, so that a cell does not depend on the others."""
    owners = {one.info.name: one for one in players.values()}
    with closing(run.rollout(owners, envs=envs, role="cross_play")) as rollout:
        rollout.restart({team: one.acting for team, one in players.items()})
        while not rollout.step(greedy=payoff.greedy, episodes=payoff.episodes):
            pass
        return rollout.result()
