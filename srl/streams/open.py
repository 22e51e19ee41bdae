"""Open an end of a stream by its spec and its side."""

from __future__ import annotations

from srl.core.errors import UserError
from srl.core.registry import REGISTRIES
from srl.streams.base import Side, StreamSpec
from srl.streams.infer import InferClient, InferServer
from srl.streams.param import ParamPublisher, ParamSubscriber
from srl.streams.peers import End
from srl.streams.sample import SampleConsumer, SampleProducer
from srl.streams.transport import Network
from srl.streams.wakeup import Wakeup

KINDS: dict[Side, str] = {
    "producer": "sample",
    "consumer": "sample",
    "client": "infer",
    "server": "infer",
    "publisher": "param",
    "subscriber": "param",
}


def open_end(
    spec: StreamSpec,
    side: Side,
    *,
    name: str,
    wakeup: Wakeup,
    slots: int = 2,
    groups: int = 1,
    units: int = 1,
    network: Network | None = None,
) -> End:
    """An end with no peers yet. `slots`: sample producers; `groups` and `units` (of one question): infer clients."""
    if KINDS[side] != spec.kind:
        raise UserError(f"{name}: a stream of kind {spec.kind} has no {side}", ("stream", spec.name), code="E10")
    if min(slots, groups, units) < 1:
        raise UserError(
            f"{name}: slots, groups and units must be at least 1", ("found", f"{slots}, {groups}, {units}"), code="E10"
        )
    transport = REGISTRIES["transport"].resolve(spec.via)(wakeup, network or Network())
    if side == "producer":
        return SampleProducer(spec, name, transport, slots)
    if side == "consumer":
        return SampleConsumer(spec, name, transport)
    if side == "client":
        return InferClient(spec, name, transport, groups, units)
    if side == "server":
        return InferServer(spec, name, transport)
    if side == "publisher":
        return ParamPublisher(spec, name, transport)
    return ParamSubscriber(spec, name, transport)
