"""Policy workers answer queued questions with the newest weights. They keep no state between questions."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from srl.core.errors import SettingError
from srl.core.load import option
from srl.core.types import Waiting
from srl.graph.spec import Graph
from srl.plan.acting import answer, ready_policy
from srl.streams.base import updates_of
from srl.streams.infer import InferServer
from srl.streams.param import ParamSubscriber
from srl.streams.peers import End
from srl.workers.base import Context, Port, Resumable, Worker

ANY = (1 << 62) - 1
"""Newer than every version."""


@dataclass(frozen=True, kw_only=True)
class PolicyArgs:
    policy: str = "main"
    max_batch: int = option(1024, "maximum number of envs answered at once", low=1)
    min_batch: int = option(1, "number of envs to wait for before answering", low=1)
    max_wait: float = option(0.0, "maximum seconds to wait for `min_batch`", low=0)
    greedy: bool = False

    def __post_init__(self) -> None:
        if self.min_batch > 1 and not self.max_wait:
            raise SettingError("min_batch", "has no effect while max_wait is 0", ("try", "max_wait=0.001, or min_batch=1"))


class PolicyWorker(Resumable, Worker):
    """Any worker of a policy may answer any of its questions."""

    ports = {"asks": Port("infer", "server"), "params": Port("param", "subscriber", optional=True)}
    Args = PolicyArgs
    noun = "policy worker"
    advice = ("more policy workers or a larger max_batch", "a smaller network")
    args: PolicyArgs

    def __init__(self, args: PolicyArgs, ends: Mapping[str, End], context: Context) -> None:
        super().__init__(args, ends, context)
        self._asks = cast(InferServer, ends["asks"])
        self._params = cast("ParamSubscriber | None", ends.get("params"))
        self._info = context.derived.policies[args.policy]
        self.policy = ready_policy(self._info, context.graph.policies[args.policy], context.node.device)
        self.version = -1 if self._params is not None else 0

    @classmethod
    def sizes(cls, args: PolicyArgs, port: str, graph: Graph) -> Mapping[str, int]:
        return {"quiet": 1} if port == "params" else {}  # it looks when it is asked

    @classmethod
    def about(cls, args: PolicyArgs) -> str:
        from srl.core.text import count  # for plans only

        return f"batches of up to {count(args.max_batch, 'env')}"

    def poll(self) -> int:
        """Adopt newer weights if anybody asks, then answer one batch of questions."""
        params = self._params if self._asks.queued or self.version < 0 else None
        if params is not None:
            self._adopt(params)
        asked = self._asks.take(self.args.max_batch, self.version) if self.version >= 0 and not self._worth_waiting() else None
        if asked is None:
            if params is not None:
                params.wake_for(self.version)
            return 0
        before = time.perf_counter()
        rows: Any = asked.rows
        asked.reply(answer(self.policy, self._info, rows, greedy=self.args.greedy), self.version)
        units = sum(asked.sizes)
        self.reading.time("inference", time.perf_counter() - before)
        self.reading.count("infer/rows", units * self._info.spec.agents)
        self.reading.mean("infer/batch", units)
        return units

    def barrier(self, number: int) -> None:
        """Drop the questions, whose clients have abandoned their slabs."""
        while self._asks.take(1, ANY) is not None:
            pass

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
        """The newest weights, if there are newer ones."""
        if (newer := params.latest(self.version)) is not None:
            self.version, tree = cast("tuple[int, Any]", newer)
            self.policy.load(tree["params"], self.version)
            self.reading.maximum("version", updates_of(self.version))

    def _worth_waiting(self) -> bool:
        units, waited = self._asks.waiting() if self.args.min_batch > 1 else (0, 0.0)
        return 0 < units < self.args.min_batch and waited < self.args.max_wait
