"""Sample streams on every transport: slabs arrive once, in order, as credits permit, and every one is accounted for."""

from __future__ import annotations

import random
from typing import Any

import pytest

from srl.core.types import FOREIGN
from srl.streams.base import version
from tests.contracts.rig import Rig, fill, read


def move(rig: Rig, producers: list[Any], consumers: list[Any], each: int, seed: int = 0) -> dict[int, list[int]]:
    """Every producer makes `each` slabs under random back-pressure; what arrived, per producer, in order."""
    chance = random.Random(seed)
    made = [0] * len(producers)
    opened: list[list[Any]] = [[] for _ in producers]
    arrived: dict[int, list[int]] = {who: [] for who in range(len(producers))}
    loans: list[Any] = []
    credited = [0] * len(consumers)
    for index, consumer in enumerate(consumers):
        for _ in range(2):
            consumer.credit(credited[index], 0)
            credited[index] += 1

    def sweep() -> bool:
        for who, producer in enumerate(producers):
            if made[who] + len(opened[who]) < each and (slab := producer.alloc()) is not None:
                opened[who].append(slab)
            if opened[who] and chance.random() < 0.7:
                slab = opened[who].pop(0)
                fill(slab.tree, who, made[who])
                producer.put(slab)
                made[who] += 1
        for index, consumer in enumerate(consumers):
            while (loan := consumer.get()) is not None:
                who, number = read(loan.tree)
                assert loan.producer == producers[who].name
                arrived[who].append(number)
                loans.append(loan)
                consumer.credit(credited[index], 0)
                credited[index] += 1
        while loans and chance.random() < 0.6:
            loans.pop(chance.randrange(len(loans))).release()
        return sum(map(len, arrived.values())) == each * len(producers)

    rig.until(sweep, limit=60)
    for loan in loans:
        loan.release()
    return arrived


def test_slabs_arrive_once_whole_and_in_order_under_back_pressure(rig: Rig) -> None:
    producers = [rig.producer(f"actor/{i}", slots=1 + i) for i in range(3)]
    consumer = rig.consumer()
    rig.join(producers, [consumer])
    arrived = move(rig, producers, [consumer], each=120)
    assert all(numbers == list(range(120)) for numbers in arrived.values())
    rig.until(lambda: sum(p.counts.released for p in producers) == 360)
    assert [p.counts.put for p in producers] == [120] * 3
    assert consumer.counts.taken == consumer.counts.released == 360
    # on a busy machine a handshake may be cut short and made again: nothing that was put is lost by it
    assert {reason for reason in consumer.counts.dropped if reason not in FOREIGN} == set()


def test_many_to_many_loses_and_repeats_nothing(rig: Rig) -> None:
    producers = [rig.producer(f"actor/{i}", slots=2) for i in range(2)]
    consumers = [rig.consumer(f"trainer/{i}") for i in range(2)]
    rig.join(producers, consumers)
    arrived = move(rig, producers, consumers, each=100, seed=1)
    assert all(sorted(numbers) == list(range(100)) for numbers in arrived.values())
    assert min(consumer.counts.taken for consumer in consumers) > 50, "demand is spread over the consumers"


def test_no_credit_no_slab_and_a_repeated_call_is_one_request(rig: Rig) -> None:
    producer, consumer = rig.producer(slots=4), rig.consumer()
    rig.join([producer], [consumer])
    for _ in range(5):
        assert producer.alloc() is None
        rig.settle()
    consumer.credit(0, 0)
    consumer.credit(1, version(1, 7))
    first = rig.until(producer.alloc)
    rig.settle()
    assert (first.credit, first.min_version) == (0, 0)
    assert consumer.unused_credits == 2, "the second credit waits for a second request"
    second = rig.until(producer.alloc)
    assert (second.credit, second.min_version) == (1, version(1, 7))


def test_two_groups_that_wait_are_two_requests(rig: Rig) -> None:
    producer, consumer = rig.producer(slots=3), rig.consumer()
    rig.join([producer], [consumer])
    consumer.credit(0, 0)
    consumer.credit(1, 0)
    found: list[Any] = []

    def sweep() -> bool:
        found.extend(slab for slab in [producer.alloc(0), producer.alloc(1)] if slab is not None)
        return len(found) == 2

    rig.until(sweep)
    assert {slab.credit for slab in found} == {0, 1}
    assert len({slab.slot for slab in found}) == 2


def test_the_longest_wait_gets_the_first_credit(rig: Rig) -> None:
    producers = [rig.producer(f"actor/{i}") for i in range(3)]
    consumer = rig.consumer()
    rig.join(producers, [consumer])
    for asked, index in enumerate((2, 0, 1), 1):
        assert producers[index].alloc() is None
        rig.until(lambda asked=asked: len(consumer._requests) == asked)
    for number in range(3):
        consumer.credit(number, 0)
    assert [rig.until(producer.alloc).credit for producer in producers] == [1, 2, 0]


