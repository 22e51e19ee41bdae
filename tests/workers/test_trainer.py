"""Trainers: credits between minibatches, the source of batches, progress."""

from __future__ import annotations

import pytest

import srl
import srl.workers.trainer as trainer_room
from srl.core.types import BoundEnd, Stop, WorkerId
from srl.plan.prepare import prepare
from srl.streams.open import open_end
from srl.streams.sample import SampleProducer
from srl.streams.wakeup import Wakeup
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
        assert producer.alloc() is None  # it says `want`: on the trainer's wakeup, nothing more
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
    monkeypatch.setattr(trainer_room, "monotonic", lambda: now[0])
    settings = {"sampling": {"envs": 4, "steps": 8}, "algorithm": {"lr": {"from": 1.0, "to": 0.0}, "epochs": 1}}
    with srl.build("cartpole", overrides=STOP, **settings) as session:
        rates = []
        for now[0] in (100.0, 105.0, 110.0, 120.0):
            rates.append(session.step()["train/lr"])
        assert rates == [1.0, 0.5, 0.0, 0.0]
        assert not session.finished  # the controller watches the clock


def test_a_resume_by_seconds_continues_the_schedule(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(trainer_room, "monotonic", lambda: now[0])
    progress = trainer_room.Progress(Stop(seconds=10.0, env_steps=1000))
    assert progress.at(0, 0) == 0.0
    progress.start()
    now[0] = 4.0
    assert (progress.at(0, 0), progress.at(900, 0), progress.counted(0, 0)) == (0.4, 0.9, 0.0)
    second = trainer_room.Progress(Stop(seconds=10.0))
    second.before = progress.seconds
    second.start()
    now[0] = 7.0
    assert second.at(0, 0) == 0.5  # 4 s of 10 earlier, then 3 of 10 more
