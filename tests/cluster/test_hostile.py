"""Strangers and lying members, over real sockets: refused, counted, shown, at no cost. The quick part; the rest is `long`."""

from __future__ import annotations

import contextlib
import os
import queue
import socket
import ssl
import stat
import struct
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import msgpack
import pytest
import zmq

import srl.cluster.rpc as rpc
from srl.cluster.attachment import Attachment
from srl.cluster.rpc import RemoteBackend
from srl.cluster.security import SERVER_NAME, Credentials, Join, new_credentials
from srl.cluster.wire import METHOD, SERVICE, TOKEN
from srl.control.controller import Controller
from srl.core.errors import UserError
from srl.core.types import Component, HostGroup
from srl.launchers.backend import LaunchedBackend
from srl.plan.prepare import prepare
from srl.store.run_folder import RunFolder
from srl.streams.open import open_end
from srl.streams.sequence import HEADER
from srl.streams.transport import ASK, POLL, PUT, Network
from srl.streams.zmq import new_curve_keys
from srl.workers.messages import LIMIT, pack, unpack
from tests.contracts.rig import Rig
from tests.control.rig import derived, graph, with_node
from tests.streams.test_zmq import frame
from tests.waiting import until

HELLO = {"type": "hello", "run": "run", "host": 0, "life": 7, "controller": 0, "taken": 0, "waits": False}


@pytest.fixture
def door() -> Iterator[RemoteBackend]:
    """A control plane of one host with the process counter/0, which nobody has joined."""
    backend = RemoteBackend(1, {"counter/0": 0}.__getitem__, credentials=new_credentials())
    yield backend
    backend.close()


class Caller:
    """A call by hand: what it sends goes into `out`, what comes is read by `next` or `code`."""

    def __init__(self, backend: RemoteBackend, *first: bytes, token: str | None = None) -> None:
        self.out: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        for one in first:
            self.out.put(one)
        secure = grpc.ssl_channel_credentials(backend.join.ca.encode())
        options = [("grpc.ssl_target_name_override", SERVER_NAME), ("grpc.enable_http_proxy", 0)]
        self.channel = grpc.secure_channel(backend.address, secure, options)
        attach = self.channel.stream_stream(f"/{SERVICE}/{METHOD}")
        metadata = [(TOKEN, backend.join.token if token is None else token)]
        self.call = attach(iter(self.out.get, None), metadata=metadata, timeout=20)

    def code(self) -> grpc.StatusCode:
        """How the call ends."""
        with contextlib.suppress(grpc.RpcError):
            list(self.call)
        self.close()
        code: grpc.StatusCode = self.call.code()
        return code

    def close(self) -> None:
        self.out.put(None)
        self.channel.close()


# the control plane ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "lie",
    [
        b"\xdf\xff\xff\xff\xff",  # a map of four billion entries
        b"\xdd\xff\xff\xff\xff" + b"\x90" * 100,
        b"\x91" * 20_000 + b"\xc0",  # a list in a list in a list
        pack({"type": "drained", "process": "counter/0"}),
        msgpack.packb({**HELLO, "run": "another"}),
        msgpack.packb({**HELLO, "host": 1}),
        msgpack.packb({**HELLO, "host": -1}),
        msgpack.packb({**HELLO, "more": 1}),
        msgpack.packb({**HELLO, "life": "7"}),
    ],
    ids=["map bomb", "list bomb", "deep list", "no hello", "wrong run", "no such host", "negative host", "more", "text"],
)
def test_a_first_message_that_is_no_hello_of_this_run_ends_the_call(door: RemoteBackend, lie: bytes) -> None:
    assert Caller(door, lie).code() is grpc.StatusCode.INVALID_ARGUMENT
    assert door.refused == {"no hello of this run": 1}
    assert not door.supervisor(0) and door.poll(0.0) == []


@pytest.mark.parametrize(
    "lie",
    [
        b"\xc1",
        pack({"type": "drained", "process": "trainer/0"}),
        pack({"type": "report", "processes": {"trainer/0": {"time": 0.0, "cpu": 0.0, "rss": 0, "workers": {}}}}),
        pack({"type": "kill", "process": "counter/0"}),
        pack({"type": "lost", "process": "counter/0", "reason": ""}),
    ],
    ids=["garbage", "process of another host", "report of another host", "a command", "what the controller says itself"],
)
def test_a_member_that_says_what_is_not_its_business_loses_its_call(door: RemoteBackend, lie: bytes) -> None:
    caller = Caller(door, pack(HELLO), lie)
    assert caller.code() is grpc.StatusCode.OK
    assert door.refused == {"not a message of a supervisor": 1}
    assert door.poll(0.0) == []


