"""What only a network can do: cut links, strangers, lying frames."""

from __future__ import annotations

import os
import selectors
import socket
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import zmq

from srl.core.errors import WireError
from srl.core.spec import Leaf
from srl.streams.open import open_end
from srl.streams.sequence import HEADER
from srl.streams.transport import ASK, POLL, PUT, Network
from srl.streams.zmq import new_curve_keys
from tests.contracts.rig import Rig, answer_to, fill, params, read, rows


class Proxy:
    """A TCP link that can be cut and healed: bytes on the way at a cut are lost, new connections are refused until it heals."""

    def __init__(self, endpoint: str) -> None:
        host, _, port = endpoint.removeprefix("tcp://").partition(":")
        self._target = (host, int(port))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.endpoint = f"tcp://127.0.0.1:{self._listener.getsockname()[1]}"
        self._open = True
        self._pairs: dict[socket.socket, socket.socket] = {}
        self._lock = threading.Lock()
        self._ask, self._asked = socket.socketpair()
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def cut(self) -> None:
        with self._lock:
            self._open = False
            for one in list(self._pairs):
                one.close()
            self._pairs.clear()
        self._ask.send(b"c")

    def heal(self) -> None:
        with self._lock:
            self._open = True

    def close(self) -> None:
        self.cut()
        self._ask.send(b"x")
        self._thread.join()
        self._listener.close()
        self._ask.close()
        self._asked.close()

    def _serve(self) -> None:
        while True:
            selector = selectors.DefaultSelector()
            with self._lock:
                for one in self._pairs:
                    selector.register(one, selectors.EVENT_READ)
            selector.register(self._listener, selectors.EVENT_READ)
            selector.register(self._asked, selectors.EVENT_READ)
            ready = [key.fileobj for key, _ in selector.select()]
            selector.close()
            if self._asked in ready and b"x" in self._asked.recv(64):
                return
            with self._lock:
                for one in ready:
                    if one is self._listener:
                        self._accept()
                    elif isinstance(one, socket.socket) and one in self._pairs:
                        self._pass_on(one)

    def _accept(self) -> None:
        near, _ = self._listener.accept()
        if not self._open:
            near.close()
            return
        far = socket.create_connection(self._target)
        self._pairs[near], self._pairs[far] = far, near

    def _pass_on(self, one: socket.socket) -> None:
        try:
            data = one.recv(1 << 14)
            if data:
                self._pairs[one].sendall(data)
                return
        except OSError:
            pass
        other = self._pairs.pop(one)
        self._pairs.pop(other, None)
        one.close()
        other.close()


@pytest.fixture
def rig() -> Iterator[Rig]:
    made = Rig("tcp")
    yield made
    made.close()


@pytest.fixture
def proxies() -> Iterator[list[Proxy]]:
    made: list[Proxy] = []
    yield made
    for proxy in made:
        proxy.close()


def join_through(proxies: list[Proxy], spoke: Any, hub: Any) -> Proxy:
    """Join two ends by a link that can be cut."""
    proxy = Proxy(hub.address()["endpoint"])
    proxies.append(proxy)
    spoke.attach(hub.name, {**hub.address(), "endpoint": proxy.endpoint})
    hub.attach(spoke.name, spoke.address())
    return proxy


def test_no_slab_is_lost_or_comes_twice_when_the_link_is_cut_and_heals(rig: Rig, proxies: list[Proxy]) -> None:
    producer, consumer = rig.producer(slots=6), rig.consumer()
    proxy = join_through(proxies, producer, consumer)
    for number in range(12):
        consumer.credit(number, 0)
    state = {"made": 0, "goal": 0, "credited": 12}
    arrived: list[int] = []

    def make() -> None:
        while (slab := producer.alloc()) is not None:
            fill(slab.tree, 0, state["made"])
            producer.put(slab)
            state["made"] += 1

    def sweep() -> bool:
        make()
        while (loan := consumer.get()) is not None:
            arrived.append(read(loan.tree)[1])
            loan.release()
            consumer.credit(state["credited"], 0)
            state["credited"] += 1
        return len(arrived) >= state["goal"]

    for _ in range(2):
        state["goal"] = len(arrived) + 60
        rig.until(sweep)
        proxy.cut()
        make()
        for _ in range(30):
            rig.pump()
            sweep()
        proxy.heal()
    state["goal"] = len(arrived) + 60
    rig.until(sweep)
    assert arrived == list(range(len(arrived)))
    assert producer.counts.put - consumer.counts.taken <= 6
    assert consumer.counts.dropped.get("hostile", 0) == 0
    assert consumer.transport.disconnects >= 2  # type: ignore[attr-defined]


