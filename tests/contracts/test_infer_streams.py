"""Infer streams on every transport: each question gets one answer, of a version that is new enough."""

from __future__ import annotations

from typing import Any

import numpy as np

from srl.core.types import Waiting
from srl.streams.base import version
from tests.contracts.rig import Rig, answer_to, rows
from tests.errors import raises


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
