"""Everything put into a stream is taken, in flight or dropped for a reason."""

from __future__ import annotations

import random

import pytest

from srl.core.types import Counts
from srl.observe.ledger import Ledger, table


def test_counts_of_all_ends_are_added_up() -> None:
    ledger = Ledger("samples", slots=4)
    for put in (10, 20):
        ledger.add("producer", Counts(put=put, released=put, dropped={"stop": 1}))
    ledger.add("consumer", Counts(taken=25, released=25, dropped={"trainer_restart": 2}))
    assert (ledger.put, ledger.taken, ledger.drops, ledger.in_flight, ledger.held) == (30, 25, 4, 1, 0)
    assert ledger.balanced
    assert ledger.dropped == {"stop": 2, "trainer_restart": 2}


@pytest.mark.parametrize(("put", "taken", "slots"), [(10, 11, 4), (10, 5, 4), (10, 9, 0)])
def test_what_vanished_or_came_twice_does_not_balance(put: int, taken: int, slots: int) -> None:
    ledger = Ledger("samples", slots=slots)
    ledger.add("producer", Counts(put=put))
    ledger.add("consumer", Counts(taken=taken, released=taken))
    assert not ledger.balanced
    assert "DOES NOT BALANCE" in table([ledger])


def test_a_lease_released_twice_does_not_balance() -> None:
    ledger = Ledger("samples", slots=4)
    ledger.add("producer", Counts(put=5))
    ledger.add("consumer", Counts(taken=5, released=6))
    assert not ledger.balanced


def test_after_a_kill_at_most_the_slots_are_unknown() -> None:
    """A model: at every moment of a run, kill one side; what the other side and stale reports tell must balance."""
    chance = random.Random(1)
    for _ in range(500):
        slots = chance.randint(1, 6)
        put = taken = back = 0
        stale = {"put": 0, "taken": 0}
        for _ in range(chance.randint(1, 200)):
            move = chance.choice(("put", "take", "return", "report"))
            put += move == "put" and put - back < slots
            taken += move == "take" and taken < put
            back += move == "return" and back < taken
            if move == "report":
                stale = {"put": put, "taken": taken}
        killed_producer, killed_consumer = Ledger("s", slots=slots), Ledger("s", slots=slots)
        killed_producer.add("producer", Counts(put=stale["put"]))
        killed_producer.add("consumer", Counts(taken=taken, released=taken))
        killed_producer.lost["s:actor/0"] = "producer"
        killed_consumer.add("producer", Counts(put=put, released=back))
        killed_consumer.add("consumer", Counts(taken=stale["taken"], released=stale["taken"]))
        killed_consumer.lost["s:trainer/0"] = "consumer"
        for ledger in (killed_producer, killed_consumer):
            assert ledger.balanced and 0 <= ledger.unknown <= slots, (put, taken, back, stale, slots)


def test_more_unknown_than_slots_does_not_balance() -> None:
    ledger = Ledger("samples", slots=4)
    ledger.add("producer", Counts(put=10, released=3))
    ledger.lost["samples:trainer/0"] = "consumer"
    assert ledger.unknown == 7 and not ledger.balanced


def test_the_table_lines_up() -> None:
    first, second = Ledger("samples", slots=8), Ledger("priorities")
    first.add("producer", Counts(put=123456, dropped={"stop": 3}))
    first.add("consumer", Counts(taken=123450, released=123450))
    second.add("producer", Counts(put=7))
    second.add("consumer", Counts(taken=7, released=7))
    assert table([first, second]).splitlines() == [
        "stream          put    taken  in flight  unknown  dropped",
        "samples     123,456  123,450          3        0  3 (stop 3)  ok",
        "priorities        7        7          0        0  0           ok",
    ]


def test_what_was_refused_is_no_record_of_the_stream() -> None:
    ledger = Ledger("samples", slots=4)
    ledger.add("producer", Counts(put=100, released=98))
    ledger.add("consumer", Counts(taken=98, released=98, dropped={"hostile": 60, "stranger": 2, "stop": 1}))
    assert ledger.balanced
    assert (ledger.in_flight, ledger.drops) == (1, 1)