def test_questions_and_versions_survive_a_cut(rig: Rig, proxies: list[Proxy]) -> None:
    client, server = rig.client(), rig.server()
    publisher, reader = rig.publisher(), rig.subscriber()
    links = [join_through(proxies, client, server), join_through(proxies, reader, publisher)]

    def answered() -> Any:
        if (asked := server.take(10, 0)) is not None:
            asked.reply(answer_to(asked.rows), 0)
        return client.ready(0)

    for number in range(1, 4):
        publisher.publish(number, params(number))
        assert rig.until(lambda number=number: reader.latest(number - 1))[0] == number
        for proxy in links:
            proxy.cut()
        client.post(0, rows(2, number), 0)
        publisher.publish(number + 100 * number, params(number))
        for _ in range(20):
            rig.pump()
        for proxy in links:
            proxy.heal()
        assert rig.until(answered).tree["action"].tolist() == [number, number]
        assert rig.until(lambda number=number: (found := reader.latest(number)) and found[0] == 101 * number)
        publisher = republish(rig, publisher, reader, links, proxies)


def republish(rig: Rig, publisher: Any, reader: Any, links: list[Proxy], proxies: list[Proxy]) -> Any:
    """A publisher that starts from nothing, on a link of its own."""
    reader.detach(publisher.name, "died")
    reader._seen, reader._pending = -1, None
    rig.close_end(publisher)
    fresh = rig.publisher()
    links[1] = join_through(proxies, reader, fresh)
    return fresh


def frame(end: Any, kind: int, sequence: int, body: bytes = b"", slot: int = 0, number: int = 0) -> bytes:
    return HEADER.pack(end.transport.schema, kind, 0, slot, number, 0, sequence, 0) + body


@pytest.mark.parametrize("kind", ["sample", "infer", "param"])
def test_truncated_and_oversized_and_random_frames_are_refused_counted_and_cost_nothing(rig: Rig, kind: str) -> None:
    ends = {"sample": (rig.producer, rig.consumer), "infer": (rig.client, rig.server), "param": (rig.subscriber, rig.publisher)}
    spoke, hub = (make() for make in ends[kind])
    rig.join([spoke], [hub])
    rig.settle()
    context = zmq.Context()
    stranger = context.socket(zmq.DEALER)
    stranger.linger = 0
    stranger.routing_id = os.urandom(8).replace(b"\0", b"\1")
    stranger.connect(hub.address()["endpoint"])
    body = {"sample": PUT, "infer": ASK, "param": POLL}[kind]
    wire = hub._by_name[spoke.name].wire
    following = wire.sequence._received + 1
    lies = [frame(hub, 99, following, b"z"), frame(hub, body, following, b"z" * 7), frame(hub, body, following, bytes(1 << 16))]
    junk = [b"", b"x", os.urandom(63), os.urandom(64), os.urandom(5000)]
    for one in junk + lies:
        stranger.send(one)
    rig.until(lambda: hub.counts.dropped.get("hostile") == len(junk))
    rig.until(lambda: hub.counts.dropped.get("stranger") == len(lies))
    for one in junk + lies:
        wire.arrived(one)
    assert hub.counts.dropped["hostile"] == 2 * len(junk) + len(lies)
    assert wire.sequence._received == following - 1, "what was refused is not acknowledged"
    assert hub.transport.disconnects == 0
    stranger.send(bytes(1 << 24))
    rig.until(lambda: hub.transport.disconnects == 1)
    context.destroy(linger=0)


