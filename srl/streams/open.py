"""Open an end of a stream by its spec and its side."""

from __future__ import annotations

from typing import Any

from srl.core.errors import UserError
from srl.core.registry import REGISTRIES
from srl.streams.base import Kind, Side, StreamSpec
from srl.streams.infer import InferClient, InferServer
from srl.streams.param import ParamPublisher, ParamSubscriber
from srl.streams.peers import End
from srl.streams.sample import SampleConsumer, SampleProducer
from srl.streams.transport import Network
from srl.streams.wakeup import Wakeup

ENDS: dict[Side, tuple[Kind, Any]] = {
    "producer": ("sample", SampleProducer),
    "consumer": ("sample", SampleConsumer),
    "client": ("infer", InferClient),
    "server": ("infer", InferServer),
    "publisher": ("param", ParamPublisher),
    "subscriber": ("param", ParamSubscriber),
}


def open_end(spec: StreamSpec, side: Side, *, name: str, wakeup: Wakeup, network: Network | None = None, **sizes: int) -> End:
    """An end with no peers yet. Sizes: `slots` of a sample producer, `groups` and `units` per question of an infer client;
    `quiet=1`: a param subscriber that is not woken by publications."""
    kind, end = ENDS[side] if side != "rank" else _rank()
    if kind != spec.kind:
        raise UserError(f"{name}: a stream of kind {spec.kind} has no {side}", ("stream", spec.name), code="E10")
    if any(size < 1 for size in sizes.values()):
        raise UserError(f"{name}: sizes must be at least 1", ("found", f"{sizes}"), code="E10")
    transport = REGISTRIES["transport"].resolve(spec.via)(wakeup, network or Network())
    opened: End = end(spec, name, transport, **sizes)
    return opened


def _rank() -> tuple[Kind, Any]:
    from srl.streams.sum import SumRank  # trainers alone have it

    return "sum", SumRank