def test_a_supervisor_of_an_earlier_controller_is_sent_away(door: RemoteBackend) -> None:
    assert Caller(door, pack({**HELLO, "controller": 7})).code() is grpc.StatusCode.PERMISSION_DENIED
    assert door.refused == {"of an earlier controller": 1} and not door.supervisor(0)


def test_a_message_that_is_too_large_ends_the_call_and_a_repeated_one_counts_once(door: RemoteBackend) -> None:
    said = pack({"type": "drained", "process": "counter/0", "seq": 1, "ack": 0})
    caller = Caller(door, pack(HELLO), said, said, said)
    got: list[Any] = []
    until(lambda: got.extend(door.poll(0.05)) or got)
    assert got == [{"type": "drained", "process": "counter/0"}]
    caller.out.put(bytes(LIMIT + 1))
    assert caller.code() in (grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.CANCELLED, grpc.StatusCode.OK)
    assert door.poll(0.0) == []


def test_a_supervisor_gives_its_token_to_no_controller_with_another_certificate() -> None:
    true = new_credentials()
    for fake in (new_credentials(), other_name(true)):
        backend = RemoteBackend(1, lambda _: 0, credentials=replace(fake, token=true.token))
        attachment = Attachment(replace(backend.join, ca=true.ca.decode()), 0)
        try:
            attachment._done.wait(0.4)
            assert not attachment.is_open and not backend.supervisor(0) and not backend.refused
        finally:
            attachment.close()
            backend.close()


def other_name(true: Credentials) -> Credentials:
    """A server certificate of another name that its own CA has signed."""
    import srl.cluster.security as security

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(security, "SERVER_NAME", "elsewhere.srl")
        fake = new_credentials()
    return replace(fake, ca=true.ca)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same limits as in `rpc.py`, but in tenths of a second: a test must not wait."""
    short = {"grpc.server_handshake_timeout_ms": 300, "grpc.max_connection_idle_ms": 300}
    monkeypatch.setattr(rpc, "_SERVER", [(name, short.get(name, value)) for name, value in rpc._SERVER])
    monkeypatch.setattr(rpc, "_HELLO_WITHIN", 0.2)


def test_a_caller_that_sends_nothing_more_is_dropped(impatient: None, door: RemoteBackend) -> None:
    """At each step of the way in: after the connection, within TLS, after TLS, after the token."""
    silent = Caller(door)
    assert silent.code() is grpc.StatusCode.INVALID_ARGUMENT
    name, _, port = door.address.rpartition(":")
    context = ssl.create_default_context(cadata=door.join.ca)
    context.verify_flags |= ssl.VERIFY_X509_STRICT  # the default from Python 3.13 on
    began = time.monotonic()
    with (
        socket.create_connection((name, int(port))) as mute,
        socket.create_connection((name, int(port))) as slow,
        context.wrap_socket(socket.create_connection((name, int(port))), server_hostname=SERVER_NAME) as secure,
    ):
        for one in (mute, slow, secure):
            one.settimeout(10)
        for byte in b"\x16\x03\x01\x02\x00\x01":  # the beginning of a TLS record, one byte at a time
            slow.sendall(bytes([byte]))
        assert mute.recv(1) == b"" and slow.recv(1) == b""
        while secure.recv(1000):
            pass
    assert time.monotonic() - began < 9
    idle = Caller(door, token="")
    with contextlib.suppress(grpc.RpcError):
        list(idle.call)
    states: list[Any] = []
    idle.channel.subscribe(states.append)
    until(lambda: grpc.ChannelConnectivity.IDLE in states)  # the server has closed the connection
    idle.close()


# streams --------------------------------------------------------------------------------------------------------------


@pytest.fixture
def rig() -> Iterator[Rig]:
    made = Rig("curve")
    yield made
    made.close()


ENDS = {"sample": ("producer", "consumer", PUT), "infer": ("client", "server", ASK), "param": ("subscriber", "publisher", POLL)}


@contextlib.contextmanager
def strangers(endpoint: str, *each: dict[str, Any]) -> Iterator[list[Any]]:
    """DEALERs with these options that connect to it."""
    context = zmq.Context()
    dealers = [context.socket(zmq.DEALER) for _ in each]
    try:
        for dealer, options in zip(dealers, each, strict=True):
            for name, value in options.items():
                setattr(dealer, name, value)
            dealer.connect(endpoint)
        yield dealers
    finally:
        context.destroy(linger=0)


@pytest.mark.parametrize("kind", ENDS)
@pytest.mark.parametrize(
    ("knows", "counted"),
    [("nothing", {"hostile", "handshake"}), ("a wrong key", {"hostile"}), ("the key", {"stranger"})],
)  # with no key both sides refuse the other's mechanism: who hangs up first decides what it is
def test_a_stranger_at_a_stream_is_refused_whatever_it_knows(rig: Rig, kind: str, knows: str, counted: set[str]) -> None:
    """It says that it is a member, and knows no key, another key than the server's, or the server's but no member's."""
    spoke, hub = (getattr(rig, side)() for side in ENDS[kind][:2])
    rig.join([spoke], [hub])
    rig.settle()
    address = hub.address()
    public, secret = new_curve_keys()
    options: dict[str, Any] = {"routing_id": spoke.source.to_bytes(8, "little")}
    if knows != "nothing":
        right = address["key"] if knows == "the key" else public
        options |= {"curve_publickey": public, "curve_secretkey": secret, "curve_serverkey": right}
    before = hub._by_name[spoke.name].wire.sequence._received
    with strangers(address["endpoint"], options) as (dealer,):
        dealer.send(frame(hub, ENDS[kind][2], 1))
        rig.until(lambda: hub.counts.dropped)
    assert set(hub.counts.dropped) <= counted
    assert hub._by_name[spoke.name].wire.sequence._received == before


