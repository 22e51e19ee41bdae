"""What every transport promises: one suite, every implementation."""

from __future__ import annotations

import gc
import random
import resource
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from srl.core.errors import UserError
from srl.core.spec import Leaf
from srl.core.types import Waiting
from srl.streams.base import FOREIGN, version
from srl.streams.open import open_end
from srl.streams.param import HISTORY
from srl.streams.wakeup import Wakeup
from tests.contracts.rig import VIAS, Rig, answer_to, descriptors, fill, params, read, rows
from tests.errors import raises


@pytest.fixture(params=VIAS)
def rig(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Rig]:
    """A rig; at the end nothing may be left behind."""
    before, threads = descriptors(), threading.active_count()
    made = Rig(request.param, tmp_path / "stream files")
    yield made
    made.close()
    assert not list(tmp_path.rglob("*.memory")) + list(tmp_path.rglob("*.wakeup"))
    assert not list(Path("/dev/shm").glob("*srl*"))
    assert threading.active_count() == threads
    if descriptors() > before:  # a mapping goes with its last view, and views in a cycle with the next collection
        gc.collect()
    assert descriptors() <= before


# sample ---------------------------------------------------------------------------------------------------------------


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
                assert producer.put(slab)
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


def test_no_credit_no_slab_and_a_repeated_call_is_one_wish(rig: Rig) -> None:
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
    assert consumer.unused_credits == 2, "the second credit waits for a second wish"
    second = rig.until(producer.alloc)
    assert (second.credit, second.min_version) == (1, version(1, 7))


def test_two_groups_that_wait_in_one_sweep_are_two_wishes(rig: Rig) -> None:
    producer, consumer = rig.producer(slots=3), rig.consumer()
    rig.join([producer], [consumer])
    consumer.credit(0, 0)
    consumer.credit(1, 0)
    found: list[Any] = []

    def sweep() -> bool:
        found.extend(slab for slab in [producer.alloc(), producer.alloc()] if slab is not None)
        return len(found) == 2

    rig.until(sweep)
    assert {slab.credit for slab in found} == {0, 1}
    assert len({slab.slot for slab in found}) == 2


def test_the_longest_wait_gets_the_first_credit(rig: Rig) -> None:
    producers = [rig.producer(f"actor/{i}") for i in range(3)]
    consumer = rig.consumer()
    rig.join(producers, [consumer])
    for index in (2, 0, 1):
        assert producers[index].alloc() is None
        rig.settle(rounds=8)  # sockets have threads of their own, which a busy machine keeps waiting
    for number in range(3):
        consumer.credit(number, 0)
        rig.settle(rounds=8)
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


def test_a_credit_is_not_stuck_where_nobody_wants_it_and_a_wish_not_where_nobody_credits(rig: Rig) -> None:
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


def test_slabs_for_a_dead_consumer_are_counted_and_the_next_one_hears_the_wishes(rig: Rig) -> None:
    producer, consumer = rig.producer(slots=3), rig.consumer()
    rig.join([producer], [consumer])
    for number in range(3):
        consumer.credit(number, 0)
    one, two = rig.until(producer.alloc), rig.until(producer.alloc)
    producer.put(one)
    producer.detach(consumer.name, "died")
    consumer.detach(producer.name, "died")
    rig.close_end(consumer)
    assert producer.put(two)
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
    assert lost == (2 if rig.via in ("inproc", "shm", "files") else 3)


@pytest.mark.parametrize("consumers", [1, 2, 3])
def test_pair_sends_producer_i_to_consumer_i_mod_n(rig: Rig, consumers: int) -> None:
    producers = [rig.producer(f"actor/{i}", route="pair") for i in range(4)]
    takers = [rig.consumer(f"trainer/{i}", route="pair") for i in range(consumers)]
    rig.join(producers, takers)
    for taker in takers:
        for number in range(4):
            taker.credit(number, 0)
    for who, producer in enumerate(producers):
        slab = rig.until(producer.alloc)
        fill(slab.tree, who, 0)
        producer.put(slab)
        assert read(rig.until(takers[who % consumers].get).tree) == (who, 0)


