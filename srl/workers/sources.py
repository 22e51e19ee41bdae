"""Which source a trainer takes its batches from."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, cast

from srl.learners.base import Learner
from srl.streams.peers import End
from srl.streams.sample import SampleConsumer, SampleProducer
from srl.workers.base import Context
from srl.workers.batches import BatchSource, OnPolicy, Rows
from srl.workers.drawn import Drawn


def source_of(ends: Mapping[str, End], context: Context, learner: Learner, slabs: int, staleness: int, epoch: int) -> BatchSource:
    """Slabs of actors make batches; or with 0 slabs replays draw them. A learner may want to know the next one early."""
    samples, stream = cast(SampleConsumer, ends["samples"]), context.node.ports["samples"]
    tell = None if context.inline else getattr(learner, "tell", None)
    if slabs:
        kind = OnPolicy if tell is None or not staleness else partial(Foretold, tell=tell)
        return kind(samples, context.derived.streams[stream].record, slabs=slabs, staleness=staleness, epoch=epoch)
    feedback = {port.partition("/")[2]: cast(SampleProducer, end) for port, end in ends.items() if port.startswith("feedback")}
    drawn_here = context.derived.streams[stream].via == "inproc"
    stays = samples.transport.by != "bytes"
    prefetch = (1 if drawn_here else 2) + (tell is not None)
    return Drawn(samples, feedback, prefetch=prefetch, inline=context.inline, stays=stays, tell=tell)


class Foretold(OnPolicy):
    """Names the batch of the next update as soon as it is complete: with a staleness it may be while this one trains."""

    def __init__(self, *args: Any, tell: Callable[[Rows], None], **settings: Any) -> None:
        super().__init__(*args, **settings)
        self._tell, self._told = tell, -1

    def take(self, updates: int) -> Rows | None:
        rows = super().take(updates)
        self._look_ahead(updates + 1)
        return rows

    def gather(self) -> int:
        done = super().gather()
        self._look_ahead(self._credits.updates + 1)
        return done

    def _look_ahead(self, update: int) -> None:
        if update > self._told and self._credits.ready(update):
            self._told = update
            self._tell(self._batches[update % len(self._batches)])