def test_a_member_of_one_stream_is_a_stranger_at_another(rig: Rig) -> None:
    """Its key is known to the process, and yet not let in where it has no business."""
    wakeup, keys = rig.wakeup(), new_curve_keys()
    ends = [
        open_end(rig.spec(kind), side, name=f"{kind}:trainer/0", wakeup=wakeup, network=Network(curve=keys))
        for kind, side in (("sample", "consumer"), ("param", "publisher"))
    ]
    rig.ends += ends
    consumer, publisher = ends
    producer = rig.producer()
    rig.join([producer], [consumer])
    rig.settle()
    public, secret = producer.transport._curve  # type: ignore[attr-defined]
    mine = {"curve_publickey": public, "curve_secretkey": secret, "curve_serverkey": publisher.address()["key"]}
    with strangers(publisher.address()["endpoint"], mine):
        rig.until(lambda: publisher.counts.dropped.get("stranger", 0) >= 1)
    assert "stranger" not in consumer.counts.dropped


def test_a_member_that_comes_too_early_is_not_counted_as_a_stranger(rig: Rig) -> None:
    producer, consumer = rig.producer(), rig.consumer()
    producer.attach(consumer.name, consumer.address())
    rig.until(lambda: consumer.counts.dropped.get("stranger", 0) >= 1)
    consumer.attach(producer.name, producer.address())
    consumer.credit(0, 0)
    rig.until(producer.alloc)
    rig.settle()
    assert consumer.counts.dropped.get("stranger", 0) == 0


def test_what_was_heard_on_the_wire_and_is_said_again_changes_nothing(rig: Rig) -> None:
    """A man in the middle has the bytes of an encrypted connection: it says them again there, and on a new connection."""
    producer, consumer = rig.producer(slots=4), rig.consumer()
    with Repeater(consumer.address()["endpoint"]) as middle:
        producer.attach(consumer.name, {**consumer.address(), "endpoint": middle.endpoint})
        consumer.attach(producer.name, producer.address())
        for number in range(3):
            consumer.credit(number, 0)
            producer.put(rig.until(producer.alloc))
            rig.until(consumer.get).release()
        middle.say_again()
        rig.until(lambda: consumer.counts.dropped.get("hostile", 0) >= 2)
        consumer.credit(3, 0)
        producer.put(rig.until(producer.alloc))
        rig.until(consumer.get).release()
    assert consumer.counts.taken == 4 and producer.counts.put == 4


class Repeater:
    """Passes one connection on, and can send what it heard from the near side a second time."""

    def __init__(self, endpoint: str) -> None:
        name, _, port = endpoint.removeprefix("tcp://").partition(":")
        self._target = (name, int(port))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.endpoint = f"tcp://127.0.0.1:{self._listener.getsockname()[1]}"
        self._heard: list[bytes] = []
        self._open: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def __enter__(self) -> Repeater:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for one in self._open:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()
        for thread in self._threads:
            thread.join()

    def say_again(self) -> None:
        heard = b"".join(self._heard)
        self._open[1].sendall(self._heard[-1])
        fresh = socket.create_connection(self._target)
        self._open.append(fresh)
        fresh.sendall(heard)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                far = socket.create_connection(self._target)
                self._open += [near, far]
                for pair in ((near, far, self._heard), (far, near, [])):
                    self._threads.append(threading.Thread(target=self._pass_on, args=pair))
                    self._threads[-1].start()

    def _pass_on(self, one: socket.socket, other: socket.socket, heard: list[bytes]) -> None:
        with contextlib.suppress(OSError):
            while data := one.recv(1 << 16):
                heard.append(data)
                other.sendall(data)
        with contextlib.suppress(OSError):
            other.shutdown(socket.SHUT_RDWR)