def test_broadcast_gives_each_slab_to_every_consumer(rig: Rig) -> None:
    producer = rig.producer(route="broadcast", slots=1)
    takers = [rig.consumer(f"trainer/{i}", route="broadcast") for i in range(3)]
    rig.join([producer], takers)
    for number in range(5):
        assert producer.alloc() is None
        for index, taker in enumerate(takers):
            taker.credit(number * (index + 1), index)
        slab = rig.until(producer.alloc)
        assert slab.min_version == 2, "the most demanding of them"
        fill(slab.tree, 0, number)
        producer.put(slab)
        loans = [rig.until(taker.get) for taker in takers]
        assert [loan.credit for loan in loans] == [number, number * 2, number * 3]
        for loan in loans:
            assert read(loan.tree) == (0, number)
            rig.settle(1)
            assert producer.alloc() is None, "not every consumer has released it"
            loan.release()
    assert producer.counts.put == sum(taker.counts.taken for taker in takers)


def test_broadcast_goes_on_when_a_consumer_dies(rig: Rig) -> None:
    producer = rig.producer(route="broadcast", slots=2)
    stays, dies = rig.consumer("trainer/0", route="broadcast"), rig.consumer("trainer/1", route="broadcast")
    rig.join([producer], [stays, dies])
    for number in range(4):
        stays.credit(number, 0)
    dies.credit(0, 0)
    producer.put(rig.until(producer.alloc))
    rig.settle()
    assert producer.alloc() is None
    producer.detach(dies.name, "died")
    slab = rig.until(producer.alloc)
    producer.put(slab)
    for _ in range(2):
        rig.until(stays.get).release()
    rig.until(producer.alloc)
    assert producer.counts.put == stays.counts.taken + producer.counts.dropped["died"]


def test_null_needs_no_consumer_and_counts_what_nobody_gets(rig: Rig) -> None:
    producer = rig.producer(route="null", slots=2)
    for number in range(10):
        slab = producer.alloc()
        assert slab is not None
        assert (slab.credit, slab.min_version) == (number, 0)
        producer.put(slab)
    assert (producer.counts.put, producer.counts.dropped) == (10, {"null": 10})


# infer ----------------------------------------------------------------------------------------------------------------


def ask(rig: Rig, clients: list[Any], numbers: list[float], min_version: int = 0) -> None:
    for client, number in zip(clients, numbers, strict=True):
        client.post(0, rows(2, number), min_version)


def test_questions_are_stacked_and_each_client_gets_its_own_answer(rig: Rig) -> None:
    clients = [rig.client(f"actor/{i}", units=i + 1) for i in range(3)]
    server = rig.server()
    rig.join(clients, [server])
    for repeat in range(10):
        for index, client in enumerate(clients):
            client.post(0, rows(index + 1, 10 * repeat + index), 0)
        rig.until(lambda: server.waiting()[0] == 6)
        asked = server.take(100, 3)
        assert asked is not None
        assert sum(asked.sizes) == 6
        asked.reply(answer_to(asked.rows), 3)
        for index, client in enumerate(clients):
            answer = rig.until(lambda client=client: client.ready(0))
            number = 10 * repeat + index
            assert answer.version == 3
            assert answer.tree["action"].tolist() == [number] * (index + 1)
            assert (answer.tree["value"] == [number + 1, number * 2]).all()
            assert client.ready(0) is not None, "the answer stays until the next question"
    assert server.take(100, 3) is None
    assert server.counts.taken == 30


def test_take_respects_its_limit_but_takes_at_least_one(rig: Rig) -> None:
    clients = [rig.client(f"actor/{i}", units=2) for i in range(3)]
    server = rig.server()
    rig.join(clients, [server])
    ask(rig, clients, [0, 1, 2])
    rig.until(lambda: server.waiting()[0] == 6)
    assert [sum(asked.sizes) for limit in (5, 1) if (asked := server.take(limit, 0))] == [4, 2]
    assert server.waiting() == (0, 0.0)


