"""Trainers: issue grants, gather slabs into batches, train, publish, then grant again."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from srl.core.load import option
from srl.core.spec import Leaf, zeros
from srl.core.tree import Tree, map_tree
from srl.store.checkpoint import Checkpoint
from srl.streams.base import End, Lease, ParamPublisher, SampleConsumer, epoch_of, updates_of, version
from srl.streams.grants import Grants
from srl.workers.base import Context, Port, Worker
from srl.workers.checkpoints import PAST, Checkpoints


@dataclass(frozen=True, kw_only=True)
class TrainerArgs:
    policy: str = "main"
    slabs: int = option(1, "slabs in a batch", low=1)
    staleness: int = option(0, "updates that a batch's first rows may lie behind; 0 is strictly on-policy", low=0)
    publish_every: int = option(1, "updates between two publications", low=1)
    keep_every: int = option(0, "updates between versions remembered as past opponents; 0: none", low=0)


class TrainerWorker(Worker):
    """One policy's learner at the end of its sample stream."""

    ports = {"samples": Port("sample", "consumer"), "params": Port("param", "publisher")}
    Args = TrainerArgs
    nice = 0
    preload = ("srl.learners.make",)
    args: TrainerArgs

    def __init__(self, args: TrainerArgs, ends: Mapping[str, End], context: Context) -> None:
        super().__init__(args, ends, context)
        from srl.learners.make import make_learner

        self._samples = cast(SampleConsumer, ends["samples"])
        self._params = cast(ParamPublisher, ends["params"])
        self._stop = context.graph.stop
        self._record = context.derived.streams[context.node.ports["samples"]].record
        self.learner = make_learner(context, args)
        self.learner.between = self._between
        self.updates = 0
        self.env_steps = 0
        self._epoch = 0 if context.inline else context.incarnation  # inline, slabs of an earlier process are none
        self._grants = Grants(args.slabs, args.staleness)
        self._batches = [zeros(_batch_spec(self._record, args.slabs)) for _ in range(args.staleness + 1)]
        self._versions = np.zeros((args.staleness + 1) * args.slabs, np.int64)
        self._reused = np.zeros(len(self._versions), bool)
        self._checkpoints = Checkpoints(context, args.policy)
        self._beside_others = sum(entry.algorithm is not None for entry in context.graph.policies.values()) > 1
        """Other policies learn in this run: what this one says of itself is said under its name."""
        self._resting = False
        self._barrier_due = False
        saved = self._checkpoints.start()
        if saved is not None:
            self._restore(saved.groups, saved.state)
            self._remember(saved)
        else:
            self._checkpoints.write_initial(self.learner.params())
        self._publish()
        if saved is not None and context.inline:
            self._grant()  # as after a barrier: before anybody asks

    def poll(self) -> int:
        """Grant, gather, and train one batch if it is full."""
        done = self._grant() + self._gather()
        if not self._barrier_due and not self.finished and self._grants.ready(self.updates):
            self._train()
            self._grant()
            done += 1
        return done

    @property
    def progress(self) -> float:
        """0..1 towards the end of the run, for schedules."""
        parts = [0.0]
        if self._stop.env_steps:
            parts.append(self.env_steps / self._stop.env_steps)
        if self._stop.updates:
            parts.append(self.updates / self._stop.updates)
        return min(1.0, max(parts))

    @property
    def finished(self) -> bool:
        return self.progress >= 1.0

    def waits(self) -> str:
        return "" if self.finished else super().waits()

    def at_barrier(self) -> bool:
        return self._barrier_due

    def barrier(self, number: int) -> None:
        """What has arrived for later batches is dropped and its grants are given again; the others stand."""
        self._barrier_due = False
        self._grant()
        while (lease := self._samples.get()) is not None:
            self._grants.arrived(lease.grant)
            lease.discard("barrier")
        for grant in self._grants.forget():
            self._samples.grant(grant.number, version(self._epoch, grant.min_updates))

    def drain(self) -> bool:
        """Full batches train; nothing new is granted."""
        self._resting = True
        self._gather()
        if not self.finished and self._grants.ready(self.updates):
            self._train()
            return False
        return self.learner.resumable()

    def save(self, workers: Tree | None = None) -> None:
        groups, state = self.learner.state()
        state = {**state, "updates": self.updates, "env_steps": self.env_steps}
        if workers is not None and self._params.kept:
            past: dict[str, Any] = {str(updates_of(number)): tree for number, tree in self._params.kept.items()}
            groups[PAST] = past
        self._checkpoints.write(self.updates, self.env_steps, groups, state, workers)

    def close(self) -> None:
        close = getattr(self.learner, "close", None)
        if close is not None:
            close()

    def _grant(self) -> int:
        if self._resting or self.finished or self._barrier_due:
            return 0
        issued = self._grants.issue(self.updates)
        for number, min_updates in issued:
            self._samples.grant(number, version(self._epoch, min_updates))
        return len(issued)

    def _between(self) -> None:
        """Between two minibatches: who asks for a grant that is there shall not wait for the end of the update."""
        if self.context.deliver is not None and self.context.deliver():
            self._gather()

    def _gather(self) -> int:
        done = 0
        while (lease := self._samples.get()) is not None:
            self._take(lease)
            done += 1
        return done

    def _take(self, lease: Lease) -> None:
        """Copy a slab into its cell and give the slot back at once."""
        tree = cast("dict[str, Any]", lease.tree)
        if epoch_of(int(tree["version"][0])) != self._epoch:
            lease.discard("trainer_restart")
            return
        if not self._grants.arrived(lease.grant):
            lease.discard("void_grant")
            return
        cell = self._grants.cell(lease.grant)
        batch, place = divmod(cell, self.args.slabs)
        _copy_slab(self._batches[batch], tree, place)
        self._versions[cell] = updates_of(int(tree["version"][0]))
        self._reused[cell] = tree["reused"][0]
        lease.release()

    def _train(self) -> None:
        before = time.perf_counter()
        number = self.updates % (self.args.staleness + 1)
        rows = self._batches[number]
        cells = slice(number * self.args.slabs, (number + 1) * self.args.slabs)
        lag = self.updates - self._versions[cells]
        clock = self.learner.clock
        clock.env_steps, clock.updates, clock.progress = self.env_steps, self.updates, self.progress
        self.learner.update(rows)
        valid = rows["valid"]
        # steps of an env are counted once, however many agents it has and however often they are trained on: policies of small
        # and big teams keep the same clock
        lived = valid[:, :, 0] if valid.shape[2] == 1 else valid.any(axis=2)
        fresh = int(np.count_nonzero(lived.reshape(len(lived), self.args.slabs, -1)[:, ~self._reused[cells]]))
        rows_trained = float(np.count_nonzero(valid))
        self.reading.count("trained_rows", rows_trained)
        if self._beside_others:
            self.reading.count(f"trained_rows/{self.args.policy}", rows_trained)
        self.updates += 1
        self.env_steps += fresh
        if self.updates % self.args.publish_every == 0 or self.args.staleness == 0:
            self._publish()
        self.reading.totals.update(updates=self.updates, trained_steps=self.env_steps, progress=self.progress)
        self.reading.count("time/train", time.perf_counter() - before)
        self.reading.add("staleness", float(lag.sum()), len(lag))
        totals = self.reading.totals
        totals["staleness_min"] = min(totals.get("staleness_min", float(lag.min())), float(lag.min()))
        totals["staleness_max"] = max(totals.get("staleness_max", 0.0), float(lag.max()))
        self._checkpoint_if_due()

    def _remember(self, saved: Checkpoint) -> None:
        """After a restart or a resume, past opponents are those that were saved: the others died with the process."""
        if self.args.keep_every:
            for updates, tree in self._checkpoints.past(saved):
                self._params.publish(version(self._epoch, updates), tree, keep=True)

    def _publish(self) -> None:
        keep = self.args.keep_every > 0 and self.updates % self.args.keep_every == 0
        tree = {"params": self.learner.params(), "env_steps": np.array([self.env_steps])}
        self._params.publish(version(self._epoch, self.updates), tree, keep)

    def _checkpoint_if_due(self) -> None:
        every = self.context.graph.checkpoint.every
        if not every or self.updates % every or not self.learner.resumable():
            return
        if self.context.inline:
            self._barrier_due = True  # the host stops everything first
        else:
            self.save()

    def metrics(self) -> Any:
        for name, value in self.learner.metrics().items():
            self.reading.add(f"train/{self.args.policy}/{name}" if self._beside_others else f"train/{name}", value)
        return super().metrics()

    def _restore(self, groups: Mapping[str, Mapping[str, Any]], state: Mapping[str, Any]) -> None:
        self.learner.restore(groups, state)
        self.updates, self.env_steps = int(state["updates"]), int(state["env_steps"])
        self._grants.restart(self.updates)
        self.reading.totals.update(updates=self.updates, trained_steps=self.env_steps, progress=self.progress)


def _batch_spec(record: Any, slabs: int) -> Any:
    """The slab's leaves with room for `slabs` of them on the env axis."""
    rest = {name: leaf for name, leaf in record.items() if name not in ("version", "reused")}
    wide = map_tree(lambda leaf: Leaf((leaf.shape[0], leaf.shape[1] * slabs, *leaf.shape[2:]), leaf.dtype), rest)
    return {**wide, "version": Leaf((slabs,), "int64")}


def _copy_slab(batch: dict[str, Any], slab: dict[str, Any], place: int) -> None:
    for name, tree in slab.items():
        if name == "version":
            batch["version"][place] = tree[0]
        elif name != "reused":
            _copy_part(batch[name], tree, place)


def _copy_part(batch: Tree, slab: Tree, place: int) -> None:
    if isinstance(batch, dict):
        for name in batch:
            _copy_part(batch[name], slab[name], place)
    else:
        envs = slab.shape[1]  # type: ignore[union-attr]
        batch[:, place * envs : (place + 1) * envs] = slab
