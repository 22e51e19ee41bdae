"""Trainers: credits between minibatches, feedback to the source, publication, checkpoints, progress."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import srl
import srl.workers.task as task_room
from srl.algorithms.ppo import PPO
from srl.api.algorithm import Batch, Feedback, Metrics
from srl.core.machine import Machine
from srl.core.types import BoundEnd, Stop, WorkerId
from srl.plan.prepare import prepare
from srl.store import checkpoint
from srl.streams.base import updates_of
from srl.streams.open import open_end
from srl.streams.param import ParamPublisher
from srl.streams.sample import SampleProducer
from srl.streams.wakeup import Wakeup
from srl.workers.batches import BatchSource
from srl.workers.loop import WorkerLoop


def test_a_credit_that_is_asked_for_during_an_update_is_given_before_its_end() -> None:
    prepared = prepare("cartpole", ["layout=impala", "streams.all.via=shm", "staleness.max=1", "evaluation=null"])
    trainer = WorkerLoop(prepared.graph, prepared.derived, [WorkerId("trainer", 0)])
    wakeup = Wakeup()
    stream = prepared.derived.streams["samples.main"]
    producer = open_end(stream, "producer", name="samples.main:actor/0", wakeup=wakeup, slots=2)
    assert isinstance(producer, SampleProducer)
    try:
        [end] = [end for end in trainer.bound() if end.side == "consumer"]
        peer = BoundEnd("samples.main", "actor/0", "samples", "producer", producer.address())
        trainer.attach({"trainer/0": {end.port: [peer]}})
        producer.attach(end.name, end.address)
        trainer.make()
        trainer.sweep()
        assert producer.alloc() is None  # it sends a request: on the trainer's wakeup, nothing more
        trainer.workers["trainer/0"].learner.task.between()  # type: ignore[attr-defined]
        wakeup.deliver()
        slab = producer.alloc()
        assert slab is not None
        producer.put(slab)
        trainer.workers["trainer/0"].learner.task.between()  # type: ignore[attr-defined]
        assert trainer.reports()["trainer/0"].counts[end.port].taken == 1  # and what arrives is taken in as well
    finally:
        producer.close()
        trainer.close()
        wakeup.close()


STOP = ["~stop.env_steps", "~stop.return", "stop.seconds=10"]


def test_schedules_follow_a_run_that_stops_by_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(task_room, "monotonic", lambda: now[0])
    settings = {"sampling": {"envs": 4, "steps": 8}, "algorithm": {"lr": {"from": 1.0, "to": 0.0}, "epochs": 1}}
    with srl.build("cartpole", overrides=STOP, **settings) as session:
        rates = []
        for now[0] in (100.0, 105.0, 110.0, 120.0):
            rates.append(session.step()["train/lr"])
        assert rates == [1.0, 0.5, 0.0, 0.0]
        assert not session.finished  # the controller watches the clock


def test_a_resume_by_seconds_continues_the_schedule(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(task_room, "monotonic", lambda: now[0])
    progress = task_room.Progress(Stop(seconds=10.0, env_steps=1000))
    assert progress.at(0, 0) == 0.0
    progress.start()
    now[0] = 4.0
    assert (progress.at(0, 0), progress.at(900, 0), progress.counted(0, 0)) == (0.4, 0.9, 0.0)
    second = task_room.Progress(Stop(seconds=10.0))
    second.before = progress.seconds
    second.start()
    now[0] = 7.0
    assert second.at(0, 0) == 0.5  # 4 s of 10 earlier, then 3 of 10 more


SMALL: dict[str, Any] = {"sampling": {"envs": 4, "steps": 8, "workers": 1}, "algorithm": {"epochs": 1}, "evaluation": None}


@pytest.mark.parametrize(("every", "expected"), [(1, [0, 1, 2, 3, 4, 5]), (2, [0, 2, 4])])
def test_versions_are_published_every_so_many_updates(every: int, expected: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    published: list[int] = []
    publish = ParamPublisher.publish

    def noted(self: ParamPublisher, version: int, *rest: Any) -> None:
        published.append(updates_of(version))
        publish(self, version, *rest)

    monkeypatch.setattr(ParamPublisher, "publish", noted)
    words = ["layout=inline", "staleness.max=1", f"workers.trainer.publish_every={every}"]
    with srl.build("cartpole", overrides=words, stop={"updates": 5}, **SMALL) as session:
        session.step(5)
    assert published == expected


class Prioritised(PPO):
    """Hands something back for every window, as an algorithm on a replay does."""

    def update(self, batch: Batch) -> Metrics:
        assert batch.weight.tolist() == [1.0, 2.0, 3.0, 4.0]
        batch.give_back(priority=batch.reward.sum(0) * batch.weight, memory={"h": batch.ids[:, None]})
        return super().update(batch)


class Replay:
    """A source whose windows have ids; its clock counts the steps that came in, not those that are trained on."""

    def __init__(self, inner: BatchSource) -> None:
        self.inner, self.env_steps, self.feedback = inner, 0, []

    def request(self, updates: int) -> int:
        return self.inner.request(updates)

    def gather(self) -> int:
        self.env_steps += 5
        return self.inner.gather()

    def take(self, updates: int) -> Any:
        rows = self.inner.take(updates)
        return None if rows is None else {**rows, "ids": np.arange(10, 14), "weight": np.arange(1.0, 5.0, dtype=np.float32)}

    def done(self, feedback: Feedback | None) -> None:
        self.feedback.append(feedback)

    def count(self, rows: Any, reading: Any, policy: str) -> None:
        """Nothing is counted."""


def test_what_an_algorithm_gives_back_reaches_the_source_of_its_rows_by_id() -> None:
    settings = {**SMALL, "algorithm": {"use": Prioritised, "epochs": 1}}
    with srl.build("cartpole", overrides=["layout=inline"], stop={"updates": 3}, **settings) as session:
        trainer: Any = session.workers["trainer/0"]
        trainer.source = source = Replay(trainer.source)
        session.step()
    [feedback] = source.feedback
    assert feedback.ids.tolist() == [10, 11, 12, 13]
    np.testing.assert_allclose(feedback.leaves["priority"], [8.0, 16.0, 24.0, 32.0])
    np.testing.assert_array_equal(feedback.leaves["memory"]["h"][:, 0], feedback.ids)
    assert session.totals["trained_steps"] == source.env_steps


def test_rows_without_ids_take_nothing_back() -> None:
    with pytest.raises(ValueError, match="no ids"):
        Batch.of(reward=[[1.0]]).give_back(priority=torch.zeros(1))


def test_a_trainer_continues_from_its_own_last_checkpoint(tmp_path: Path) -> None:
    words = {**SMALL, "mode": "inline", "checkpoint": {"every": 2}}
    run = srl.launch("cartpole", overrides=["~stop.env_steps"], **words, stop={"updates": 5}, runs=tmp_path, quiet=True)
    saved = [checkpoint.read(path) for path in checkpoint.checkpoints(Path(run.folder) / "checkpoints")]
    assert [one.state["updates"] for one in saved] == [2, 4, 5]
    assert [one.step for one in saved] == [one.state["env_steps"] for one in saved]
    second = srl.launch(resume=run.folder, overrides=["stop.updates=6"], quiet=True)
    newest = checkpoint.latest(Path(second.folder) / "checkpoints")
    assert newest is not None
    last = checkpoint.read(newest)
    assert last.state["updates"] == 6 and last.state["clock"]["env_steps"] == saved[-1].step


def test_a_learner_computes_with_the_threads_of_its_node(monkeypatch: pytest.MonkeyPatch) -> None:
    before = torch.get_num_threads()
    monkeypatch.setattr(Machine, "here", lambda: Machine(cores=before + 1, gpus=0, shared_free=1 << 34))
    try:
        with srl.build("cartpole", overrides=["layout=inline", f"workers.trainer.threads={before + 1}"], **SMALL) as session:
            assert torch.get_num_threads() == before + 1
            assert session.step()
    finally:
        torch.set_num_threads(before)
