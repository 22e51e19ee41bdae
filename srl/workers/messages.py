"""The messages of the control plane: msgpack maps of a fixed schema, at most 1 MB each.

hello, welcome                   supervisor and controller, at each connection
start, kill, stacks              start a process, kill it, write its stacks to its log
assign -> bound                  the workers of a process; the addresses of their ends
peers, make -> ready             attach the ends, build the workers
detach -> detached               drop dead peers; what is known of their last counts
go, report, drain -> drained     poll the workers; totals; finish what is open
stop -> bye                      save and end
failed, exit, lost               a worker raised; its process ended; its host is gone
folder                           where the run folder is, for hosts that may see it
facts, reach -> reached          what a host has; whom it cannot connect to, and why
leaving -> leave                 a host was told to end; its workers may stop now, and come again when it does
file, whole, lines, gone, ack    files of the run folder between hosts (srl/cluster/files.py); they were received
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import msgpack

from srl.core.errors import HostileFrame
from srl.core.load import dump, load
from srl.core.readings import Reading
from srl.core.types import BoundEnd, Counts, Waiting, WorkerId
from srl.graph.spec import Graph
from srl.plan.specs import Derived

Message: TypeAlias = dict[str, Any]
"""A type and the fields of `_SCHEMA`. Dataclasses travel as plain data and arrive as dataclasses."""

Peers: TypeAlias = dict[str, dict[str, list[BoundEnd]]]
"""Worker -> port -> the ends to attach there."""

LIMIT = 1 << 20
"""Bytes of one message."""


@dataclass(slots=True)
class WorkerReport:
    """The report of one worker."""

    reading: Reading
    busy: float
    """Seconds spent in polls that did something, since the start."""
    waits: tuple[Waiting, ...]
    finished: bool
    counts: Mapping[str, Counts]
    """Port -> totals of its end."""


@dataclass(slots=True)
class ProcessReport:
    """The reports of all workers of a process."""

    time: float
    """On the monotonic clock of its host."""
    cpu: float
    """Seconds since the start."""
    rss: int
    """Bytes resident."""
    workers: Mapping[str, WorkerReport]


_ENVELOPE = {"type", "seq", "ack"}

_SCHEMA: Mapping[str, Mapping[str, Any]] = {
    "hello": {"run": str, "host": int, "life": int, "controller": int, "taken": int, "waits": bool},
    "welcome": {"controller": int, "taken": int},
    "start": {"process": str, "threads": int, "plugins": list[str], "path": list[str], "log": str | None},
    "kill": {"process": str},
    "stacks": {"process": str},
    "assign": {
        "process": str,
        "graph": Graph,
        "derived": Derived,
        "workers": tuple[WorkerId, ...],
        "network": Mapping[str, Any],
        "folder": str | None,
        "resume": str | None,
    },
    "bound": {"process": str, "pid": int, "ends": tuple[BoundEnd, ...]},
    "peers": {"process": str, "peers": Peers},
    "detach": {"process": str, "gone": list[str], "reason": str},
    "detached": {"process": str, "ends": Mapping[str, Counts]},
    "make": {"process": str},
    "ready": {"process": str, "addresses": Mapping[str, str]},
    "go": {"process": str},
    "report": {"processes": Mapping[str, ProcessReport]},
    "drain": {"process": str, "last": float},
    "drained": {"process": str},
    "stop": {"process": str, "save": bool},
    "bye": {"process": str},
    "failed": {"process": str, "worker": str, "error": Mapping[str, Any] | None, "trace": str, "counted": bool},
    "exit": {"process": str, "code": int, "log": list[str], "rss": int, "free": int | None, "out_of_memory": bool},
    "lost": {"process": str, "reason": str},
    "folder": {"path": str, "shared": bool | None},
    "file": {"name": str, "whole": str, "begin": int, "data": bytes, "last": bool},
    "whole": {"name": str},
    "lines": {"name": str, "data": bytes},
    "gone": {"name": str},
    "ack": {},
    "leaving": {"process": str, "signal": str},
    "leave": {},
    "facts": {"process": str, "name": str, "cores": int, "gpus": int, "memory": int, "probe": str},
    "reach": {"addresses": Mapping[str, str]},
    "reached": {"process": str, "missed": Mapping[str, str]},
}


def pack(message: Message) -> bytes:
    """The bytes of a message."""
    _check_fields(message)
    data: bytes = msgpack.packb(message, default=_plain)
    if len(data) > LIMIT:
        raise ValueError(f"control message '{message['type']}' has {len(data):,} bytes; expected at most {LIMIT:,}")
    return data


def unpack(data: bytes | memoryview) -> Message:
    """The message in these bytes, or HostileFrame."""
    if len(data) > LIMIT:
        raise HostileFrame(f"control message of {len(data):,} bytes", ("expected", f"at most {LIMIT:,}"))
    try:
        message = msgpack.unpackb(data, strict_map_key=True)
    except Exception as problem:  # msgpack raises ValueError, its own and plain UnicodeDecodeError
        raise HostileFrame("control message is not msgpack", ("cause", f"{type(problem).__name__}: {problem}")) from problem
    fields = _check_fields(message)
    try:
        return {**message, **{name: load(kind, message[name], path=name) for name, kind in fields.items()}}
    except Exception as problem:
        raise HostileFrame(f"control message '{message['type']}': {problem}") from problem


def _check_fields(message: Any) -> Mapping[str, Any]:
    """The schema of a message that has the right fields."""
    if not isinstance(message, dict) or not isinstance(message.get("type"), str):
        raise HostileFrame("control message must be a map with a type")
    fields = _SCHEMA.get(message["type"])
    if fields is None:
        raise HostileFrame(f"control message of unknown type '{message['type'][:40]}'", ("known", ", ".join(_SCHEMA)))
    if set(message) - _ENVELOPE != set(fields):
        raise HostileFrame(f"control message '{message['type']}' with other fields", ("expected", ", ".join(fields) or "none"))
    if not all(isinstance(message.get(name, 0), int) for name in ("seq", "ack")):
        raise HostileFrame(f"control message '{message['type']}' without a proper number")
    return fields


def _plain(value: Any) -> Any:
    """Dataclasses, and numpy's numbers."""
    return value.item() if hasattr(value, "item") else dump(value)


