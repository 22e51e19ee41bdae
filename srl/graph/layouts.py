"""Layouts: functions from an experiment, every `auto` decided, to a graph. `layout=file.py:function` names one of your own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from srl.config.experiment import Experiment
from srl.core.errors import UserError
from srl.core.learner import split_config
from srl.graph.builder import GraphBuilder
from srl.graph.learners import Chosen
from srl.graph.ranks import share
from srl.graph.spec import Node


@dataclass(frozen=True, kw_only=True, slots=True)
class Sizes:
    """The numbers that a layout works with."""

    envs: int
    steps: int
    workers: int
    groups: int
    staleness: int
    device: str
    entries: tuple[str, ...]
    """All policies."""
    learning: tuple[str, ...]
    """Those that are trained."""
    replayed: tuple[str, ...] = ()
    """Those whose batches a replay draws."""
    learners: Mapping[str, Chosen] = field(default_factory=dict)
    """How the trainer of each policy that is trained computes."""
    ranks: Mapping[str, int] = field(default_factory=dict)
    """Trainers of each policy that is trained, which train it together."""

    @property
    def per_group(self) -> int:
        """Envs of one group."""
        return self.envs // (self.workers * self.groups)

    @property
    def slabs(self) -> int:
        """Slabs of one batch: every group gives one."""
        return self.workers * self.groups


def inline(experiment: Experiment, sizes: Sizes) -> GraphBuilder:
    """a process for each trainer, which acts and learns by turns: synchronous, deterministic"""
    layout = _Layout(experiment, sizes)
    first, *others = sizes.learning
    home, ranks = _name("trainer", first, sizes.learning), sizes.ranks.get(first, 1)
    layout.actors(inside=home)
    layout.policies(ranks, inside=home)
    layout.trainers(first)
    layout.trainers(*others, inside=home)
    layout.evaluator(**({"inside": home} if ranks == 1 else {}))  # else all trainers would wait for it
    return layout.graph


def impala(experiment: Experiment, sizes: Sizes) -> GraphBuilder:
    """the policy acts inside each actor; the trainer runs beside them"""
    layout = _Layout(experiment, sizes)
    layout.policies(sizes.workers, inside=layout.actors())
    layout.trainers(*sizes.learning)
    layout.evaluator()
    return layout.graph


def offpolicy(experiment: Experiment, sizes: Sizes) -> GraphBuilder:
    """the policy acts inside each actor; a replay inside the trainer keeps their rows"""
    _require_replay("offpolicy", experiment, sizes)
    return impala(experiment, sizes)


def spreeze(experiment: Experiment, sizes: Sizes) -> GraphBuilder:
    """nobody waits: actors, a replay, and a learner split over two devices, each in a process of its own"""
    _require_replay("spreeze", experiment, sizes)
    layout = _Layout(experiment, sizes, replay_inside=False)
    layout.policies(sizes.workers, inside=layout.actors())
    layout.trainers(*sizes.learning)
    layout.evaluator()
    return layout.graph


def seed(experiment: Experiment, sizes: Sizes) -> GraphBuilder:
    """one policy worker answers all actors, on the trainer's device"""
    return _separate(experiment, sizes, count=1, device=sizes.device)


