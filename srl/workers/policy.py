"""Policy workers: answer what has queued, with the newest weights. Between questions only past opponents keep something."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from srl.core.errors import SettingError
from srl.core.load import option
from srl.core.seeds import generator
from srl.core.text import count
from srl.core.tree import Array, Tree
from srl.core.types import Waiting
from srl.plan.acting import ready_policy
from srl.streams.base import End, updates_of
from srl.streams.infer import InferServer
from srl.streams.param import ParamSubscriber
from srl.workers.acting import answer
from srl.workers.base import Context, Port, Worker
from srl.workers.outcomes import NOBODY, WinRates
from srl.workers.resumable import Resumable

NEWEST = (1 << 62) - 1
"""Newer than every version."""
_PATIENCE = 15
"""How many times `hold` a version stays, at most, while no episode against it ends."""


@dataclass(frozen=True, kw_only=True)
class PolicyArgs:
    policy: str = "main"
    max_batch: int = option(1024, "envs answered at once, at most", low=1)
    min_batch: int = option(1, "envs worth waiting for", low=1)
    max_wait: float = option(0.0, "seconds that the first question waits for `min_batch`", low=0)
    greedy: bool = False
    choose: str = option(
        "latest",
        "which version answers: latest, latest-<n> (kept ones before it), uniform over the kept ones, or win_rate: those that"
        " the learner beats least often",
    )
    initial: float = option(0.0, "share of these choices that fall on the oldest kept version instead", low=0, high=1)
    power: float = option(2.0, "win_rate: a version is chosen by (1 - how often it is beaten) to this power", low=0)
    hold: int = option(1, "questions that a chosen past version answers before another is chosen", low=1)

    def __post_init__(self) -> None:
        if self.min_batch > 1 and not self.max_wait:
            raise SettingError("min_batch", "has no effect while max_wait is 0", ("try", "max_wait=0.001, or min_batch=1"))


class PolicyWorker(Resumable, Worker):
    """Any policy worker may answer any question; only the choice of past versions has a state."""

    ports = {"asks": Port("infer", "server"), "params": Port("param", "subscriber", optional=True)}
    Args = PolicyArgs
    noun = "policy worker"
    args: PolicyArgs

    def __init__(self, args: PolicyArgs, ends: Mapping[str, End], context: Context) -> None:
        super().__init__(args, ends, context)
        self._asks = cast(InferServer, ends["asks"])
        self._params = cast("ParamSubscriber | None", ends.get("params"))
        self._info = context.derived.policies[args.policy]
        self.policy = ready_policy(self._info, context.graph.policies[args.policy], context.node.device)
        self.version = -1 if self._params is not None else 0
        self._weights: Tree = {}
        """Of the version that answers."""
        self._selector = ""
        self._left = self._chosen = self._results = 0
        self._rates = WinRates(args.power)

    @classmethod
    def about(cls, args: PolicyArgs) -> str:
        return f"up to {count(args.max_batch, 'env')} at once"

    def poll(self) -> int:
        """Adopt newer weights, then answer one batch of questions."""
        if self._params is not None:
            self._adopt(self._params)
        if self.version < 0 or self._worth_waiting():
            return 0
        # a past opponent is older than any row may ask for: that is its purpose
        asked = self._asks.take(self.args.max_batch, self.version if self.args.choose == "latest" else NEWEST)
        if asked is None:
            return 0
        before = time.perf_counter()
        rows = cast("dict[str, Any]", asked.rows)
        if self._info.source is not None:
            self._learn_how_it_went(rows["faced"], rows["won"])
        asked.reply(answer(self.policy, self._info, rows, greedy=self.args.greedy), self.version)
        units = sum(asked.sizes)
        self._left -= len(asked.sizes)
        self.reading.time("inference", time.perf_counter() - before)
        self.reading.count("infer/rows", units * self._info.spec.agents)
        self.reading.mean("infer/batch", units)
        return units

    def barrier(self, number: int) -> None:
        """Nobody waits for the answers any more, and a run that goes on from here has no such questions."""
        while self._asks.take(1, NEWEST) is not None:
            pass

    def state(self) -> Tree:
        """The version that was chosen plays on, and the next is chosen from what is known of them."""
        if self.args.choose == "latest" or self.version < 0:
            return {}
        choice = np.array([self.version, self._left, self._chosen, self._results])
        return {"choice": choice, "rates": self._rates.save(), "weights": self._weights}

    def restore(self, state: Tree) -> None:
        assert isinstance(state, dict)
        self._load(int(state["choice"][0]), state["weights"])
        self._left, self._chosen, self._results = map(int, state["choice"][1:])
        self._rates.load(state["rates"])

    def wake_at(self) -> float | None:
        """When the oldest question has waited long enough."""
        if self.args.min_batch <= 1:
            return None
        units, waited = self._asks.waiting()
        return time.monotonic() + max(0.0, self.args.max_wait - waited) if units else None

    def waits(self) -> tuple[Waiting, ...]:
        if self.version < 0 and self._params is not None:
            return (Waiting("parameters", self._params.workers),)
        if self._worth_waiting():
            return (Waiting("questions", self._asks.workers),)
        return super().waits()

    def _adopt(self, params: ParamSubscriber) -> None:
        """The newest weights; or, when the present ones have answered long enough, a past version."""
        if self.args.choose == "latest" or self.version < 0:
            newer = params.latest(self.version)
        elif self._left > 0 or not self._has_met():
            return
        else:
            newer = self._fetch(params)
        if newer is not None:
            version, tree = newer
            assert isinstance(tree, dict)
            self._load(version, tree["params"])
            self._left, self._results, self._selector = self.args.hold, 0, ""

    def _has_met(self) -> bool:
        """By win rates, a version stays until an episode against it has ended, if they end at all."""
        return self.args.choose != "win_rate" or self._results > 0 or self._left <= -_PATIENCE * self.args.hold

    def _fetch(self, params: ParamSubscriber) -> tuple[int, Tree] | None:
        """The version that is wanted next, when it has come; one that is kept no longer is chosen anew."""
        if not self._selector or (self.args.choose == "win_rate" and int(self._selector[1:]) not in params.kept):
            self._selector = self._choose(params)
        return params.fetch(self._selector) if self._selector else None

    def _choose(self, params: ParamSubscriber) -> str:
        """A selector; empty while nothing is kept."""
        choose, kept = self.args.choose, params.kept
        if choose == "win_rate" and not kept:
            return ""
        self._chosen += 1
        rng = generator(self.context.graph.seed, "opponent", self.args.policy, self.context.index, self._chosen)
        draw = rng.random()
        if kept and rng.random() < self.args.initial:
            return f"={kept[0]}"
        if choose == "uniform":
            return f"uniform:{draw:.6f}"
        return f"={self._rates.choose(kept, draw)}" if choose == "win_rate" else choose

    def _learn_how_it_went(self, faced: Array, won: Array) -> None:
        """`[envs]`: the versions that episodes were played against, and how they ended."""
        known = faced != NOBODY
        if not known.any():
            return
        for version in np.unique(faced[known]):
            results = won[faced == version]
            self._rates.add(int(version), float(results.sum()), len(results))
            self._results += len(results) if version == self.version else 0
        self.reading.count("past_episodes", int(known.sum()))
        self.reading.mean(f"beaten/{self.args.policy}", float(won[known].sum()), int(known.sum()))

    def _load(self, version: int, weights: Tree) -> None:
        self.policy.load(weights, version)
        self.version, self._weights = version, weights
        self.reading.maximum("version", updates_of(version))

    def _worth_waiting(self) -> bool:
        if self.args.min_batch <= 1:
            return False
        units, waited = self._asks.waiting()
        return 0 < units < self.args.min_batch and waited < self.args.max_wait
