"""A league keeps versions of policies over a run and decides which of them play against those that learn.

params:X     in    new versions of policy X, of which one in `keep_every` updates is kept
episodes:L   in    how the episodes of the match of learner L ended, and which versions played them
past:X/L     out   the version of X that plays in the match of L, as the newest of a param stream of its own

A policy worker that reads `past:X/L` knows nothing of this: it answers with the newest version of its stream.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np

from srl.core.errors import about
from srl.core.load import option
from srl.core.seeds import generator
from srl.core.text import count
from srl.core.tree import Array, Tree, map_tree
from srl.core.types import PastVersions
from srl.graph.spec import Graph, Node
from srl.streams.base import Version, epoch_of, updates_of, version
from srl.streams.param import ParamPublisher, ParamSubscriber
from srl.streams.peers import End
from srl.streams.sample import SampleConsumer
from srl.workers.base import Context, Port, Resumable, Worker
from srl.workers.checkpoints import kept_versions
from srl.workers.episodes import SEVERAL
from srl.workers.rules import Rule, find_rule

HISTORY = 64
"""Maximum number of kept versions of a policy; beyond it, versions between the oldest and the newest are dropped."""
_RECENT = 8
"""Choices whose episodes may still arrive."""
_PATIENCE = 16
"""A version plays at most this many times `hold` slabs while no episode against it ends."""


@dataclass(frozen=True, kw_only=True)
class LeagueArgs(PastVersions):
    ahead: int = option(4, "maximum slabs of episodes in flight", low=1)


@dataclass(slots=True)
class _Seat:
    """One policy worker that plays with chosen versions."""

    policy: str
    match: str
    end: ParamPublisher
    rule: Rule
    version: Version = -1
    """The version that plays."""
    weights: Tree = field(default_factory=dict)
    chosen: int = 0
    """Number of choices so far. It numbers the publications, since an older version may follow a newer one."""
    played: int = 0
    """Slabs since the last choice."""
    results: int = 0
    """Episodes that ended since then, played by this version alone."""
    choices: dict[int, Version] = field(default_factory=dict)
    """The last ones."""

    def publish(self) -> None:
        self.end.publish(version(self.chosen, updates_of(self.version)), self.weights)


class LeagueWorker(Resumable, Worker):
    """Keeps past versions, and chooses opponents among them by their results."""

    ports = {
        "params": Port("param", "subscriber"),
        "episodes": Port("sample", "consumer"),
        "past": Port("param", "publisher"),
    }
    Args = LeagueArgs
    writes = True
    noun = "league"
    args: LeagueArgs

    def __init__(self, args: LeagueArgs, ends: Mapping[str, End], context: Context) -> None:
        super().__init__(args, ends, context)
        self._params: dict[str, ParamSubscriber] = {}
        self._episodes: dict[str, SampleConsumer] = {}
        self._seats: list[_Seat] = []
        for port, end in ends.items():
            base, _, name = port.partition(":")
            if base == "params":
                self._params[name] = cast(ParamSubscriber, end)
            elif base == "episodes":
                self._episodes[name] = cast(SampleConsumer, end)
            else:
                policy, _, match = name.partition("/")
                self._seats.append(_Seat(policy, match, cast(ParamPublisher, end), find_rule(args.choose, args.power)))
        self._seen: dict[str, Version] = dict.fromkeys(self._params, -1)
        self._kept: dict[str, dict[Version, Tree]] = {name: {} for name in self._params}
        self._draining = False
        self._credits = 0
        for end in self._episodes.values():
            for _ in range(args.ahead):
                self._credit(end)

    @classmethod
    def about(cls, args: LeagueArgs) -> str:
        return f"keeps a version every {count(args.keep_every, 'update')}, chooses opponents by the rule {args.choose}"

    @classmethod
    def check(cls, args: LeagueArgs, node: Node, graph: Graph) -> None:
        with about("opponents", "choose"):
            find_rule(args.choose, args.power)

    def kept(self, policy: str) -> tuple[Version, ...]:
        """The versions that may be chosen, oldest first."""
        return tuple(self._kept[policy])

    @property
    def rules(self) -> dict[tuple[str, str], Rule]:
        """(policy, match) -> its rule."""
        return {(seat.policy, seat.match): seat.rule for seat in self._seats}

    def poll(self) -> int:
        """Keep new versions, count results, and make the choices that are due."""
        done = sum(self._keep(policy, end) for policy, end in self._params.items())
        for match, end in self._episodes.items():
            while (loan := end.get()) is not None:
                self._count(match, cast("dict[str, Any]", loan.tree))
                loan.release()
                self._credit(end)
                done += 1
        for seat in self._seats:
            if self._is_due(seat):
                self._choose(seat)
                done += 1
        return done

    def drain(self) -> bool:
        self._draining = True
        for end in self._episodes.values():
            end.discard("stop")
        return True

    def _credit(self, end: SampleConsumer) -> None:
        if not self._draining:
            end.credit(self._credits, 0)
            self._credits += 1

    # versions -----------------------------------------------------------------------------------------------------

    def _keep(self, policy: str, end: ParamSubscriber) -> int:
        newer = end.latest(self._seen[policy])
        if newer is None:
            return 0
        number, tree = newer
        self._seen[policy], kept = number, self._kept[policy]
        if not kept:  # earlier ones are on disk after a resume, and where the first was missed
            for updates, saved in kept_versions(self.context, policy, before=updates_of(number)):
                kept[version(epoch_of(number), updates)] = saved
        if self._is_wanted(kept, number):
            kept[number] = map_tree(np.copy, tree)
        while len(kept) > HISTORY:
            del kept[next_to_drop(list(kept))]
        return 1

    def _is_wanted(self, kept: Mapping[Version, Tree], number: Version) -> bool:
        """The first, then one in `keep_every` updates, and the first after a restart of the trainer."""
        if not kept:
            return True
        newest, every = next(reversed(kept.keys())), self.args.keep_every  # type: ignore[call-overload]
        return bool(epoch_of(number) != epoch_of(newest) or updates_of(number) // every > updates_of(newest) // every)

    # choices ------------------------------------------------------------------------------------------------------

    def _is_due(self, seat: _Seat) -> bool:
        if not self._kept[seat.policy]:
            return False
        if seat.version < 0:
            return True
        hold = self.args.hold
        met = seat.results > 0 or not seat.rule.needs_results or seat.played >= _PATIENCE * hold
        return seat.played >= hold and met

    def _choose(self, seat: _Seat) -> None:
        seat.chosen += 1
        kept = self._kept[seat.policy]
        versions = list(kept)
        rng = generator(self.context.graph.seed, "league", seat.policy, seat.match, seat.chosen)
        draw = rng.random()
        first = rng.random() < self.args.initial
        seat.version = versions[0] if first else seat.rule.choose(versions, draw)
        seat.weights, seat.played, seat.results = kept[seat.version], 0, 0
        seat.choices[seat.chosen] = seat.version
        seat.choices.pop(seat.chosen - _RECENT, None)
        seat.publish()

    # results ------------------------------------------------------------------------------------------------------

    def _count(self, match: str, tree: dict[str, Any]) -> None:
        rows = np.nonzero(tree["ended"])
        for seat in self._seats:
            if seat.match == match:
                seat.played += 1
                if len(rows[0]):
                    self._count_results(seat, tree, rows)

    def _count_results(self, seat: _Seat, tree: dict[str, Any], rows: tuple[Array, ...]) -> None:
        """Episodes that one version played from their first row to their last."""
        played_by, won = tree["version"][seat.policy][rows], self._won(seat, tree, rows)
        clear = played_by != SEVERAL
        for number in np.unique(played_by[clear]):
            choice = epoch_of(int(number))
            if choice not in seat.choices:
                continue
            results = won[played_by == number]
            seat.rule.result(seat.choices[choice], float(results.sum()), len(results))
            seat.results += len(results) if choice == seat.chosen else 0
        if number := int(clear.sum()):
            self.reading.count("past_episodes", number)
            self.reading.mean(f"beaten/{seat.policy}.past", float(won[clear].sum()), number)

    def _won(self, seat: _Seat, tree: dict[str, Any], rows: tuple[Array, ...]) -> Array:
        """1 where the learner beat this policy, 0.5 where neither won, 0 where it lost: as the env says, or by their returns."""
        stats = self.context.derived.env.stats
        declared = [f"win/{team}" for team in self.context.derived.policies[seat.match].teams]
        columns = [stats.index(name) for name in declared if name in stats]
        if columns:
            share: Array = tree["stats"][rows][:, columns].mean(1)
            return share
        won: Array = 0.5 + 0.5 * np.sign(tree["return"][seat.match][rows] - tree["return"][seat.policy][rows])
        return won

    # exact resume -------------------------------------------------------------------------------------------------

    def barrier(self, number: int) -> None:
        for end in self._episodes.values():
            for _ in end.discard("barrier"):
                self._credit(end)

    def state(self) -> Tree:
        state: dict[str, Any] = {"seen": np.array(list(self._seen.values())), "kept": {}, "seats": {}}
        for policy, kept in self._kept.items():
            if kept:
                state["kept"][policy] = {str(number): tree for number, tree in kept.items()}
        for number, seat in enumerate(self._seats):
            if seat.version >= 0:
                state["seats"][str(number)] = {
                    "numbers": np.array([seat.version, seat.chosen, seat.played, seat.results]),
                    "choices": np.array(list(seat.choices.items())),
                    "rule": seat.rule.state(),
                    "weights": seat.weights,
                }
        return state

    def restore(self, state: Tree) -> None:
        saved: Any = state
        self._seen = dict(zip(self._params, map(int, saved["seen"]), strict=True))
        for policy, kept in saved.get("kept", {}).items():
            self._kept[policy] = {number: kept[str(number)] for number in sorted(map(int, kept))}
        for number, one in saved.get("seats", {}).items():
            seat = self._seats[int(number)]
            seat.version, seat.chosen, seat.played, seat.results = map(int, one["numbers"])
            seat.choices = {int(choice): int(chosen) for choice, chosen in one["choices"]}
            seat.rule.restore(one["rule"])
            seat.weights = one["weights"]
            seat.publish()


def next_to_drop(versions: Sequence[Version]) -> Version:
    """The version to drop: the one whose neighbours are closest. The oldest and the newest stay."""
    return min(zip(versions, versions[1:], versions[2:], strict=False), key=lambda three: three[2] - three[0])[1]
