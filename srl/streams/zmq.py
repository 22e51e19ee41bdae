"""Streams between hosts: one ZeroMQ frame per record, ROUTER where many meet, a DEALER per peer elsewhere."""

from __future__ import annotations

import hashlib
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, Literal

import zmq
from zmq.utils.monitor import recv_monitor_message

from srl.core.errors import HostileFrame, WireError
from srl.core.tree import Tree
from srl.streams.codec import Arena, Layout, Packer
from srl.streams.curve import Gate, gate_of
from srl.streams.inproc import zeroed
from srl.streams.peers import Peers
from srl.streams.sequence import HEADER, Head, Sequence
from srl.streams.transport import Network, Transport, Wire
from srl.streams.wakeup import Wakeup

_HUBS = ("consumer", "server", "publisher", "rank")
_LARGE = 500_000
"""From here on frames are handed to ZeroMQ without a copy."""
_SLACK = 1 << 16
"""Frames that are a little too large are refused and counted; at larger ones ZeroMQ cuts the connection before it allocates."""
_UNITS = 4096
"""Envs that one question may hold."""
_REMEMBERED = 4096
"""Unknown senders whose messages are counted one by one."""
_BEAT = 0.1
_PATIENCE = 5
"""Beats without an acknowledgement after which a link is probed."""
_REFUSED = {
    zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL: "hostile",
    zmq.EVENT_HANDSHAKE_FAILED_AUTH: "stranger",
    zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL: "handshake",  # also of peers that wait for a process that is stopped
}
_EVENTS = sum(_REFUSED) | zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_DISCONNECTED
_OPTIONS = {
    zmq.LINGER: 0,
    zmq.HEARTBEAT_IVL: 1000,
    zmq.HEARTBEAT_TIMEOUT: 3000,
    zmq.HEARTBEAT_TTL: 3000,
    zmq.CONNECT_TIMEOUT: 2000,
    zmq.HANDSHAKE_IVL: 2000,
    zmq.RECONNECT_IVL: 100,
    zmq.RECONNECT_IVL_MAX: 1000,
    zmq.TCP_MAXRT: 3000,
    zmq.BACKLOG: 4096,
}