def greeting(mechanism: bytes = b"CURVE") -> bytes:
    """How a ZMTP 3.1 connection begins."""
    return b"\xff" + bytes(8) + b"\x7f" + b"\x03\x01" + mechanism.ljust(20, b"\0") + bytes(32)


LIES = {
    "long command": greeting() + b"\x06" + struct.pack(">Q", 1 << 62),
    "negative length": greeting() + b"\x06" + b"\xff" * 8,
    "message before the handshake": greeting() + b"\x02" + struct.pack(">Q", 1 << 40) + bytes(100),
    "wrong hello": greeting() + b"\x04\xc8\x05HELLO" + bytes(194),
    "plain": greeting(b"NULL") + b"\x04\x29\x05READY\x0bSocket-Type\0\0\0\x06DEALER" + bytes(7),
}


@pytest.mark.parametrize("lie", LIES.values(), ids=LIES)
def test_lying_lengths_on_an_encrypted_socket_cost_neither_memory_nor_the_member(rig: Rig, lie: bytes) -> None:
    producer, consumer = rig.producer(), rig.consumer()
    rig.join([producer], [consumer])
    name, _, port = consumer.address()["endpoint"].removeprefix("tcp://").partition(":")
    before = resident()
    for number in range(20):
        with socket.create_connection((name, int(port))) as one:
            one.sendall(lie)
            one.settimeout(0.02)
            with contextlib.suppress(OSError):
                one.recv(1000)
        consumer.credit(number, 0)
        producer.put(rig.until(producer.alloc))
        rig.until(consumer.get).release()
    assert consumer.counts.taken == 20
    rig.until(lambda: consumer.transport.disconnects + consumer.counts.dropped.get("hostile", 0) >= 20)
    assert resident() - before < 20e6


def resident() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * float(os.sysconf("SC_PAGE_SIZE"))


# secrets --------------------------------------------------------------------------------------------------------------


def test_no_secret_is_in_arguments_environments_or_files_and_strangers_are_shown(tmp_path: Path) -> None:
    work = graph(counters=2, hosts={"far": HostGroup()}, launcher=Component("loopback"), via="zmq", stop={"seconds": 60})
    work = with_node(work, "counter", hosts="far")
    folder = RunFolder.create(tmp_path, "rig", 1)
    cluster = LaunchedBackend(work, folder.path)
    controller = Controller(work, folder=folder, derived=derived(work), backend=lambda: cluster)
    secrets = [cluster.remote._credentials.token.encode(), cluster.remote._credentials.key.split(b"\n")[1]]
    found: list[str] = []

    def look() -> None:
        until(lambda: controller.totals.env_steps > 0)
        found.extend(holding(secrets, folder.path))
        assert Caller(cluster.remote, token="x" * 43).code() is grpc.StatusCode.UNAUTHENTICATED
        until(lambda: controller.totals.refused)
        controller.stop()

    looker = threading.Thread(target=look)
    looker.start()
    result = controller.run()
    looker.join()
    assert result.kind == "done", result.format()
    assert not found and not holding(secrets, folder.path)
    assert "control plane: no or wrong token 1" in result.format()
    assert "was refused at control plane: no or wrong token" in folder.events.read_text()
    assert stat.S_IMODE(folder.path.stat().st_mode) == 0o700
    assert all(stat.S_IMODE(log.stat().st_mode) == 0o600 for log in folder.logs.iterdir())


def holding(secrets: list[bytes], folder: Path) -> list[str]:
    """Files of the run, arguments and environments of all processes of this user that have one of these."""
    places = [path for path in folder.rglob("*") if path.is_file()]
    places += [one / name for one in Path("/proc").iterdir() if one.name.isdigit() for name in ("cmdline", "environ")]
    found = []
    for place in places:
        with contextlib.suppress(OSError):
            data = place.read_bytes()
            found += [str(place)] if any(secret in data for secret in secrets) else []
    return found