def decoupled(experiment: Experiment, sizes: Sizes) -> GraphBuilder:
    """policy workers in processes of their own, one for two actors, answer them"""
    return _separate(experiment, sizes, count=max(1, sizes.workers // 2))


REMOTE = (seed, decoupled)
"""Other processes than the actors' infer: two groups hide the latency."""
TOGETHER = (inline,)
"""Actors and policies are in the trainer's process: synchronous, one actor for each trainer."""
APART = (spreeze,)
"""Nobody waits for anybody, actor and critics neither."""


def _require_replay(layout: str, experiment: Experiment, sizes: Sizes) -> None:
    if not sizes.replayed:
        raise UserError(
            f"layout {layout} requires an algorithm with a replay",
            ("found", ", ".join(str(entry.algorithm.use) for entry in experiment.entries().values() if entry.algorithm)),
            ("try", "layout=auto"),
            code="E10",
            path=("layout",),
        )


def _separate(experiment: Experiment, sizes: Sizes, **settings: Any) -> GraphBuilder:
    layout = _Layout(experiment, sizes)
    layout.actors()
    layout.policies(**settings)
    layout.trainers(*sizes.learning)
    layout.evaluator()
    return layout.graph


class _Layout:
    """The parts that layouts are made of."""

    def __init__(self, experiment: Experiment, sizes: Sizes, *, replay_inside: bool = True) -> None:
        self.graph = GraphBuilder()
        self._replay_inside = replay_inside
        self._experiment, self._sizes = experiment, sizes
        self._asks = [self.graph.infer(name) for name in sizes.entries]
        self._samples, self._params = {}, {}
        for name in sizes.learning:
            self._samples[name], self._params[name] = self.graph.sample(name), self.graph.param(name)

    def actors(self, **settings: Any) -> Node:
        sizes = self._sizes
        return self.graph.node(
            "actor",
            infer=self._asks,
            samples=list(self._samples.values()),
            groups=sizes.groups,
            envs=sizes.per_group,
            steps=sizes.steps,
            **{"count": sizes.workers, **settings},
        )

    def policies(self, count: int, **settings: Any) -> None:
        sizes = self._sizes
        together = count == sizes.workers and sizes.groups == 1
        most = sizes.per_group * sizes.groups if together else sizes.envs
        for name, asks in zip(sizes.entries, self._asks, strict=True):
            params: dict[str, Any] = {"params": self._params[name]} if name in self._params else {}
            self.graph.node(
                "policy",
                _name("policy", name, sizes.entries),
                policy=name,
                asks=asks,
                max_batch=most,
                **params,
                **{"count": count, **settings},
            )

    def trainers(self, *names: str, **settings: Any) -> None:
        """With their replays inside them: these come first, so that inline a batch is drawn right before it trains."""
        for name in names:
            title, ranks = _name("trainer", name, self._sizes.learning), self._sizes.ranks.get(name, 1)
            home = settings.get("inside", title) if self._replay_inside else None
            chosen = self._sizes.learners[name]
            split = split_config(chosen.learner)
            drawn = self._replays(name, home, ranks) if name in self._sizes.replayed else self._slabs(name)
            if chosen.learner.use != "single" or chosen.learner.args:
                drawn["learner"] = chosen.learner.to_plain()
            self.graph.node(
                "trainer",
                title,
                policy=name,
                params=self._params[name],
                device=self._sizes.device if split is None else split.devices[0],
                **drawn,
                threads=chosen.threads,
                count=ranks,
                **settings,
            )

    def _slabs(self, name: str) -> dict[str, Any]:
        """Arguments of a trainer on slabs."""
        sizes, opponents = self._sizes, self._experiment.opponents
        slabs = sizes.slabs + (opponents.groups if opponents else 0)
        return {"samples": self._samples[name], "slabs": slabs, "staleness": sizes.staleness}

    def _replays(self, name: str, home: str | None, ranks: int) -> dict[str, Any]:
        """The replays of one policy, and the arguments of its trainer. Each of several trainers has its own."""
        sizes, replay = self._sizes, self._experiment.replay
        assert replay is not None
        batches, kind = self.graph.sample(name, f"batches.{name}"), _name("replay", name, sizes.replayed)
        ends = [""] if replay.shards == 1 else [f".{shard}" for shard in range(replay.shards)]
        feedback = {f"{kind}{end}": self.graph.sample(name, f"feedback.{name}{end}") for end in ends}
        for title in feedback:
            self.graph.node(
                "replay",
                title,
                inside=home,
                policy=name,
                source=self._samples[name],
                sink=batches,
                feedback=feedback[title],
                count=ranks,
                size=-(-replay.size // replay.shards),
                warmup=-(-int(replay.warmup) // replay.shards),
                ahead=-(-int(replay.ahead) // replay.shards),
                batch=share(self._experiment, name, replay.batch),
                updates_per_step=replay.updates_per_step,
                alpha=replay.alpha,
                beta=replay.beta.to_plain(),
                history=list(replay.history),
                data=replay.data,
                share=replay.share,
            )
        joined = {f"{name}/{title}": stream for title, stream in feedback.items()}
        return {"samples": batches, "slabs": 0, "feedback": joined if replay.shards > 1 else feedback[kind]}

    def evaluator(self, **settings: Any) -> None:
        """The evaluator, which is restarted if it dies, and the viewer, without which a run continues. Each only if wanted."""
        params, experiment = list(self._params.values()), self._experiment
        if experiment.evaluation is not None:
            alone = {} if settings else {"on_failure": "restart"}
            self.graph.node("evaluator", params=params, **vars(experiment.evaluation), **alone, **settings)
        if experiment.viewer is not None:
            alone = {} if settings else {"on_failure": "leave"}
            self.graph.node("viewer", params=params, **vars(experiment.viewer), **alone, **settings)


def _name(kind: str, policy: str, policies: Sequence[str]) -> str:
    return kind if len(policies) == 1 else f"{kind}.{policy}"