def test_a_question_is_held_until_its_version_is_there_and_lets_others_pass(rig: Rig) -> None:
    early, late = rig.client("actor/0"), rig.client("actor/1")
    server = rig.server()
    rig.join([early, late], [server])
    early.post(0, rows(2, 1), version(2, 5))
    rig.until(lambda: server.waiting()[0] == 2)
    late.post(0, rows(2, 2), version(1, 9))
    rig.until(lambda: server.waiting()[0] == 4)
    assert server.take(10, version(1, 8)) is None
    asked = server.take(10, version(2, 4))
    assert asked is not None
    assert asked.rows["obs"][0, 0] == 2
    asked.reply(answer_to(asked.rows), version(2, 4))
    assert server.waits() == Waiting("newer parameters")
    asked = server.take(10, version(2, 5))
    assert asked is not None
    asked.reply(answer_to(asked.rows), version(2, 5))
    assert rig.until(lambda: early.ready(0)).version == version(2, 5)
    assert rig.until(lambda: late.ready(0)).version == version(2, 4)


def test_a_new_question_replaces_the_open_one_and_its_late_answer_is_ignored(rig: Rig) -> None:
    client, server = rig.client(), rig.server()
    rig.join([client], [server])
    client.post(0, rows(2, 1), 0)
    rig.until(lambda: server.waiting()[0] == 2)
    old = server.take(10, 0)
    client.post(0, rows(2, 2), 0)
    assert old is not None
    old.reply({"action": np.full(2, 99), "value": np.zeros((2, 2), np.float32)}, 0)
    rig.until(lambda: server.waiting()[0] == 2)
    assert client.ready(0) is None
    asked = server.take(10, 0)
    assert asked is not None
    asked.reply(answer_to(asked.rows), 0)
    assert rig.until(lambda: client.ready(0)).tree["action"].tolist() == [2, 2]


def test_groups_keep_to_one_server_and_are_spread_over_all(rig: Rig) -> None:
    client = rig.client(groups=4)
    servers = [rig.server(f"policy/{i}") for i in range(2)]
    rig.join([client], servers)
    homes = []
    for _ in range(2):
        for group in range(4):
            client.post(group, rows(2, group), 0)
        rig.until(lambda: [server.waiting()[0] for server in servers] == [4, 4])
        homes.append([])
        for server in servers:
            asked = server.take(10, 0)
            assert asked is not None
            homes[-1].append(sorted(set(asked.rows["obs"][:, 0].tolist())))
            asked.reply(answer_to(asked.rows), 0)
        for group in range(4):
            rig.until(lambda group=group: client.ready(group))
    assert homes[0] == homes[1]


def test_open_questions_of_a_dead_server_are_asked_elsewhere_and_answered_once(rig: Rig) -> None:
    client = rig.client(groups=2)
    servers = [rig.server(f"policy/{i}") for i in range(2)]
    rig.join([client], servers)
    client.post(0, rows(2, 5), 0)
    client.post(1, rows(2, 6), 0)
    rig.until(lambda: all(server.waiting()[0] == 2 for server in servers))
    taken = servers[0].take(10, 0)
    assert taken is not None
    client.detach(servers[0].name, "died")
    rig.until(lambda: servers[1].waiting()[0] == 4)
    taken.reply({"action": np.full(2, 99), "value": np.zeros((2, 2), np.float32)}, 0)  # its last words
    rig.settle()
    assert client.ready(0) is None
    asked = servers[1].take(10, 0)
    assert asked is not None
    asked.reply(answer_to(asked.rows), 0)
    answers = [rig.until(lambda group=group: client.ready(group)).tree["action"].tolist() for group in range(2)]
    assert answers == [[5, 5], [6, 6]]


def test_questions_wait_for_a_server_that_is_not_there_yet(rig: Rig) -> None:
    client = rig.client()
    ticket = client.post(0, rows(2, 8), 0)
    assert client.waits() == Waiting("answers")
    server = rig.server()
    rig.join([client], [server])
    assert client.waits() == Waiting("answers", (server.name.partition(":")[2],))
    asked = rig.until(lambda: server.take(10, 0))
    asked.reply(answer_to(asked.rows), 4)
    assert rig.until(lambda: client.ready(0)).version == 4
    assert client.post(0, rows(2, 8), 0) == ticket + 1


