"""What holds for every kind of stream, on every transport: specs, addresses, early and hostile messages, flat memory."""

from __future__ import annotations

import gc
import resource
from pathlib import Path

import pytest

from srl.core.spec import Leaf
from srl.streams.open import open_end
from srl.streams.transport import ANSWER, ASK, FREE, PUT, REQUEST, RETURN
from srl.streams.wakeup import Wakeup
from tests.contracts.rig import Rig, answer_to, fill, read, rows
from tests.errors import raises


def test_a_wrong_spec_is_refused_when_attached(rig: Rig) -> None:
    producer = rig.producer()
    other = rig.consumer(record={"who": Leaf((2,), "int64")})
    for one, peer in ((producer, other), (other, producer)):
        with raises("W01", match="disagree"):
            one.attach(peer.name, peer.address())


def test_a_side_that_the_kind_does_not_have_is_refused(rig: Rig) -> None:
    with raises("E10", match="no server"):
        open_end(rig.spec("sample"), "server", name="sample:x/0", wakeup=rig.wakeup())


def test_addresses_are_plain_data(rig: Rig) -> None:
    import msgpack

    for end in (rig.producer(), rig.consumer(), rig.client(), rig.server(), rig.publisher(), rig.subscriber()):
        assert msgpack.unpackb(msgpack.packb(end.address())) == end.address()


def test_detaching_a_stranger_changes_nothing(rig: Rig) -> None:
    for end in (rig.producer(), rig.consumer(), rig.client(), rig.server(), rig.publisher(), rig.subscriber()):
        assert end.detach("nobody", "died").put == 0
        assert end.counts.dropped == {}


def test_messages_of_a_peer_that_is_attached_a_little_later_are_not_lost(rig: Rig) -> None:
    producer, consumer = rig.producer(), rig.consumer()
    consumer.credit(0, 0)
    producer.attach(consumer.name, consumer.address())
    assert producer.alloc() is None
    rig.settle()
    consumer.attach(producer.name, producer.address())
    assert rig.until(producer.alloc).credit == 0


def test_outside_is_true_only_where_another_process_could_send(rig: Rig) -> None:
    ends = [rig.producer(), rig.consumer(), rig.client(), rig.server()]
    rig.join(ends[:1], ends[1:2])
    assert rig.wakeups[1 if rig.via != "inproc" else 0].outside == (rig.via != "inproc")
    empty = Wakeup()
    assert not empty.outside
    empty.close()


def test_unknown_kinds_and_impossible_slots_are_refused_and_counted(rig: Rig) -> None:
    producer, consumer = rig.producer(slots=2), rig.consumer()
    client, server = rig.client(), rig.server()
    rig.join([producer], [consumer])
    rig.join([client], [server])
    consumer.credit(0, 0)
    slab = rig.until(producer.alloc)
    to_consumer = producer._by_name[consumer.name].wire  # type: ignore[attr-defined]
    to_producer = consumer._by_name[producer.name].wire  # type: ignore[attr-defined]
    to_server = client._by_name[server.name].wire  # type: ignore[attr-defined]
    to_client = server._by_name[client.name].wire  # type: ignore[attr-defined]
    body = slab.tree
    to_consumer.send(99)
    to_consumer.send(PUT, 9, 0, 0, body)  # a slot it does not have
    to_consumer.send(PUT, 0, 7, 0, body)  # a credit it never got
    to_consumer.send(REQUEST, 256)  # a ledger row that does not exist
    to_consumer.send(RETURN, 0, 7)  # gives back what it never had
    to_producer.send(FREE, 9)
    to_producer.send(FREE, slab.slot)  # releases what it was never sent
    to_server.send(ASK, 5, 1, 0, rows(2, 0))
    to_client.send(ANSWER, 7, 1, 0, answer_to(rows(2, 0)))
    rig.until(lambda: consumer.counts.dropped.get("hostile") == 5)
    rig.until(lambda: producer.counts.dropped.get("hostile") == 2)
    rig.until(lambda: server.counts.dropped.get("hostile") == 1)
    rig.until(lambda: client.counts.dropped.get("hostile") == 1)
    fill(slab.tree, 3, 3)
    producer.put(slab)
    assert read(rig.until(consumer.get).tree) == (3, 3), "the stream goes on"


def many(rig: Rig, number: int) -> None:
    """Pass slabs and questions to and fro; memory must not grow after the first tenth."""
    producer, consumer = rig.producer(slots=4), rig.consumer()
    client, server = rig.client(), rig.server()
    rig.join([producer], [consumer])
    rig.join([client], [server])
    question = rows(2, 3)
    for credit in range(4):
        consumer.credit(credit, 0)
    state = {"slabs": 0, "answers": 0}
    client.post(0, question, 0)

    def sweep() -> bool:
        while (slab := producer.alloc()) is not None:
            producer.put(slab)
        while (loan := consumer.get()) is not None:
            state["slabs"] += 1
            consumer.credit(loan.credit + 4, 0)
            loan.release()
        if (asked := server.take(10, 0)) is not None:
            asked.reply(answer_to(asked.rows), 0)
        if client.ready(0) is not None:
            state["answers"] += 1
            client.post(0, question, 0)
        return state["slabs"] + state["answers"] >= goal

    goal = number // 10
    rig.until(sweep, limit=300)
    gc.collect()
    before = resident()
    goal = number
    rig.until(sweep, limit=1000)
    gc.collect()
    assert resident() - before < 3e6, "memory grows with the number of messages"
    assert state["slabs"] > number / 20
    assert state["answers"] > number / 20


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def test_memory_is_flat(rig: Rig) -> None:
    many(rig, 100_000 if rig.via in ("inproc", "shm") else 3_000)


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_memory_is_flat_over_a_million_messages(rig: Rig) -> None:
    many(rig, 1_000_000)
