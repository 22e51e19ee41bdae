"""Open an end of a stream, and the bell of a process: the only door to this room."""

from __future__ import annotations

from srl.core.errors import UserError
from srl.core.registry import REGISTRIES
from srl.streams.base import Bell, End, Side, StreamSpec
from srl.streams.bell import ProcessBell
from srl.streams.leases import Consumer
from srl.streams.links import Place
from srl.streams.questions import Client, Server
from srl.streams.slots import Producer
from srl.streams.versions import Publisher, Subscriber

__all__ = ["KINDS", "Place", "open_bell", "open_end"]

KINDS: dict[Side, str] = {
    "producer": "sample",
    "consumer": "sample",
    "client": "infer",
    "server": "infer",
    "publisher": "param",
    "subscriber": "param",
}


def open_bell() -> Bell:
    """The bell of this process; what it needs is opened by the ends that need it."""
    return ProcessBell()


def open_end(
    spec: StreamSpec,
    side: Side,
    *,
    name: str,
    bell: Bell,
    incarnation: int = 0,
    slots: int = 2,
    groups: int = 1,
    units: int = 1,
    place: Place | None = None,
) -> End:
    """An end with no peers yet. `slots`: sample producers; `groups` and `units` (of one question): infer clients."""
    if KINDS[side] != spec.kind:
        raise UserError(f"{name}: a stream of kind {spec.kind} has no {side}", ("stream", spec.name), code="E10")
    if min(slots, groups, units) < 1:
        raise UserError(
            f"{name}: slots, groups and units must be at least 1", ("found", f"{slots}, {groups}, {units}"), code="E10"
        )
    assert isinstance(bell, ProcessBell)
    transport = REGISTRIES["transport"].resolve(spec.via).beside(bell, place or Place())
    if side == "producer":
        return Producer(spec, name, transport, slots, incarnation, bell)
    if side == "consumer":
        return Consumer(spec, name, transport, incarnation)
    if side == "client":
        return Client(spec, name, transport, groups, units, incarnation)
    if side == "server":
        return Server(spec, name, transport, incarnation)
    if side == "publisher":
        return Publisher(spec, name, transport, incarnation)
    return Subscriber(spec, name, transport, incarnation)
