"""Policy workers: answer what has queued, with the newest weights. They keep nothing between questions."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from srl.core.load import option
from srl.core.seeds import generator
from srl.core.tree import Tree
from srl.graph.weights import ready_policy
from srl.streams.base import End, InferServer, ParamSubscriber, updates_of
from srl.workers.answers import answer
from srl.workers.base import Context, Port, Worker

NEWEST = (1 << 62) - 1
"""Newer than every version."""


@dataclass(frozen=True, kw_only=True)
class PolicyArgs:
    policy: str = "main"
    max_batch: int = option(1024, "envs answered at once, at most", low=1)
    min_batch: int = option(1, "envs worth waiting for", low=1)
    max_wait: float = option(0.0, "seconds that the first question waits for `min_batch`", low=0)
    greedy: bool = False
    choose: str = option(
        "latest", "which version answers: latest, latest-<n> (kept ones before it), or uniform over the kept ones"
    )
    hold: int = option(1, "questions that a chosen past version answers before another is chosen", low=1)


class PolicyWorker(Worker):
    """Stateless: any policy worker may answer any question."""

    ports = {"asks": Port("infer", "server"), "params": Port("param", "subscriber", optional=True)}
    Args = PolicyArgs
    args: PolicyArgs

    def __init__(self, args: PolicyArgs, ends: Mapping[str, End], context: Context) -> None:
        super().__init__(args, ends, context)
        self._asks = cast(InferServer, ends["asks"])
        self._params = cast("ParamSubscriber | None", ends.get("params"))
        self._info = context.derived.policies[args.policy]
        self.policy = ready_policy(context.graph, self._info)
        self.version = -1 if self._params is not None else 0
        self._selector = args.choose
        self._left = self._chosen = 0

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
        asked.reply(answer(self.policy, self._info, rows, greedy=self.args.greedy), self.version)
        units = sum(asked.sizes)
        self._left -= len(asked.sizes)
        self.reading.count("time/infer", time.perf_counter() - before)
        self.reading.count("infer/rows", units * self._info.spec.agents)
        self.reading.add("infer/batch", units)
        return units

    def wake_at(self) -> float | None:
        """When the oldest question has waited long enough."""
        if self.args.min_batch <= 1:
            return None
        units, waited = self._asks.waiting()
        return time.monotonic() + max(0.0, self.args.max_wait - waited) if units else None

    def waits(self) -> str:
        return "the first weights" if self.version < 0 else super().waits()

    def _adopt(self, params: ParamSubscriber) -> None:
        """The newest weights; or, when the present ones have answered long enough, a past version."""
        if self.args.choose == "latest" or self.version < 0:
            newer = params.latest(self.version)
        elif self._left > 0:
            return
        else:
            newer = params.fetch(self._selector)
        if newer is not None:
            self._load(*newer)
            self._choose()

    def _choose(self) -> None:
        self._left = self.args.hold
        self._chosen += 1
        if self.args.choose == "uniform":
            draw = generator(self.context.graph.seed, "opponent", self.args.policy, self.context.index, self._chosen).random()
            self._selector = f"uniform:{draw:.6f}"

    def _load(self, version: int, tree: Tree) -> None:
        assert isinstance(tree, dict)
        self.policy.load(tree["params"], version)
        self.version = version
        self.reading.totals["version"] = updates_of(version)

    def _worth_waiting(self) -> bool:
        if self.args.min_batch <= 1:
            return False
        units, waited = self._asks.waiting()
        return 0 < units < self.args.min_batch and waited < self.args.max_wait
