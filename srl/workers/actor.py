"""Actors step envs and record slabs of their trajectories: T rows of E envs, `[T+1, E, A, ...]`. The life of a slab:

    slabs = {policy: alloc()}            one for each policy that learns, once its trainer has given a credit
    group.open(slabs)                    row 0 is the row where the slab before ended
    for row in 0..T:
        post(group.questions())          rows of all envs, to the policy workers; row T only where its value is recorded
        group.answer(policy, ready())    actions, written in place
        group.step() if row < T          the env writes the rewards of this row and the observations of the next
    put(group.finish())                  to the trainers

Nothing waits: each poll moves every group one step further, if its answers are there.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

import numpy as np

from srl.core.load import option
from srl.core.spec import TreeSpec
from srl.core.tree import Tree
from srl.graph.spec import Graph
from srl.plan.specs import Derived
from srl.streams.infer import InferClient
from srl.streams.peers import End
from srl.streams.sample import SampleProducer, Slab
from srl.workers.base import Context, Port, Resumable, Worker
from srl.workers.episodes import episodes_spec
from srl.workers.group import EPISODES, Group


@dataclass(frozen=True, kw_only=True)
class ActorArgs:
    groups: int = option(1, "groups of envs that step in turn; 2 hide the latency of a remote policy", low=1)
    envs: int = option(1, "envs in each group", low=1)
    steps: int = option(128, "steps per slab", low=1)
    title: str = option("episode", "prefix of its episode metrics")


class ActorWorker(Resumable, Worker):
    """Steps envs with the actions of policies, and sends slabs."""

    ports = {
        "infer": Port("infer", "client"),
        "samples": Port("sample", "producer", optional=True),
        "episodes": Port("sample", "producer", optional=True),
    }
    Args = ActorArgs
    noun = "actor"
    advice = ("more actors", "a faster env or a vectorised one")
    args: ActorArgs

    def __init__(self, args: ActorArgs, ends: Mapping[str, End], context: Context) -> None:
        super().__init__(args, ends, context)
        policies = context.derived.policies
        self._asks = {name: cast(InferClient, _find(ends, "infer", name)) for name in policies}
        found = {name: _find(ends, "samples", name) for name in policies}
        found[EPISODES] = next((end for port, end in ends.items() if port.partition(":")[0] == "episodes"), None)
        self._samples = {name: cast(SampleProducer, end) for name, end in found.items() if end is not None}
        first_env = _envs_before(context) + context.index * args.groups * args.envs
        self._barrier = 0
        self._draining = self._warned = False
        self.groups = [
            Group(
                context.graph,
                context.derived,
                envs=args.envs,
                steps=args.steps,
                first_env=first_env + number * args.envs,
                reading=self.reading,
                worker=context.name,
                title=args.title,
                log=EPISODES in self._samples,
                barrier=0 if context.inline else context.incarnation,  # inline, a resume keeps the seeds
            )
            for number in range(args.groups)
        ]
        self._reserved: list[dict[str, Slab]] = [{} for _ in self.groups]
        """Slabs of each group that wait for those of its other policies."""
        for group in self.groups:
            group.reset()

    @classmethod
    def about(cls, args: ActorArgs) -> str:
        from srl.core.text import count  # for plans only

        return f"{count(args.groups, 'group')} of {count(args.envs, 'env')}, slabs of {count(args.steps, 'step')}"

    @classmethod
    def sizes(cls, args: ActorArgs, port: str, graph: Graph) -> Mapping[str, int]:
        if port.startswith("infer"):
            return {"groups": args.groups, "units": args.envs}
        # a trainer lets its actors run ahead by so many batches at most: more slots than that are never in use
        ahead = max((int(node.args.get("staleness", 0)) for node in graph.nodes if node.worker == "trainer"), default=1)
        return {"slots": args.groups + 1 + ahead}

    @classmethod
    def declares(cls, args: ActorArgs, port: str, derived: Derived, known: Mapping[str, TreeSpec]) -> TreeSpec | None:
        if port.startswith("episodes"):
            return episodes_spec(args.steps, args.envs, derived.policies, len(derived.env.stats))
        if not port.startswith("samples"):
            return None
        return derived.policies[port.partition(":")[2] or next(iter(derived.policies))].slab(args.steps, args.envs)

    def poll(self) -> int:
        """Move every group that can move one step further."""
        done = 0
        for number, group in enumerate(self.groups):
            done += self._move(number, group) if group.waiting else self._open(number, group)
        return done

    def drain(self) -> bool:
        """Open slabs are dropped; open questions are left unanswered."""
        self._draining = True
        self._drop("stop")
        return True

    def close(self) -> None:
        for group in self.groups:
            group.close()

    # the life of a slab -------------------------------------------------------------------------------------------

    def _open(self, number: int, group: Group) -> int:
        """Start a slab, once one was allocated for every recorded policy."""
        if self._draining:
            return 0
        self._warn(group)
        slabs = self._reserved[number]
        for name, end in self._samples.items():
            if name not in slabs:
                if (slab := end.alloc(number)) is None:
                    return 0  # the next policy's slab is asked for after this one, so that two actors never wait for each other
                slabs[name] = slab
        group.open(slabs)
        slabs.clear()
        self._ask(number, group)
        return 1

    def _ask(self, number: int, group: Group) -> None:
        for policy, rows, min_version in group.questions():
            self._asks[policy].post(number, rows, min_version)

    def _move(self, number: int, group: Group) -> int:
        """Take the answers that have arrived; with all of them, step the envs or finish the slab."""
        for policy in tuple(group.waiting):
            if (answer := self._asks[policy].ready(number)) is not None:
                group.answer(policy, answer.tree, answer.version)
        if group.waiting:
            return 0
        if group.row < self.args.steps:
            before = time.perf_counter()
            group.step()
            self.reading.time("env step", time.perf_counter() - before)
            self.reading.count("env_steps", self.args.envs)
            self._ask(number, group)
            if group.waiting:
                return self.args.envs
        for policy, slab in group.finish().items():
            self._samples[policy].put(slab)
        return 1 + self._open(number, group)

    def _drop(self, reason: str) -> None:
        for reserved, group in zip(self._reserved, self.groups, strict=True):
            for policy, slab in {**reserved, **group.abandon()}.items():
                self._samples[policy].discard(slab, reason)
            reserved.clear()

    def _warn(self, group: Group) -> None:
        """Log once if the env does something harmless that it did not declare."""
        if (warnings := getattr(group.env, "warnings", None)) and not self._warned:
            self._warned = True
            self.context.log.warning(warnings[0])
            self.reading.maximum("env/outside_bounds", 1)

    # exact resume -------------------------------------------------------------------------------------------------

    def barrier(self, number: int) -> None:
        self._barrier = number
        self._drop("barrier")
        for end in self._samples.values():
            end.withdraw()

    def state(self) -> Tree:
        from srl.workers.snapshots import snapshot  # not in the processes of local runs

        groups = {f"group{number}": snapshot(group, self._barrier) for number, group in enumerate(self.groups)}
        return {"barrier": np.array([self._barrier]), **groups}

    def restore(self, state: Tree) -> None:
        from srl.workers.snapshots import restore

        assert isinstance(state, dict)
        self._barrier = int(state["barrier"][0])
        for number, group in enumerate(self.groups):
            restore(group, state[f"group{number}"], self._barrier)


def _find(ends: Mapping[str, End], port: str, policy: str) -> End | None:
    return ends.get(f"{port}:{policy}") or ends.get(port)


def _envs_before(context: Context) -> int:
    """Of the actor nodes in front of this one: envs are numbered over the whole graph, so that no two have one seed."""
    total = 0
    for node in context.graph.nodes:
        if node.name == context.node.name:
            break
        if issubclass(node.kind, ActorWorker):
            total += node.count * node.loaded.groups * node.loaded.envs
    return total
