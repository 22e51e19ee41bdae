"""Actors: groups of envs; any group whose answers are there steps, rows are written in place."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from srl.api.slab import SlabShape, slab_spec
from srl.core.load import load, option
from srl.core.registry import REGISTRIES
from srl.core.spec import TreeSpec, zeros
from srl.core.text import count
from srl.core.tree import Tree
from srl.graph.spec import Graph
from srl.plan.specs import PolicyInfo
from srl.streams.base import End
from srl.streams.infer import InferClient
from srl.streams.sample import SampleProducer, Slab
from srl.workers.base import Context, Port, Worker
from srl.workers.group import Group
from srl.workers.resumable import Resumable


@dataclass(frozen=True, kw_only=True)
class ActorArgs:
    groups: int = option(1, "groups of envs that step by turns; 2 hide the latency of a remote policy", low=1)
    envs: int = option(1, "envs in each group", low=1)
    steps: int = option(128, "rows of a slab", low=1)
    stand_ins: Mapping[str, str] = option({}, "policy -> the policy that stands in for it here: a past opponent")


class ActorWorker(Resumable, Worker):
    """Steps envs with the actions of policies that it asks, and puts what happened."""

    ports = {"infer": Port("infer", "client"), "samples": Port("sample", "producer", optional=True)}
    Args = ActorArgs
    noun = "actor"
    args: ActorArgs

    def __init__(self, args: ActorArgs, ends: Mapping[str, End], context: Context) -> None:
        super().__init__(args, ends, context)
        acting = [args.stand_ins.get(name, name) for name in context.derived.players]
        infos = {name: context.derived.policies[name] for name in acting}
        policies = list(infos)
        self._asks = {name: cast(InferClient, _find(ends, "infer", name)) for name in policies}
        self._samples = {
            name: cast(SampleProducer, end) for name in policies if (end := _find(ends, "samples", name)) is not None
        }
        learners = [name for name in context.derived.players if name not in args.stand_ins]
        before = _envs_before(context)
        self._barrier = 0
        self._draining = self._warned = False
        self.groups = [
            Group(
                context.graph,
                context.derived,
                envs=args.envs,
                steps=args.steps,
                first_env=before + (context.index * args.groups + number) * args.envs,
                reading=self.reading,
                place=context.name,
                policies=infos,
                title=f"vs_past/{'+'.join(learners)}" if args.stand_ins else "episode",
                barrier=0 if context.inline else context.incarnation,  # inline, a resume goes on with the seeds there were
            )
            for number in range(args.groups)
        ]
        self._turns = [_Turn(number, group) for number, group in enumerate(self.groups)]
        for turn in self._turns:
            for name in policies:
                if name not in self._samples:
                    turn.private[name] = _private_slab(infos[name], args)
        for group in self.groups:
            group.reset()

    @classmethod
    def about(cls, args: ActorArgs) -> str:
        return f"{count(args.groups, 'group')} of {count(args.envs, 'env')}, {count(args.steps, 'step')} a slab"

    @classmethod
    def sizes(cls, args: ActorArgs, port: str, graph: Graph) -> Mapping[str, int]:
        if port.startswith("infer"):
            return {"groups": args.groups, "units": args.envs}
        return {"slots": args.groups + 1 + _ahead(graph)}

    @classmethod
    def declares(
        cls, args: ActorArgs, port: str, policies: Mapping[str, PolicyInfo], known: Mapping[str, TreeSpec]
    ) -> TreeSpec | None:
        if not port.startswith("samples"):
            return None
        info = policies[port_policy(port, policies)]
        shape = SlabShape(steps=args.steps, envs=args.envs, agents=info.spec.agents, memory_every=info.memory_every)
        return slab_spec(shape, info.spec, memory=info.memory, extra=info.extra, signals=info.signals)

    def poll(self) -> int:
        """Let every group that can move do one move."""
        done = 0
        for turn in self._turns:
            done += self._answered(turn) if turn.asked else self._open(turn)
        return done

    def drain(self) -> bool:
        """Open slabs are dropped; questions that are open are left to their answers."""
        self._draining = True
        for turn in self._turns:
            self._drop(turn, "stop")
        return True

    def barrier(self, number: int) -> None:
        self._barrier = number
        for turn in self._turns:
            self._drop(turn, "barrier")
        for end in self._samples.values():
            end.withdraw()

    def state(self) -> Tree:
        state: dict[str, Any] = {"barrier": np.array([self._barrier])}
        for turn in self._turns:
            saved = turn.group.save()
            if "env" not in saved:
                turn.group.renew(self._barrier)  # as a resumed run will, so that both go on alike
                saved = turn.group.save()
            state[f"group{turn.number}"] = saved
        return state

    def restore(self, state: Tree) -> None:
        assert isinstance(state, dict)
        self._barrier = int(state["barrier"][0])
        for turn in self._turns:
            turn.group.load(state[f"group{turn.number}"], self._barrier)

    def close(self) -> None:
        for group in self.groups:
            group.close()

    def _open(self, turn: _Turn) -> int:
        """Start a slab for every policy, when all that are recorded have a credit."""
        if self._draining:
            return 0
        self._warn(turn)
        for name, end in self._samples.items():
            if name not in turn.slabs:
                slab = end.alloc(turn.number)
                if slab is None:
                    return 0  # nobody asks for the next policy's credit before this one's: two actors never wait for each other
                turn.slabs[name] = slab
        turn.group.row = 0
        for name, recorder in turn.group.recorders.items():
            slab = turn.slab(name)
            recorder.open(slab.tree, slab.slot)
        self._ask(turn)
        return 1

    def _ask(self, turn: _Turn) -> None:
        group = turn.group
        for name, recorder in group.recorders.items():
            self._asks[name].post(turn.number, recorder.ask(group.row, group.tick), turn.slab(name).min_version)
        turn.asked = set(self._asks)

    def _answered(self, turn: _Turn) -> int:
        """Take the answers that have come; with all of them, step the envs or finish the slab."""
        group = turn.group
        for name in tuple(turn.asked):
            answer = self._asks[name].ready(turn.number)
            if answer is not None:
                group.recorders[name].answer(group.row, answer.tree, answer.version)
                turn.asked.discard(name)
        if turn.asked:
            return 0
        steps = self.args.steps
        if group.row < steps:
            before = time.perf_counter()
            group.step()
            self.reading.time("env step", time.perf_counter() - before)
            self.reading.count("env_steps", self.args.envs)
            self._ask(turn)
            return self.args.envs
        for recorder in group.recorders.values():
            recorder.finish()
        for name, slab in turn.slabs.items():
            self._samples[name].put(slab)
        turn.slabs.clear()
        group.row = 0
        return 1 + self._open(turn)

    def _warn(self, turn: _Turn) -> None:
        """Once: what the env does that is harmless here, but not as declared."""
        warnings = getattr(turn.group.env, "warnings", None)
        if warnings and not self._warned:
            self._warned = True
            self.context.log.warning(warnings[0])
            self.reading.maximum("env/outside_bounds", 1)

    def _drop(self, turn: _Turn, reason: str) -> None:
        for name, slab in turn.slabs.items():
            self._samples[name].discard(slab, reason)
        if turn.group.row > 0:
            turn.keep_row()
            turn.group.row = 0
        turn.slabs.clear()
        turn.asked = set()


class _Turn:
    """Where one group stands between two polls."""

    __slots__ = ("asked", "group", "number", "private", "slabs")

    def __init__(self, number: int, group: Group) -> None:
        self.number, self.group = number, group
        self.slabs: dict[str, Slab] = {}
        self.private: dict[str, Slab] = {}
        """Of policies whose rows nobody wants (frozen, scripted): always there."""
        self.asked: set[str] = set()

    def slab(self, policy: str) -> Slab:
        """The open slab of one policy."""
        return self.slabs.get(policy) or self.private[policy]

    def keep_row(self) -> None:
        """The slab is given up at its present row: the env goes on from there."""
        for recorder in self.group.recorders.values():
            recorder.keep(self.group.row)


def port_policy(port: str, policies: Mapping[str, Any]) -> str:
    """The policy of a port name: `samples:hider` is hider's, a bare `samples` the only one's."""
    return port.partition(":")[2] or next(iter(policies))


def _find(ends: Mapping[str, End], port: str, policy: str) -> End | None:
    return ends.get(f"{port}:{policy}") or ends.get(port)


def _envs_before(context: Context) -> int:
    """Of the actor nodes in front of this one: envs are numbered over the whole graph, so that no two have one seed."""
    total = 0
    for node in context.graph.nodes:
        if node.name == context.node.name:
            break
        kind = REGISTRIES["worker"].resolve(node.worker)
        if issubclass(kind, ActorWorker):
            args = load(kind.Args, node.args)
            total += node.count * args.groups * args.envs
    return total


def _private_slab(info: PolicyInfo, args: ActorArgs) -> Slab:
    shape = SlabShape(steps=args.steps, envs=args.envs, agents=info.spec.agents, memory_every=info.memory_every)
    tree = zeros(slab_spec(shape, info.spec, memory=info.memory, extra=info.extra, signals=info.signals))
    return Slab(tree=tree, slot=0, credit=-1, min_version=0)


def _ahead(graph: Graph) -> int:
    """How many batches a trainer lets its actors run ahead, at most: more slots than that are never in use."""
    return max((int(node.args.get("staleness", 0)) for node in graph.nodes if node.worker == "trainer"), default=1)