def test_questions_of_a_dead_client_are_counted_and_its_answers_go_nowhere(rig: Rig) -> None:
    dies, lives = rig.client("actor/0"), rig.client("actor/1")
    server = rig.server()
    rig.join([dies, lives], [server])
    ask(rig, [dies, lives], [1, 2])
    rig.until(lambda: server.waiting()[0] == 4)
    server.detach(dies.name, "died")
    rig.close_end(dies)
    assert server.waiting()[0] == 2
    assert server.counts.dropped == {"died": 1}
    asked = server.take(10, 0)
    assert asked is not None
    asked.reply(answer_to(asked.rows), 0)
    assert rig.until(lambda: lives.ready(0))


def test_rows_that_do_not_fit_fail_at_the_client_that_made_them(rig: Rig) -> None:
    client = rig.client(units=2)
    with raises("W01", match="first"):
        client.post(0, rows(3, 1), 0)
    with raises("W01", match="float64"):
        client.post(0, {"obs": np.zeros((2, 4)), "first": np.zeros(2, bool)}, 0)
    with raises("W01", match="missing"):
        client.post(0, {"obs": np.zeros((2, 4), np.float32)}, 0)


# param ----------------------------------------------------------------------------------------------------------------


def test_the_newest_version_wins_and_old_ones_never_come_back(rig: Rig) -> None:
    publisher, readers = rig.publisher(), [rig.subscriber(f"policy/{i}") for i in range(2)]
    rig.join([publisher], readers)
    assert all(reader.latest(-1) is None for reader in readers)
    for number in range(1, 40):
        publisher.publish(version(1, number), params(number))
    for reader in readers:
        seen = -1

        def newest(reader: Any = reader) -> bool:
            nonlocal seen
            found = reader.latest(seen)
            if found is not None:
                assert found[0] > seen
                seen, tree = found
                assert (tree["w"] == seen % (1 << 40)).all()
                assert (tree["head"]["b"] == -(seen % (1 << 40))).all()
            return seen == version(1, 39)

        rig.until(newest)
        assert reader.latest(seen) is None


def test_what_a_subscriber_holds_does_not_change_under_it(rig: Rig) -> None:
    publisher, reader = rig.publisher(), rig.subscriber()
    rig.join([publisher], [reader])
    publisher.publish(1, params(1))
    held = rig.until(lambda: reader.latest(0))[1]
    for number in range(2, 9):
        publisher.publish(number, params(number))
    rig.settle()
    assert (held["w"] == 1).all()


def test_a_late_subscriber_gets_the_newest_and_a_new_epoch_wins(rig: Rig) -> None:
    publisher = rig.publisher()
    publisher.publish(version(1, 50), params(50))
    reader = rig.subscriber()
    rig.join([publisher], [reader])
    assert rig.until(lambda: reader.latest(-1))[0] == version(1, 50)
    publisher.publish(version(1, 51), params(51))
    rig.settle()
    reader.detach(publisher.name, "died")
    restarted = rig.publisher()
    rig.join([restarted], [reader])
    restarted.publish(version(2, 40), params(40))
    assert rig.until(lambda: (found := reader.latest(version(1, 51))) and found[0] == version(2, 40))


def test_versions_only_grow(rig: Rig) -> None:
    publisher = rig.publisher()
    publisher.publish(5, params(5))
    with pytest.raises(ValueError, match="grow"):
        publisher.publish(5, params(5))
    with raises("W01", match="w"):
        publisher.publish(6, {"w": np.zeros(3, np.float32), "head": {"b": np.zeros(3, np.float32)}})