def test_bytes_that_are_no_zeromq_disturb_nobody(rig: Rig) -> None:
    producer, consumer = rig.producer(), rig.consumer()
    rig.join([producer], [consumer])
    host, _, port = consumer.address()["endpoint"].removeprefix("tcp://").partition(":")
    for number in range(60):
        for junk in (b"GET / HTTP/1.1\r\n\r\n", os.urandom(200), b"\xff" + b"\0" * 8 + b"\x7f\3\1NULL" + os.urandom(200)):
            with socket.create_connection((host, int(port))) as raw:
                raw.sendall(junk)
        consumer.credit(number, 0)
        producer.put(rig.until(producer.alloc))
        rig.until(consumer.get).release()
    assert consumer.counts.taken == 60
    rig.until(lambda: consumer.counts.dropped.get("hostile", 0) >= 60)


def test_only_peers_with_a_known_key_come_in() -> None:
    rig = Rig("curve")
    producer, consumer, stranger = rig.producer(), rig.consumer(), rig.producer("actor/1")
    rig.join([producer], [consumer])
    stranger.attach(consumer.name, consumer.address())  # the consumer was never told of it
    consumer.credit(0, 0)
    assert stranger.alloc() is None
    assert rig.until(producer.alloc).credit == 0
    rig.until(lambda: consumer.counts.dropped.get("stranger", 0) >= 2)
    assert stranger.alloc() is None
    clear = open_end(rig.spec("sample"), "producer", name="sample:actor/2", wakeup=rig.wakeup(), network=Network())
    rig.ends.append(clear)
    with pytest.raises(WireError, match="encrypts"):
        clear.attach(consumer.name, consumer.address())
    clear.attach(consumer.name, {**consumer.address(), "key": b""})
    assert clear.alloc() is None
    rig.until(lambda: consumer.counts.dropped.get("handshake", 0) >= 1)
    rig.close()


def test_curve_keys_differ_each_time() -> None:
    assert new_curve_keys() != new_curve_keys()


def test_compressed_slabs_arrive_as_they_were_and_lying_blocks_are_refused(rig: Rig) -> None:
    record = {"frames": Leaf((4, 84, 84), "uint8"), "reward": Leaf((4,), "float32"), "tiny": Leaf((3,), "uint8")}
    more: dict[str, Any] = {"record": record, "compress": "lz4"}
    producer, consumer = rig.producer(**more), rig.consumer(**more)
    rig.join([producer], [consumer])
    rig.settle()
    for number in range(5):
        consumer.credit(number, 0)
        slab = rig.until(producer.alloc)
        slab.tree["frames"][:] = number
        slab.tree["frames"][0, :5] = np.random.default_rng(number).integers(0, 255, (5, 84))
        slab.tree["reward"][:] = number
        slab.tree["tiny"][:] = [1, 2, number]
        sent = {key: value.copy() for key, value in slab.tree.items()}
        producer.put(slab)
        loan = rig.until(consumer.get)
        assert all((loan.tree[key] == value).all() for key, value in sent.items())
        loan.release()
    rig.settle()
    wire = consumer._by_name[producer.name].wire  # type: ignore[attr-defined]
    good = wire._packers[PUT].pack(sent)
    sequence = wire.sequence._received + 1
    for lie in (good[:-1], b"\xff\xff\xff\xff" + good[4:], good[:4] + b"\xff" * 200 + good[204:], b"", good + b"x"):
        before = consumer.counts.dropped.get("hostile", 0)
        wire.arrived(frame(consumer, PUT, sequence, bytes(lie)))
        assert consumer.counts.dropped.get("hostile", 0) == before + 1
    other = rig.consumer("trainer/1", record=record)
    with pytest.raises(WireError, match="compress"):
        other.attach(producer.name, producer.address())


@pytest.mark.parametrize("sent", [b"", b"\xff" + bytes(8) + b"\x7f\3\1NULL" + bytes(48)])
def test_a_connection_that_breaks_during_its_handshake_is_not_hostile(rig: Rig, sent: bytes) -> None:
    """As those of peers that tried to connect again and again while this process was stopped."""
    consumer = rig.consumer()
    host, _, port = consumer.address()["endpoint"].removeprefix("tcp://").partition(":")
    for _ in range(3):
        with socket.create_connection((host, int(port))) as raw:
            raw.sendall(sent)
    rig.until(lambda: consumer.transport.disconnects == 3)  # type: ignore[attr-defined]
    rig.until(lambda: consumer.counts.dropped == {"handshake": 3})
