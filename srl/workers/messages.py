"""Every message of the control plane: msgpack maps of a fixed schema, at most 1 MB each.

hello, welcome                   supervisor and controller, at every (re)connection
start, kill, stacks              to a supervisor: begin a process, end it, let it show where it is
assign -> bound                  who the workers of a process are; where their ends are
peers, make -> ready             attach the ends, build the workers
detach -> detached               forget peers that died; what is known of their last counts
go, report, drain -> drained     run
stop -> bye                      the only clean end
failed, exit, lost               a worker raised; its process ended; its host is gone
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import msgpack

from srl.core.errors import HostileFrame
from srl.core.types import WorkerId
from srl.workers.loop import Peer

Message: TypeAlias = dict[str, Any]

LIMIT = 1 << 20
"""Bytes of one message."""

_ENVELOPE = {"type", "seq", "ack"}

_SCHEMA: Mapping[str, Mapping[str, type | tuple[type, ...]]] = {
    "hello": {
        "run": str,
        "host": int,
        "incarnation": int,
        "cores": int,
        "memory": int,
        "versions": dict,
        "taken": int,
        "processes": dict,
    },
    "welcome": {"taken": int},
    "start": {"process": str, "threads": int, "plugins": list, "path": list, "log": (str, type(None))},
    "kill": {"process": str},
    "stacks": {"process": str},
    "assign": {
        "process": str,
        "graph": dict,
        "derived": dict,
        "seats": list,
        "network": dict,
        "folder": (str, type(None)),
        "resume": (str, type(None)),
    },
    "bound": {"process": str, "pid": int, "ends": dict},
    "peers": {"process": str, "peers": dict},
    "detach": {"process": str, "gone": list, "reason": str},
    "detached": {"process": str, "ends": dict},
    "make": {"process": str},
    "ready": {"process": str},
    "go": {"process": str},
    "report": {"processes": dict},
    "drain": {"process": str, "last": bool},
    "drained": {"process": str},
    "stop": {"process": str, "save": bool},
    "bye": {"process": str},
    "failed": {"process": str, "worker": str, "error": (dict, type(None)), "trace": str, "counted": bool},
    "exit": {"process": str, "code": int, "log": list, "rss": int, "free": (int, type(None)), "out_of_memory": bool},
    "lost": {"process": str, "reason": str},
}


def pack(message: Message) -> bytes:
    """The bytes of a message; one that breaks the schema is our own bug."""
    data: bytes = msgpack.packb(checked(message))
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
        raise HostileFrame("control message that is no msgpack", ("cause", f"{type(problem).__name__}: {problem}")) from problem
    return checked(message)


def checked(message: Any) -> Message:
    """The same message if it is of the schema."""
    if not isinstance(message, dict) or not isinstance(message.get("type"), str):
        raise HostileFrame("control message that is no map with a type")
    fields = _SCHEMA.get(message["type"])
    if fields is None:
        raise HostileFrame(f"control message of unknown type '{message['type'][:40]}'", ("known", ", ".join(_SCHEMA)))
    if set(message) - _ENVELOPE != set(fields):
        raise HostileFrame(f"control message '{message['type']}' with other fields", ("expected", ", ".join(fields) or "none"))
    if not all(isinstance(message.get(name, 0), int) for name in ("seq", "ack")):
        raise HostileFrame(f"control message '{message['type']}' without a proper number")
    for name, kind in fields.items():
        if not isinstance(message[name], kind):
            raise HostileFrame(f"control message '{message['type']}': field '{name}' is a {type(message[name]).__name__}")
    return message


# what travels inside them ---------------------------------------------------------------------------------------------


def seat_to_data(seat: WorkerId) -> list[Any]:
    return [seat.node, seat.index, seat.incarnation]


def seat_from_data(data: Any) -> WorkerId:
    node, index, incarnation = data
    return WorkerId(str(node), int(index), int(incarnation))


def peers_to_data(peers: Mapping[str, Mapping[str, list[Peer]]]) -> dict[str, Any]:
    """Worker -> port -> peers."""
    return {
        worker: {port: [[peer.name, dict(peer.address)] for peer in others] for port, others in ports.items()}
        for worker, ports in peers.items()
    }


def peers_from_data(data: Mapping[str, Any]) -> dict[str, dict[str, list[Peer]]]:
    return {
        worker: {port: [Peer(name, address) for name, address in others] for port, others in ports.items()}
        for worker, ports in data.items()
    }