class ZmqTransport(Transport):
    """An end's sockets."""

    by: Literal["bytes"] = "bytes"

    def __init__(self, wakeup: Wakeup, network: Network) -> None:
        self.wakeup = wakeup
        self._bind, self._curve = network.bind, network.curve
        self._gate: Gate | None = gate_of(wakeup) if self._curve else None
        self._router: _Socket | None = None
        self._wires: dict[int, _ZmqWire] = {}
        self._endpoint = ""
        self._unknown: Counter[int] = Counter()
        """Senders that this end does not know, or not yet."""
        self.disconnects = 0
        """Connections that broke, also during their handshake, or that ZeroMQ cut because a frame was larger than agreed."""

    def open(self, end: Peers[Any], arena: Arena) -> Any:
        self.end = end
        self._domain = f"{end.source:x}".encode()
        self.schema = int.from_bytes(hashlib.sha256(f"{end.spec.name} {end._agreed}".encode()).digest()[:8], "little")
        records = [Layout(spec) for spec in (end.spec.record, end.spec.answer)]
        units = _UNITS if end.spec.kind == "infer" else 1
        self._largest = units * max(Packer(record, end.spec.compress).largest for record in records)
        if end.side in _HUBS:
            self._router = self._open_router()
        return zeroed(arena.size)

    def address(self) -> dict[str, Any]:
        return {"endpoint": self._endpoint, "key": self._curve[0] if self._curve else b""}

    def connect(self, source: int, address: Mapping[str, Any], bodies: Mapping[int, Layout]) -> Wire:
        if bool(address["key"]) != bool(self._curve):
            raise WireError(
                f"{self.end.name} and {address['name']}: one end encrypts and the other does not",
                ("try", "give both processes a CURVE key pair, or neither"),
            )
        packers = {kind: Packer(layout, self.end.spec.compress) for kind, layout in bodies.items()}
        largest = max(packer.largest for packer in packers.values())
        if largest > self._largest:
            raise WireError(
                f"{address['name']}: records larger than {self._largest} bytes",
                ("try", f"groups of at most {_UNITS} envs on the stream {self.end.spec.name}"),
            )
        if self._router is not None and not self.end.dials(address):
            early = self._unknown.pop(source, 0)
            if self._gate is not None:
                early += self._gate.allow(self._domain, address["key"])
            if early:  # no stranger: this end had not yet been told of it
                self.end.counts.drop("stranger", -early)
            wire = _ZmqWire(self, self._router, source, packers)
        else:
            wire = _ZmqWire(self, self._open_dealer(address), None, packers)
        wire.socket.expect(largest)
        self._wires[source] = wire
        wire.source, wire.key = source, address["key"]
        wire.sequence.hello()
        return wire

    def close(self) -> None:
        for wire in list(self._wires.values()):
            wire.close()
        if self._router is not None:
            self._router.close()
            self._router = None

    # what sockets and wires use -------------------------------------------------------------------------------------

    def arrived(self, identity: bytes, frame: Any) -> None:
        """A frame came in at the router."""
        wire = self._wires.get(int.from_bytes(identity, "little")) if len(identity) == 8 else None
        if wire is not None:
            wire.arrived(frame)
        elif len(frame) < HEADER.size or Head._make(HEADER.unpack_from(frame)).schema != self.schema:
            self.end.refuse()
        else:
            self.end.counts.drop("stranger")  # perhaps only early: it sends again what is not acknowledged
            name = int.from_bytes(identity, "little")
            if name in self._unknown or len(self._unknown) < _REMEMBERED:
                self._unknown[name] += 1

    def forget(self, wire: _ZmqWire) -> None:
        if self._wires.pop(wire.source, None) is not None and self._gate is not None and wire.socket is self._router:
            self._gate.forbid(self._domain, wire.key)

    def _open_router(self) -> _Socket:
        socket = self._socket(zmq.ROUTER)
        socket.set(zmq.ROUTER_HANDOVER, 1)
        socket.set(zmq.ROUTER_MANDATORY, 1)
        if self._curve:
            socket.curve_server = True
            socket.zap_domain = self._domain
        router = _Socket(self, socket)
        if self._bind.startswith("ipc://"):  # an abstract name: no file stays behind
            socket.bind(f"{self._bind}srl-{self.end.source:x}")
        else:
            socket.bind(f"{self._bind}:0")
        self._endpoint = socket.get(zmq.LAST_ENDPOINT).decode().rstrip("\0")
        return router

    def _open_dealer(self, address: Mapping[str, Any]) -> _Socket:
        socket = self._socket(zmq.DEALER)
        socket.set(zmq.ROUTING_ID, self.end.source.to_bytes(8, "little"))
        socket.set(zmq.IMMEDIATE, 1)
        if self._curve:
            socket.curve_serverkey = address["key"]
        dealer = _Socket(self, socket)
        socket.connect(address["endpoint"])
        return dealer

    def _socket(self, kind: int) -> Any:
        socket = self.wakeup.context.socket(kind)
        for option, value in _OPTIONS.items():
            socket.set(option, value)
        socket.set(zmq.MAXMSGSIZE, self._largest + _SLACK)
        if self._curve:
            socket.curve_publickey, socket.curve_secretkey = self._curve
        return socket


class IpcTransport(ZmqTransport):
    """The same over local sockets, whose names leave no files behind: for ends of one host."""

    def __init__(self, wakeup: Wakeup, network: Network) -> None:
        super().__init__(wakeup, replace(network, bind="ipc://@"))


class _Socket:
    """A socket and its monitor on the wakeup. A router is shared by all wires of its end, a dealer belongs to one."""

    def __init__(self, transport: ZmqTransport, socket: Any) -> None:
        self.raw = socket
        self.wire: _ZmqWire | None = None
        self._transport = transport
        self._copies = True
        self._monitor = socket.get_monitor_socket(_EVENTS)
        self._routes = int(socket.type == zmq.ROUTER)
        """Frames before the record: who sent it."""
        transport.wakeup.add_socket(socket, self._drain)
        transport.wakeup.add_socket(self._monitor, self._drain_monitor)

    def expect(self, largest: int) -> None:
        """Large records are not copied out of ZeroMQ's memory."""
        self._copies = self._copies and largest < _LARGE

    def close(self) -> None:
        if self.raw.closed:
            return
        wakeup = self._transport.wakeup
        wakeup.remove_socket(self.raw)
        wakeup.remove_socket(self._monitor)
        self.raw.disable_monitor()
        self._monitor.close(linger=0)
        self.raw.close(linger=0)

    def _drain(self) -> int:
        done = 0
        while not self.raw.closed:
            try:
                *identity, frame = self.raw.recv_multipart(zmq.NOBLOCK, copy=self._copies)
            except zmq.Again:
                return done
            done += 1
            if len(identity) != self._routes:
                self._transport.end.refuse()
            elif self._routes:
                name = identity[0] if self._copies else identity[0].bytes
                self._transport.arrived(name, frame if self._copies else frame.buffer)
            elif self.wire is not None:
                self.wire.arrived(frame if self._copies else frame.buffer)
        return done

    def _drain_monitor(self) -> int:
        done = 0
        while not self._monitor.closed:
            try:
                event = recv_monitor_message(self._monitor, zmq.NOBLOCK)["event"]
            except zmq.Again:
                return done
            done += 1
            if event == zmq.EVENT_DISCONNECTED:
                self._transport.disconnects += 1
                if self.wire is not None and self.wire.away is None:
                    self.wire.away = time.monotonic()
            elif event == zmq.EVENT_HANDSHAKE_SUCCEEDED:
                if self.wire is not None:
                    self.wire.away = None
                    self.wire.sequence.probe()
            elif event in _REFUSED:
                self._transport.end.counts.drop(_REFUSED[event])
        return done


