"""The far end dies by kill -9, in a process of its own, and comes back: nothing hangs, every slab is accounted for."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from srl.core.spec import to_plain
from tests.contracts.rig import Rig, answer_to, descriptors, read, rows

VIAS = ["shm", "tcp"]


class Farm:
    """Starts and kills far ends."""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        self.processes: list[subprocess.Popen[str]] = []
        self._incarnations: dict[str, int] = {}

    def start(self, near: Any, side: str, worker: str, **sizes: int) -> tuple[subprocess.Popen[str], str]:
        """A process with an end of that side, attached to `near` both ways; its end's name."""
        spec = near.spec
        name = f"{spec.name}:{worker}"
        incarnation = self._incarnations[name] = self._incarnations.get(name, -1) + 1
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.contracts.stream_peer"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[2],
        )
        self.processes.append(process)
        told = {
            "kind": spec.kind,
            "via": spec.via,
            "record": to_plain(spec.record),
            "answer": to_plain(spec.answer),
            "side": side,
            "name": name,
            "incarnation": incarnation,
            "sizes": sizes,
        }
        self._tell(process, told)
        assert process.stdout is not None
        address = json.loads(process.stdout.readline())
        address["key"] = b""
        near.attach(name, address)
        self._tell(process, {key: value for key, value in near.address().items() if key != "key"})
        return process, name

    def kill(self, process: subprocess.Popen[str]) -> None:
        process.send_signal(signal.SIGKILL)
        process.wait()
        for pipe in (process.stdin, process.stdout):
            assert pipe is not None
            pipe.close()
        self.processes.remove(process)

    def close(self) -> None:
        for process in list(self.processes):
            self.kill(process)

    @staticmethod
    def _tell(process: subprocess.Popen[str], data: Any) -> None:
        assert process.stdin is not None
        process.stdin.write(json.dumps(data) + "\n")
        process.stdin.flush()


@pytest.fixture(params=VIAS)
def farm(request: pytest.FixtureRequest) -> Iterator[Farm]:
    before = descriptors()
    rig = Rig(request.param)
    made = Farm(rig)
    yield made
    made.close()
    rig.close()
    assert descriptors() <= before


def take(consumer: Any, number: int, rig: Rig, credited: int) -> tuple[list[tuple[int, int]], int]:
    """Take that many slabs, one new credit for each."""
    slabs = []
    for _ in range(number):
        loan = rig.until(consumer.get)
        slabs.append(read(loan.tree))
        loan.release()
        consumer.credit(credited, 0)
        credited += 1
    return slabs, credited


def test_a_killed_producer_loses_only_what_it_held_and_its_credits_are_used_again(farm: Farm) -> None:
    rig = farm.rig
    consumer = rig.consumer()
    for number in range(4):
        consumer.credit(number, 0)
    credited, total = 4, 0
    for incarnation in range(3):
        process, name = farm.start(consumer, "producer", "actor/0", slots=4)
        slabs, credited = take(consumer, 40, rig, credited)
        assert slabs == [(incarnation, number) for number in range(40)]
        farm.kill(process)
        counts = consumer.detach(name, "died")
        lost = consumer.counts.dropped.pop("died", 0)
        left = []
        while (loan := consumer.get()) is not None:
            left.append(read(loan.tree)[1])
            loan.release()
            consumer.credit(credited, 0)
            credited += 1
        assert left == list(range(40, 40 + len(left)))
        assert counts.put == 40 + len(left) + lost
        assert consumer.unused_credits == 4
        total += 40 + len(left)
    assert consumer.counts.taken == consumer.counts.released == total


def test_a_killed_consumer_frees_every_slot_and_a_new_one_goes_on(farm: Farm) -> None:
    rig = farm.rig
    producer = rig.producer(slots=3)
    for _ in range(3):
        process, name = farm.start(producer, "consumer", "trainer/0")
        start = producer.counts.put
        while producer.counts.put < start + 4:
            producer.put(rig.until(producer.alloc))
        opened = rig.until(producer.alloc, 5.0) if producer.counts.released > start else None
        farm.kill(process)
        producer.detach(name, "died")
        if opened is not None:
            producer.put(opened)
            assert producer.counts.dropped["consumer_gone"] >= 1
        assert len(producer._free) == 3  # type: ignore[attr-defined]
        assert producer.alloc() is None


def test_a_killed_server_leaves_the_question_to_the_next_one(farm: Farm) -> None:
    rig = farm.rig
    client = rig.client()
    process, name = farm.start(client, "server", "policy/0")
    for number in range(1, 20):
        client.post(0, rows(2, number), 0)
        assert rig.until(lambda: client.ready(0)).tree["action"].tolist() == [number] * 2
    process.send_signal(signal.SIGSTOP)  # it will never answer this one
    client.post(0, rows(2, 77), 0)
    farm.kill(process)
    rig.pump()
    client.detach(name, "died")
    assert client.ready(0) is None
    farm.start(client, "server", "policy/0")
    assert rig.until(lambda: client.ready(0)).tree["action"].tolist() == [77, 77]
    assert client.counts.dropped == {"died": 1}


def test_a_killed_client_does_not_disturb_the_others(farm: Farm) -> None:
    rig = farm.rig
    server = rig.server()

    def serve(units: int) -> bool:
        asked = server.take(64, 1)
        if asked is None:
            return False
        done = sum(asked.sizes) >= units
        asked.reply(answer_to(asked.rows), 1)
        return done

    dies, name = farm.start(server, "client", "actor/0", units=2)
    farm.start(server, "client", "actor/1", units=2)
    for _ in range(20):
        rig.until(lambda: serve(2))
    farm.kill(dies)
    for _ in range(20):
        rig.until(lambda: serve(2))
    server.detach(name, "died")
    for _ in range(20):
        rig.until(lambda: serve(2))


def test_no_read_is_torn_while_a_publisher_is_at_work_and_when_it_is_killed(farm: Farm) -> None:
    rig = farm.rig
    reader = rig.subscriber()
    seen = -1
    for incarnation in range(2):
        process, name = farm.start(reader, "publisher", "trainer/0")
        reads = 0

        def newest() -> bool:
            nonlocal seen, reads
            found = reader.latest(seen)
            if found is None:
                return False
            assert found[0] > seen
            seen = found[0]
            number = seen & ((1 << 40) - 1)
            assert (found[1]["w"] == number).all(), "torn"
            assert (found[1]["head"]["b"] == -number).all(), "torn"
            reads += 1
            return True

        while reads < 150:
            rig.until(newest)
        assert seen >> 40 == incarnation + 1
        farm.kill(process)
        reader.detach(name, "died")
