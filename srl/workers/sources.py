"""Which source a trainer takes its batches from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from srl.streams.peers import End
from srl.streams.sample import SampleConsumer, SampleProducer
from srl.workers.base import Context
from srl.workers.batches import BatchSource, OnPolicy
from srl.workers.drawn import Drawn


def source_of(ends: Mapping[str, End], context: Context, *, slabs: int, staleness: int, epoch: int) -> BatchSource:
    """Slabs of actors make batches; or with 0 slabs replays draw them."""
    samples, stream = cast(SampleConsumer, ends["samples"]), context.node.ports["samples"]
    if slabs:
        return OnPolicy(samples, context.derived.streams[stream].record, slabs=slabs, staleness=staleness, epoch=epoch)
    feedback = {port.partition("/")[2]: cast(SampleProducer, end) for port, end in ends.items() if port.startswith("feedback")}
    drawn_here = context.derived.streams[stream].via == "inproc"
    stays = samples.transport.by != "bytes"
    return Drawn(samples, feedback, prefetch=1 if drawn_here else 2, inline=context.inline, stays=stays)