class _ZmqWire(Wire):
    """One peer: what it was sent, what came from it."""

    __slots__ = (
        "__weakref__", "_armed", "_beats", "_identity", "_packers", "_transport", "away", "key", "sequence", "socket", "source",
    )  # fmt: skip

    def __init__(self, transport: ZmqTransport, socket: _Socket, identity: int | None, packers: Mapping[int, Packer]) -> None:
        self._transport = transport
        self.socket = socket
        self._identity = None if identity is None else identity.to_bytes(8, "little")
        self._packers = packers
        self._armed = False
        self._beats = 0
        self.source = 0
        self.key = b""
        self.sequence = Sequence(transport.schema, self._emit, self._arm)
        self.away: float | None = None
        if identity is None:
            socket.wire, self.away = self, time.monotonic()

    def send(self, kind: int, slot: int = 0, number: int = 0, value: int = 0, body: Tree | None = None) -> None:
        frame = bytearray(HEADER.size)
        if body is not None:
            frame = self._packers[kind].pack(body, HEADER.size)
        self.sequence.send(frame, kind, slot, number, value)

    def arrived(self, frame: Any) -> None:
        """A frame of this peer: sound and next in order, or refused."""
        end = self._transport.end
        if len(frame) < HEADER.size:
            end.refuse()
            return
        head = Head._make(HEADER.unpack_from(frame))
        if head.schema != self._transport.schema:
            end.refuse()
            return
        if not self.sequence.accepts(head):
            return
        packer = self._packers.get(head.kind)
        body: Tree | None = None
        try:
            if packer is not None:
                body = packer.unpack(memoryview(frame)[HEADER.size :])
            elif len(frame) != HEADER.size:
                raise HostileFrame("bytes behind a message that has no record")
        except HostileFrame:
            end.refuse()
            return
        self.sequence.took()
        end.receive(self.source, head.kind, head.slot, head.number, head.value, body)

    def close(self) -> None:
        self._transport.forget(self)
        self._transport.wakeup.cancel(self)
        if self._identity is None:
            self.socket.wire = None
            self.socket.close()

    def _emit(self, frame: bytearray) -> bool:
        socket = self.socket.raw
        if socket.closed:
            return False
        copy = len(frame) < _LARGE
        try:
            if self._identity is not None:
                socket.send(self._identity, zmq.SNDMORE | zmq.NOBLOCK)
            socket.send(frame, zmq.NOBLOCK, copy=copy)
        except zmq.ZMQError as error:
            if error.errno in (zmq.EAGAIN, zmq.EHOSTUNREACH):
                return False
            raise
        return True

    def _arm(self) -> None:
        if not self._armed:
            self._armed = True
            self._transport.wakeup.at(time.monotonic() + _BEAT, self._beat)

    def _beat(self) -> None:
        """Ten times a second while anything is owed: acknowledge, send again, ask."""
        self._armed = False
        if self.socket.raw.closed:
            return
        self.sequence.beat()
        self._beats += 1
        if self._beats >= _PATIENCE:
            self._beats = 0
            if self.sequence.stalled():
                self.sequence.probe()
        if not self.sequence.idle:
            self._arm()


def new_curve_keys() -> tuple[bytes, bytes]:
    """(public, secret): one pair per process; the public one travels in addresses."""
    with suppress(zmq.ZMQError):
        public, secret = zmq.curve_keypair()
        return public, secret
    raise WireError("this ZeroMQ was built without CURVE", ("try", "the pyzmq wheels from PyPI have it"))