_LENGTH = struct.Struct("<I")


class Channel:
    """One end of the socket."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self._socket = sock
        self._in = bytearray()
        self._out = bytearray()
        self.closed = False
        """Whether the other side has closed it."""

    def fileno(self) -> int:
        return self._socket.fileno()

    def send(self, message: Message) -> bool:
        """Queue a message and write what the socket takes; False if something is left for `flush`."""
        data = pack(message)
        self._out += _LENGTH.pack(len(data)) + data
        return self.flush()

    def flush(self) -> bool:
        """Write more of the queue; True when it is empty."""
        while self._out and not self.closed:
            try:
                del self._out[: self._socket.send(self._out)]
            except BlockingIOError:
                return False
            except OSError:
                self.closed = True
        return True

    def receive(self) -> list[Message]:
        """All complete messages received so far; sets `closed` at the end of the stream."""
        while not self.closed:
            try:
                data = self._socket.recv(1 << 16)
            except BlockingIOError:
                break
            except OSError:
                data = b""
            if not data:
                self.closed = True
            self._in += data
        return self._whole()

    def close(self) -> None:
        """Close the socket. Idempotent."""
        self.closed = True
        self._socket.close()

    def _whole(self) -> list[Message]:
        messages, start = [], 0
        while len(self._in) - start >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self._in, start)
            if length > LIMIT:
                raise HostileFrame(f"control message of {length:,} bytes", ("expected", f"at most {LIMIT:,}"))
            if len(self._in) - start - _LENGTH.size < length:
                break
            start += _LENGTH.size + length
            messages.append(unpack(bytes(self._in[start - length : start])))
        del self._in[:start]
        return messages
