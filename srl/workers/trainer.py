"""Trainers: take a batch from the source, give it to the learner, publish, checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from time import monotonic, perf_counter
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from srl.api.policy import NoConfig
from srl.api.slab import Replayed
from srl.core.errors import OthersLost, RunError, SettingError, UserError
from srl.core.learner import check_learner, split_config
from srl.core.load import load, option
from srl.core.readings import TRAIN
from srl.core.registry import REGISTRIES
from srl.core.spec import Leaf, TreeSpec, lead
from srl.core.text import count
from srl.core.tree import Tree
from srl.core.types import Component, Waiting
from srl.graph.spec import Graph, Node
from srl.learners.base import Learner
from srl.plan.specs import Derived
from srl.store.checkpoint import using
from srl.streams.base import version
from srl.streams.param import ParamPublisher
from srl.streams.peers import End
from srl.streams.sample import SampleConsumer, SampleProducer
from srl.workers.base import Context, Port, Resumable, Worker
from srl.workers.batches import BatchSource, OnPolicy, Rows
from srl.workers.checkpoints import Checkpoints
from srl.workers.drawn import Drawn
from srl.workers.lag import Lag
from srl.workers.task import Progress, check_finite_weights, device_of, explained, task_of

if TYPE_CHECKING:  # torch: a trainer is looked at where nothing is learned
    from srl.learners.ranks import Agreement

GRACE = 5.0
"""Seconds in which the controller reacts to the loss of another trainer, before this one fails too."""
REPORTED = 100
"""Updates on batches of a replay between two reports of an inline run."""


@dataclass(frozen=True, kw_only=True)
class TrainerArgs:
    policy: str = "main"
    slabs: int = option(1, "slabs in a batch, of all trainers together; 0: whole batches, from a replay", low=0)
    staleness: int = option(0, "maximum age of row 0 of a slab, in updates; 0: strictly on-policy", low=0)
    publish_every: int = option(1, "updates between publications", low=1)
    learner: Component = option(Component("single"), "runs the algorithm on its devices: a name, or my_pkg.mod:Learner")

    def __post_init__(self) -> None:
        if self.slabs and self.publish_every > self.staleness + 1:
            raise SettingError(
                "publish_every",
                f"must be at most staleness + 1 = {self.staleness + 1}, not {self.publish_every}",
                ("because", "credits would wait for a version that is never published"),
            )


def knows_ranks(args: TrainerArgs) -> bool:
    """Several trainers with this learner may train one policy together."""
    return bool(getattr(REGISTRIES["learner"].resolve(args.learner.use), "knows_ranks", False))


class TrainerWorker(Resumable, Worker):
    """Trains one policy: takes batches from a source and passes them to a learner.

    Several train together, each on its own part of the batch, and agree before every update. Worker 0 publishes and saves.
    """

    ports = {
        "samples": Port("sample", "consumer", divided=True),
        "params": Port("param", "publisher", first=True),
        "feedback": Port("sample", "producer", optional=True),
    }
    Args = TrainerArgs
    writes = True
    nice = 0
    noun = "trainer"
    advice = ("more threads for the trainer", "fewer epochs or larger minibatches")
    slow = True
    gang = True
    args: TrainerArgs

    def __init__(self, args: TrainerArgs, ends: Mapping[str, End], context: Context) -> None:
        super().__init__(args, ends, context)
        self._epoch = 0 if context.inline else context.incarnation  # inline, slabs of an earlier process are none
        self.updates = 0
        self.source = self._source()
        kind = REGISTRIES["learner"].resolve(args.learner.use)
        settings = load(getattr(kind, "Config", NoConfig), args.learner.args, path=("workers", context.node.name, "learner"))
        self._agreement = self._meet() if context.node.count > 1 else None
        ranks = self._agreement.ranks if self._agreement is not None else None
        self.learner: Learner = kind(task_of(context, args.policy, max(self._slabs, 1), self._between, ranks), settings)
        self._params = cast("ParamPublisher | None", ends.get("params"))
        self._progress = Progress(context.graph.stop)
        self._checkpoints = Checkpoints(context, args.policy)
        self._beside_others = len(context.graph.learning) > 1
        """Other policies learn in this run: metrics carry the name of this one."""
        self._lag = Lag(self._epoch)
        self._draining = False
        self._barrier_due = False
        self._rows: Rows | None = None
        """The batch that the others have not agreed to train yet."""
        self._over = False
        """The trainers have agreed to make no further update."""
        self._alone: tuple[OthersLost, float] | None = None
        """Why another trainer cannot be reached, and when this one fails because of it."""
        saved = self._checkpoints.start()
        if saved is not None:
            with using(saved.path):
                self._restore(saved.groups, saved.state)
        elif self._is_first:
            self._checkpoints.write_initial(self.learner.params())
        self._publish()
        if saved is not None and context.inline:
            self._request()  # as after a barrier: before anybody asks

    @classmethod
    def about(cls, args: TrainerArgs) -> str:
        split = split_config(args.learner)
        runs = f"; {split.runs}" if split is not None else ""
        if not args.slabs:
            return f"batches drawn by a replay{runs}"
        return f"batches of {count(args.slabs, 'slab')}, staleness at most {args.staleness}{runs}"

    @classmethod
    def sizes(cls, args: TrainerArgs, port: str, graph: Graph) -> Mapping[str, int]:
        return {"slots": 2} if port.startswith("feedback") else {}

    @classmethod
    def declares(cls, args: TrainerArgs, port: str, derived: Derived, known: Mapping[str, TreeSpec]) -> TreeSpec | None:
        """What its algorithm hands back of the windows in a batch."""
        if not port.startswith("feedback") or "samples" not in known:
            return None
        batch = cast("dict[str, Leaf]", known["samples"])["ids"].shape
        info = derived.policies[args.policy]
        wanted = info.replay or Replayed()
        priority = {"priority": Leaf(batch, "float32")} if wanted.prioritised else {}
        memory = {"memory": lead(info.memory, *batch)} if wanted.refreshed and info.memory != {} else {}
        return {"ids": Leaf(batch, "int64"), **priority, **memory}

    @classmethod
    def check(cls, args: TrainerArgs, node: Node, graph: Graph) -> None:
        """On-policy, a batch takes whole rounds of the groups that feed it; several trainers have equal parts of it."""
        from srl.graph.placement import members
        from srl.graph.ranks import check_ranks

        entry = graph.policies.get(args.policy)
        if entry is not None and entry.algorithm is not None:
            path = ("workers", node.name, "learner")
            check_learner(args.learner, algorithm=entry.algorithm.use, threads=node.threads, path=path)
        if node.count > 1:
            check_ranks(node, graph, knows_ranks(args))
        groups = 0
        for one, _, side in members(graph, node.ports["samples"]):
            if side == "producer":
                groups += one.count * getattr(one.loaded, "groups", 0)
        if args.staleness or not groups or not args.slabs or args.slabs % groups == 0:
            return
        below, above = args.slabs // groups * groups, -(-args.slabs // groups) * groups
        raise UserError(
            f"a batch of {args.slabs} slabs is not a multiple of the {groups} groups that feed '{node.name}'",
            ("because", "staleness is 0: the groups left over would wait with rows of an older version"),
            ("try", " or ".join(f"slabs: {size}" for size in (below, above) if size) + ", or staleness: 1"),
            code="E04",
            path=("graph", "nodes", node.name, "args", "slabs"),
        )

    def poll(self) -> int:
        """Request and gather, and train one batch if it is complete."""
        self._progress.start()
        done = self._request() + self.source.gather()
        if not self._barrier_due and not self.finished and not self._over and (rows := self._next()) is not None:
            self._train(rows)
            self._request()
            done += 1
        return done

    def wake_at(self) -> float | None:
        return self._alone[1] if self._alone is not None else None

    @property
    def env_steps(self) -> int:
        """The run's clock, as the source counts it."""
        return self.source.env_steps

    @property
    def progress(self) -> float:
        """0..1 towards the end of the run, for schedules."""
        return self._progress.at(self.env_steps, self.updates)

    @property
    def finished(self) -> bool:
        return self._progress.counted(self.env_steps, self.updates) >= 1.0

    def waits(self) -> tuple[Waiting, ...]:
        if self._agreement is not None and self._agreement.open:
            others = (f"{self.context.node.name}/{index}" for index in range(self.context.node.count))
            return (Waiting("other trainers", tuple(name for name in others if name != self.context.name)),)
        return () if self.finished else super().waits()

    def at_barrier(self) -> bool:
        return self._barrier_due

    def barrier(self, number: int) -> None:
        self._barrier_due = False
        self.source.barrier(self.updates)

    def drain(self) -> bool:
        """Complete batches train; nothing new is requested."""
        self._draining = True
        self.source.gather()
        if not self.finished and not self._over and (rows := self._next()) is not None:
            self._train(rows)
            return False
        if self._agreement is not None and not (self.finished or self._over):
            return False
        return self.learner.resumable()

    def save(self) -> None:
        if self._is_first and self._alone is None:  # without the others an update may have been half made
            self.checkpoint(None)

    def checkpoint(self, states: Tree | None) -> None:
        groups, state = self.learner.state()
        check_finite_weights(groups["policy"], self.args.policy, self.updates)
        own = {"updates": self.updates, "env_steps": self.env_steps, "seconds": self._progress.seconds}
        state = {**state, **own, "source": self.source.state()}
        self._checkpoints.write(self.updates, self.env_steps, groups, state, states)

    def close(self) -> None:
        self.learner.close()
        if self._agreement is not None:
            self._agreement.close()

    def metrics(self) -> Any:
        for name, value in self.learner.metrics().items():
            self.reading.mean(f"{TRAIN}{self.args.policy}/{name}" if self._beside_others else f"{TRAIN}{name}", value)
        self._count_progress()
        self._lag.report(self.reading)
        steps = self.learner.clock.steps if self._is_first else 0  # all of them make the same ones
        for name, total in (("optimizer_steps", steps), ("frames", self.learner.clock.rows)):
            self.reading.count(name, total - self.reading[name])
        return super().metrics()

    def _source(self) -> BatchSource:
        """Slabs of actors make batches, or replays draw them."""
        args, ends, context = self.args, self.ends, self.context
        samples, stream = cast(SampleConsumer, ends["samples"]), context.node.ports["samples"]
        if args.slabs:
            record = context.derived.streams[stream].record
            return OnPolicy(samples, record, slabs=self._slabs, staleness=args.staleness, epoch=self._epoch)
        feedback = {
            port.partition("/")[2]: cast(SampleProducer, end) for port, end in ends.items() if port.startswith("feedback")
        }
        drawn_here = context.derived.streams[stream].via == "inproc"
        stays = samples.transport.by != "bytes"
        return Drawn(samples, feedback, prefetch=1 if drawn_here else 2, inline=context.inline, stays=stays)

    @property
    def _is_first(self) -> bool:
        """Publishes and saves."""
        return self.context.index == 0

    @property
    def _slabs(self) -> int:
        """Slabs of a batch that are this worker's."""
        return self.args.slabs // self.context.node.count

    def _meet(self) -> Agreement:
        """Begin to look for the other trainers of the policy, without waiting for them."""
        from srl.learners.ranks import Agreement

        context = self.context
        assert context.folder is not None
        place = context.folder / f".{context.node.name}.{context.incarnation}"
        return Agreement(place, context.index, context.node.count, device_of(context), context.watch)

    def _next(self) -> Rows | None:
        """The rows of the next update; of several trainers, once all of them have theirs."""
        if self._agreement is None:
            return None if self._barrier_due else self.source.take(self.updates)
        try:
            return self._agreed(self._agreement)
        except OthersLost as error:
            self._lost(error)
            return None

    def _agreed(self, agreement: Agreement) -> Rows | None:
        if self._alone is not None:
            if monotonic() >= self._alone[1]:
                raise self._alone[0]
            return None
        if not agreement.met:
            self._over = self._draining  # nothing was learned yet
            return None
        if not agreement.open:
            if self._rows is None:
                self._rows = self.source.take(self.updates)
            if self._rows is None and not self._draining:
                return None
            brings = self.source.brings if self._rows is not None else 0
            agreement.ask(self.updates, brings, self._progress.seconds, self._draining)
        agreed = agreement.answer()
        if agreed is None:
            return None
        rows, self._rows = self._rows, None
        if agreed.stops:
            self._over = True
            if rows is not None:
                self.source.drop()
            return None
        self.source.brings, self._progress.agreed = agreed.env_steps, agreed.seconds
        return rows

    def _lost(self, error: OthersLost) -> None:
        """Another trainer is gone: the controller ends all of them. If it does not, the network has failed."""
        if self._alone is not None:
            raise error
        self._alone = error, monotonic() + GRACE
        self._over = self._draining

    def _request(self) -> int:
        if self._draining or self.finished or self._barrier_due:
            return 0
        return self.source.request(self.updates)

    def _between(self) -> None:
        """Between two minibatches: serve requests for credits now instead of at the end of the update."""
        if self.context.deliver is not None and self.context.deliver():
            self.source.gather()

    def _train(self, rows: Rows) -> None:
        before = perf_counter()
        clock = self.learner.clock
        clock.env_steps, clock.updates, clock.progress = self.env_steps, self.updates, self.progress
        try:
            feedback = self.learner.update(rows)
        except OthersLost as error:
            self._lost(error)
            return
        except RunError as error:
            if error.code != "R05":
                raise  # nothing about its numbers
            name = self.args.policy if self._is_first else f"{self.args.policy}-{self.context.index}"
            raise explained(error, rows, self.context.folder, name, self.updates, self.env_steps) from error
        self.source.done(feedback)
        self.updates += 1
        if self.updates % self.args.publish_every == 0:
            self._publish()
        self._count(rows, perf_counter() - before)
        self._checkpoint_if_due()

    def _count(self, rows: Rows, seconds: float) -> None:
        self.reading.time("training", seconds)
        self._lag.trained(rows["version"], self.updates - 1)
        self.source.count(rows, self.reading, self.args.policy if self._beside_others else "")
        if self.args.slabs or self.updates % REPORTED == 0:
            self._count_progress()

    def _count_progress(self) -> None:
        for name, value in (("updates", self.updates), ("trained_steps", self.env_steps), ("progress", self.progress)):
            self.reading.minimum(name, value)

    def _publish(self) -> None:
        tree = {"params": self.learner.params(), "env_steps": np.array([self.env_steps])}
        number = version(self._epoch, self.updates)
        if self._params is not None:
            self._params.publish(number, tree)
        self._lag.published(number)

    def _checkpoint_if_due(self) -> None:
        every = self._checkpoints.every
        if not every or self.updates % every or not self.learner.resumable():
            return
        if self.context.inline:
            self._barrier_due = True  # the host stops everything first
        else:
            self.save()

    def _restore(self, groups: Mapping[str, Mapping[str, Any]], state: Mapping[str, Any]) -> None:
        self.learner.restore(groups, state)
        self.updates = int(state["updates"])
        self.source.restart(self.updates, int(state["env_steps"]), state.get("source", {}))
        self._progress.before = float(state.get("seconds", 0.0))
        self._count_progress()