def test_slots_bound_what_is_open_and_the_same_slot_has_the_same_views(rig: Rig) -> None:
    producer, consumer = rig.producer(slots=2), rig.consumer()
    rig.join([producer], [consumer])
    for number in range(9):
        consumer.credit(number, 0)
    one, two = rig.until(producer.alloc), rig.until(producer.alloc)
    rig.settle()
    assert producer.alloc() is None
    trees = {one.slot: one.tree, two.slot: two.tree}
    fill(one.tree, 0, 0)
    producer.put(one)
    loan = rig.until(consumer.get)
    rig.settle()
    assert producer.alloc() is None, "the consumer has not released the slot"
    with pytest.raises(ValueError, match="read-only"):
        loan.tree["who"][:] = 5
    loan.release()
    again = rig.until(producer.alloc)
    assert again.tree is trees[again.slot]


def test_no_request_is_stuck_at_a_consumer_without_credits(rig: Rig) -> None:
    producer = rig.producer(slots=1)
    still, eager = rig.consumer("trainer/0"), rig.consumer("trainer/1")
    rig.join([producer], [still, eager])
    for number in range(6):
        assert producer.alloc() is None
        rig.settle()
        eager.credit(number, 0)
        slab = rig.until(producer.alloc)
        producer.put(slab)
        rig.until(eager.get).release()
    rig.settle()
    for consumer, number in ((still, 0), (still, 1), (eager, 6)):
        consumer.credit(number, 0)
        producer.put(rig.until(producer.alloc))
        rig.until(consumer.get).release()
    assert (still.unused_credits, eager.unused_credits) == (0, 0)


def test_a_discarded_slab_gives_its_credit_back(rig: Rig) -> None:
    producer, other, consumer = rig.producer("actor/0"), rig.producer("actor/1"), rig.consumer()
    rig.join([producer, other], [consumer])
    consumer.credit(0, 3)
    slab = rig.until(producer.alloc)
    producer.discard(slab, "barrier")
    again = rig.until(other.alloc)
    assert (again.credit, again.min_version) == (0, 3)
    assert (producer.counts.put, producer.counts.dropped) == (1, {"barrier": 1})


def test_credits_of_a_dead_producer_are_issued_again_and_what_it_had_put_is_still_taken(rig: Rig) -> None:
    producer, other, consumer = rig.producer("actor/0", slots=3), rig.producer("actor/1"), rig.consumer()
    rig.join([producer, other], [consumer])
    for number in range(3):
        consumer.credit(number, 0)
    slabs = [rig.until(producer.alloc) for _ in range(3)]
    assert other.alloc() is None
    fill(slabs[0].tree, 0, 41)
    producer.put(slabs[0])
    rig.until(lambda: consumer.unused_credits == 2)
    counts = consumer.detach(producer.name, "died")
    other.detach("nobody", "died")
    assert counts.put == 1
    rig.close_end(producer)
    rig.until(lambda: other.waits() is None)
    assert [rig.until(other.alloc).credit for _ in range(2)] == [1, 2]
    loan = consumer.get()
    assert loan is not None
    assert read(loan.tree) == (0, 41)
    loan.release()
    assert consumer.counts.dropped == {}


def test_slabs_for_a_dead_consumer_are_counted_and_the_next_one_gets_the_requests(rig: Rig) -> None:
    producer, consumer = rig.producer(slots=3), rig.consumer()
    rig.join([producer], [consumer])
    for number in range(3):
        consumer.credit(number, 0)
    one, two = rig.until(producer.alloc), rig.until(producer.alloc)
    producer.put(one)
    producer.detach(consumer.name, "died")
    consumer.detach(producer.name, "died")
    rig.close_end(consumer)
    producer.put(two)
    assert producer.alloc() is None
    assert producer.counts.dropped == {"died": 1, "consumer_gone": 1}
    restarted = rig.consumer()
    rig.join([producer], [restarted])
    restarted.credit(17, 0)
    slab = rig.until(producer.alloc)
    assert slab.credit == 17
    producer.put(slab)
    assert rig.until(restarted.get).credit == 17
    assert producer.counts.put == 3


def test_taken_slabs_of_a_dead_consumer_are_not_counted_as_lost_where_memory_is_shared(rig: Rig) -> None:
    producer, consumer = rig.producer(slots=3), rig.consumer()
    rig.join([producer], [consumer])
    for number in range(3):
        consumer.credit(number, 0)
    for _ in range(3):
        producer.put(rig.until(producer.alloc))
    rig.until(consumer.get)
    rig.settle()
    counts = producer.detach(consumer.name, "died")
    lost = producer.counts.dropped["died"]
    assert producer.counts.put == counts.taken + lost
    assert lost == (2 if rig.via in ("inproc", "shm") else 3)


def test_without_a_consumer_every_slab_is_counted_as_dropped(rig: Rig) -> None:
    producer = rig.producer(route="drop", slots=2)
    for number in range(10):
        slab = producer.alloc()
        assert slab is not None
        assert (slab.credit, slab.min_version) == (number, 0)
        producer.put(slab)
    assert (producer.counts.put, producer.counts.dropped) == (10, {"no_consumer": 10})