def test_a_join_file_is_for_its_owner_alone(tmp_path: Path) -> None:
    join = Join("run", "127.0.0.1:1", "ca", "token")
    path = tmp_path / "join.json"
    path.write_text("older, and open to all")
    path.chmod(0o644)
    join.write(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert Join.read_file(path) == join
    path.chmod(0o644)
    with pytest.raises(UserError, match="must not be readable by other users"):
        Join.read_file(path)


def test_keys_certificates_and_tokens_are_of_one_run_alone() -> None:
    one, other = new_credentials(), new_credentials()
    assert all(getattr(one, name) != getattr(other, name) for name in ("ca", "certificate", "key", "token"))
    assert one.admits(one.token) and not one.admits(other.token) and not one.admits("") and not one.admits("\xe9")


def test_an_insecure_run_says_so_at_each_start_and_its_control_plane_is_still_encrypted(tmp_path: Path) -> None:
    over = ["hosts.far.count=1", "workers.actor.hosts=far", "launcher=loopback", "layout=impala", "insecure=true"]
    lines = dict(prepare("cartpole", over, inspect=False).lines())
    assert lines["insecure"] == "streams between hosts are not encrypted: whoever reaches their ports can read them"
    assert "insecure" not in dict(prepare("cartpole", over[:-1], inspect=False).lines())
    work = graph(hosts={"far": HostGroup()}, launcher=Component("loopback"), via="zmq", insecure=True)
    work = with_node(work, "counter", hosts="far")
    cluster = LaunchedBackend(work, tmp_path)
    assert cluster.network["encrypt"] is False
    with grpc.insecure_channel(cluster.remote.address) as channel:
        call = channel.stream_stream(f"/{SERVICE}/{METHOD}")(iter([pack(HELLO)]), timeout=10)
        with pytest.raises(grpc.RpcError) as caught:
            list(call)
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
    result = Controller(work, folder=None, derived=derived(work), backend=lambda: cluster).run()
    assert result.kind == "done", result.format()


# long: many of them ---------------------------------------------------------------------------------------------------


@pytest.mark.long
def test_hundreds_of_strangers_leave_the_control_plane_as_it_was(door: RemoteBackend) -> None:
    before, threads = resident(), threading.active_count()
    for number in range(300):
        token = "x" * (number % 100) if number % 2 else door.join.token
        assert Caller(door, os.urandom(1 + number), token=token).code() in (
            grpc.StatusCode.INVALID_ARGUMENT,
            grpc.StatusCode.UNAUTHENTICATED,
        )
    assert sum(door.refused.values()) == 300
    assert resident() - before < 60e6 and threading.active_count() <= threads + 2
    caller = Caller(door, pack(HELLO))
    assert unpack(next(caller.call))["type"] == "welcome"
    caller.close()


@pytest.mark.long
@pytest.mark.parametrize("kind", ENDS)
def test_hundreds_of_random_connections_leave_a_stream_as_it_was(rig: Rig, kind: str) -> None:
    spoke, hub = (getattr(rig, side)() for side in ENDS[kind][:2])
    rig.join([spoke], [hub])
    rig.settle()
    name, _, port = hub.address()["endpoint"].removeprefix("tcp://").partition(":")
    before = resident()
    for number in range(500):
        with socket.create_connection((name, int(port))) as one:
            one.sendall((greeting() if number % 2 else b"") + os.urandom(number))
        rig.pump()
    rig.settle()
    assert resident() - before < 30e6
    wire = hub._by_name[spoke.name].wire
    wire.arrived(HEADER.pack(hub.transport.schema, 99, 0, 0, 0, 0, wire.sequence._received + 1, 0) + b"z")
    assert hub.counts.dropped["hostile"] >= 1
    assert spoke.name in hub._by_name


@pytest.mark.long
@pytest.mark.parametrize("trickle", [b"", greeting()], ids=["mute", "greeting"])
def test_connections_that_never_finish_their_handshake_are_dropped(rig: Rig, trickle: bytes) -> None:
    producer, consumer = rig.producer(), rig.consumer()
    rig.join([producer], [consumer])
    name, _, port = consumer.address()["endpoint"].removeprefix("tcp://").partition(":")
    slow = [socket.create_connection((name, int(port))) for _ in range(50)]
    sent = dict.fromkeys(slow, 0)
    end = time.monotonic() + 20
    while slow and time.monotonic() < end:
        for one in list(slow):
            one.setblocking(False)
            try:
                if trickle and sent[one] < len(trickle):
                    sent[one] += one.send(trickle[sent[one] : sent[one] + 1])
                closed = one.recv(1000) == b""
            except BlockingIOError:
                closed = False
            except OSError:
                closed = True
            if closed:
                slow.remove(one)
                one.close()
        rig.pump()
        threading.Event().wait(0.05)
    assert not slow
    consumer.credit(0, 0)
    producer.put(rig.until(producer.alloc))
    rig.until(consumer.get).release()
