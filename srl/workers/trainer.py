"""Trainers: take a batch from the source, give it to the learner, publish, checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from time import perf_counter
from typing import Any, cast

import numpy as np

from srl.api.policy import NoConfig
from srl.core.errors import OthersLost, RunError
from srl.core.load import load
from srl.core.readings import TRAIN
from srl.core.registry import REGISTRIES
from srl.core.tree import Tree
from srl.core.types import Waiting
from srl.learners.base import Learner
from srl.store.checkpoint import using
from srl.streams.base import version
from srl.streams.param import ParamPublisher
from srl.streams.peers import End
from srl.workers.base import Context
from srl.workers.batches import BatchSource, Rows
from srl.workers.checkpoints import Checkpoints
from srl.workers.gang import Gang
from srl.workers.lag import Lag
from srl.workers.sources import source_of
from srl.workers.task import Progress, check_finite_weights, explained, task_of
from srl.workers.trainer_plan import TrainerArgs, TrainerPlan

REPORTED = 100
"""Updates on batches of a replay between two reports of an inline run."""


class TrainerWorker(TrainerPlan):
    """Trains one policy: takes batches from a source and passes them to a learner.

    Several train together, each on its own part of the batch, and agree before every update. Worker 0 publishes and saves.
    """

    def __init__(self, args: TrainerArgs, ends: Mapping[str, End], context: Context) -> None:
        super().__init__(args, ends, context)
        self._epoch = 0 if context.inline else context.incarnation  # inline, slabs of an earlier process are none
        self.updates = 0
        self._is_first = context.index == 0  # of its gang: it publishes and saves
        slabs = args.slabs // context.node.count  # of a batch, those that are this worker's
        kind = REGISTRIES["learner"].resolve(args.learner.use)
        settings = load(getattr(kind, "Config", NoConfig), args.learner.args, path=("workers", context.node.name, "learner"))
        self._progress = Progress(context.graph.stop)
        self._gang = Gang(context, ends, self._progress) if context.node.count > 1 else None
        """The other trainers of the policy."""
        ranks = self._gang.ranks if self._gang is not None else None
        self.learner: Learner = kind(task_of(context, args.policy, max(slabs, 1), self._between, ranks), settings)
        self.source: BatchSource = source_of(ends, context, self.learner, slabs, args.staleness, self._epoch)
        self._params = cast("ParamPublisher | None", ends.get("params"))
        self._checkpoints = Checkpoints(context, args.policy)
        self._beside_others = len(context.graph.learning) > 1
        """Other policies learn in this run: metrics carry the name of this one."""
        self._lag = Lag(self._epoch)
        self._draining = False
        self._barrier_due = False
        saved = self._gang.start(self._checkpoints) if self._gang is not None else self._checkpoints.start()
        if saved is not None:
            with using(saved.path):
                self._restore(saved.groups, saved.state)
        elif self._is_first:
            self._checkpoints.write_initial(self.learner.params())
        self._publish()
        if saved is not None and context.inline:
            self._request()  # as after a barrier: before anybody asks

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
        return self._gang.wake_at if self._gang is not None else None

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
        if self._gang is not None and (waiting := self._gang.waits()) is not None:
            return (waiting,)
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
        if self._gang is not None and not (self.finished or self._over):
            return False
        return self.learner.resumable()

    def save(self) -> None:
        if self._is_first and not (self._gang is not None and self._gang.alone):
            self.checkpoint(None)

    def checkpoint(self, states: Tree | None) -> None:
        groups, state = self.learner.state()
        check_finite_weights(groups["policy"], self.args.policy, self.updates)
        own = {"updates": self.updates, "env_steps": self.env_steps, "seconds": self._progress.seconds}
        state = {**state, **own, "source": self.source.state()}
        self._checkpoints.write(self.updates, self.env_steps, groups, state, states)

    def close(self) -> None:
        self.learner.close()
        if self._gang is not None:
            self._gang.close()

    def metrics(self) -> Any:
        for name, value in self.learner.metrics().items():
            self.reading.mean(f"{TRAIN}{self.args.policy}/{name}" if self._beside_others else f"{TRAIN}{name}", value)
        self._count_progress()
        self._lag.report(self.reading)
        steps = self.learner.clock.steps if self._is_first else 0  # all of them make the same ones
        for name, total in (("optimizer_steps", steps), ("frames", self.learner.clock.rows)):
            self.reading.count(name, total - self.reading[name])
        return super().metrics()

    @property
    def _over(self) -> bool:
        """The trainers have agreed to make no further update."""
        return self._gang is not None and self._gang.over

    def _next(self) -> Rows | None:
        """The rows of the next update."""
        if self._gang is not None:
            return self._gang.next(self.source, self.updates, self._draining)
        return None if self._barrier_due else self.source.take(self.updates)

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
            assert self._gang is not None
            self._gang.lost(error, self._draining)
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
