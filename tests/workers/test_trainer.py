"""A trainer between its minibatches."""

from __future__ import annotations

from srl.graph.prepare import prepare
from srl.streams.base import SampleProducer
from srl.streams.open import open_bell, open_end
from srl.workers.host import Host, Peer, Seat


def test_a_grant_that_is_asked_for_during_an_update_is_given_before_its_end() -> None:
    prepared = prepare("cartpole", ["layout=impala", "streams.all.via=shm", "staleness.max=1", "evaluation=null"])
    trainer = Host(prepared.graph, prepared.derived, [Seat("trainer", 0)])
    bell = open_bell()
    stream = prepared.derived.streams["samples.main"]
    producer = open_end(stream, "producer", name="samples.main:actor/0", bell=bell, slots=2)
    assert isinstance(producer, SampleProducer)
    try:
        [(port, end)] = [(port, end) for port, end in trainer.bound()["trainer/0"].items() if end["side"] == "consumer"]
        trainer.attach({"trainer/0": {port: [Peer("samples.main:actor/0", producer.address(), 0)]}})
        producer.attach("samples.main:trainer/0", end["address"], 0)
        trainer.make()
        trainer.sweep()
        assert producer.alloc() is None  # it says `want`: on the trainer's bell, nothing more
        trainer.workers["trainer/0"].learner.between()  # type: ignore[attr-defined]
        bell.deliver()
        slab = producer.alloc()
        assert slab is not None
        producer.put(slab)
        trainer.workers["trainer/0"].learner.between()  # type: ignore[attr-defined]
        assert trainer.reports()["trainer/0"].counts[port].taken == 1  # and what arrives is taken in as well
    finally:
        producer.close()
        trainer.close()
        bell.close()