@pytest.mark.parametrize(
    ("selector", "expected"),
    [("latest-0", 20), ("latest-3", 14), ("latest-99", 2), ("uniform:0.0", 2), ("uniform:0.999", 20), ("=8", 8)],
)
def test_kept_versions_can_be_fetched(rig: Rig, selector: str, expected: int) -> None:
    publisher, reader = rig.publisher(), rig.subscriber()
    rig.join([publisher], [reader])
    for number in range(1, 21):
        publisher.publish(number, params(number), keep=number % 2 == 0)
    found, tree = rig.until(lambda: reader.fetch(selector))
    assert found == expected
    assert (tree["w"] == expected).all()
    publisher.publish(21, params(21))
    assert (tree["w"] == expected).all()
    assert rig.until(lambda: reader.fetch(selector))[0] == expected, "it can be fetched again"


def test_a_fetch_waits_until_something_was_kept_and_history_is_bounded(rig: Rig) -> None:
    publisher, reader = rig.publisher(), rig.subscriber()
    rig.join([publisher], [reader])
    publisher.publish(1, params(1))
    assert reader.fetch("latest-1") is None
    rig.settle()
    assert reader.fetch("latest-1") is None
    for number in range(2, 102):
        publisher.publish(number, params(number), keep=True)
    assert rig.until(lambda: reader.fetch("latest-1"))[0] >= 2
    assert rig.until(lambda: reader.fetch("uniform:0.0"))[0] == 2, "the oldest stays"
    assert rig.until(lambda: len(reader.kept) == HISTORY and reader.kept[-1] == 101)
    assert reader.fetch("=3") is None
    rig.settle()
    assert reader.fetch("=3") is None


def test_a_subscriber_hears_which_versions_are_kept_however_late_it_comes(rig: Rig) -> None:
    publisher, early = rig.publisher(), rig.subscriber("policy/0")
    rig.join([publisher], [early])
    assert early.kept == ()
    for number in range(1, 7):
        publisher.publish(number, params(number), keep=number % 2 == 0)
    late = rig.subscriber("policy/1")
    rig.join([publisher], [late])
    for reader in (early, late):
        assert rig.until(lambda reader=reader: reader.kept == (2, 4, 6))
    for number in range(7, 7 + 63):
        publisher.publish(number, params(number), keep=True)
    for reader in (early, late):
        # 7 and 9 stood closest to their neighbours when there was no room
        assert rig.until(lambda reader=reader: reader.kept == (2, 4, 6, 8, *range(10, 70))), (
            "what the publisher forgets is forgotten"
        )
        assert rig.until(lambda reader=reader: reader.fetch("=6"))[0] == 6
    early.detach(publisher.name, "died")
    assert early.kept == ()


@pytest.mark.parametrize("selector", ["latest", "uniform:1.5", "=x", "best"])
def test_an_unknown_selector_is_refused(rig: Rig, selector: str) -> None:
    publisher, reader = rig.publisher(), rig.subscriber()
    rig.join([publisher], [reader])
    with pytest.raises(UserError, match="latest-<n>"):
        reader.fetch(selector)


# all kinds ------------------------------------------------------------------------------------------------------------


def test_a_wrong_spec_is_refused_when_attached(rig: Rig) -> None:
    producer = rig.producer()
    other = rig.consumer(record={"who": Leaf((2,), "int64")})
    for one, peer in ((producer, other), (other, producer)):
        with raises("W01", match="disagree"):
            one.attach(peer.name, peer.address(), 0)


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
    producer.attach(consumer.name, consumer.address(), 0)
    assert producer.alloc() is None
    rig.settle()
    consumer.attach(producer.name, producer.address(), 0)
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
    to_consumer.send(31)
    to_consumer.send(5, 9, 0, 0, body)  # a slot it does not have
    to_consumer.send(5, 0, 7, 0, body)  # a credit it never got
    to_consumer.send(5, 0, 0, 1 << 40, body)  # a ledger row that does not exist
    to_consumer.send(7, 0, 7)  # gives back what it never had
    to_producer.send(6, 9)
    to_producer.send(6, slab.slot)  # releases what it was never sent
    to_server.send(16, 5, 1, 0, rows(2, 0))
    to_client.send(17, 7, 1, 0, answer_to(rows(2, 0)))
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
