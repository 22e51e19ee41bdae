"""Several trainers of one policy: each brings its part of a batch, and they agree before every update."""

from __future__ import annotations

from collections.abc import Mapping
from time import monotonic, sleep
from typing import TYPE_CHECKING, cast

from srl.core.errors import OthersLost
from srl.core.types import Waiting
from srl.store.checkpoint import Checkpoint, from_bytes, to_bytes
from srl.streams.peers import End
from srl.streams.sum import SumRank
from srl.workers.base import Context
from srl.workers.batches import BatchSource, Rows
from srl.workers.checkpoints import Checkpoints
from srl.workers.task import Progress, device_of

if TYPE_CHECKING:  # torch
    from srl.api.batch import Ranks
    from srl.learners.ranks import Agreement

GRACE = 5.0
"""Seconds in which the controller reacts to the loss of another trainer, before this one fails too."""


class Gang:
    """What one trainer knows of the others. It waits only for the checkpoint that all of them continue from."""

    def __init__(self, context: Context, ends: Mapping[str, End], progress: Progress) -> None:
        """On one host: begin to look for the others. On several, a stream connects them."""
        from srl.learners.ranks import Agreement, Meeting
        from srl.workers.sums import StreamSums

        self._sums: StreamSums | None = None
        self._agreement: Agreement
        if (end := ends.get("sums")) is not None:
            assert context.deliver is not None and context.rest is not None
            self._sums = StreamSums(cast(SumRank, end), context.node.count, context.deliver, context.rest)
            self._agreement = Agreement(self._sums, device_of(context))
        else:
            assert context.folder is not None
            place = context.folder / f".{context.node.name}.{context.incarnation}"
            self._agreement = Meeting(place, context.index, context.node.count, device_of(context), context.watch)
        self._context, self._progress = context, progress
        self.over = False
        """They have agreed to make no further update."""
        self._rows: Rows | None = None
        """The batch that the others have not agreed to train yet."""
        self._loss: tuple[OthersLost, float] | None = None
        """Why another trainer cannot be reached, and when this one fails because of it."""

    @property
    def ranks(self) -> Ranks:
        return self._agreement.ranks

    @property
    def alone(self) -> bool:
        """Another trainer is gone: an update may have been half made."""
        return self._loss is not None

    @property
    def wake_at(self) -> float | None:
        return self._loss[1] if self._loss is not None else None

    def waits(self) -> Waiting | None:
        """For an answer of the others."""
        if not self._agreement.open:
            return None
        others = (f"{self._context.node.name}/{index}" for index in range(self._context.node.count))
        return Waiting("other trainers", tuple(name for name in others if name != self._context.name))

    def start(self, checkpoints: Checkpoints) -> Checkpoint | None:
        """What all of them continue from: the checkpoint of the first, whose files other hosts may not see."""
        saved = checkpoints.start()
        if self._sums is None:
            return saved
        try:
            data = self._sums.broadcast(to_bytes(saved) if saved is not None else b"")
        except OthersLost:
            sleep(GRACE)  # the controller ends this process, unless the network has failed
            raise
        return from_bytes(data) if data else None

    def next(self, source: BatchSource, updates: int, draining: bool) -> Rows | None:
        """The rows of the next update, once all trainers have theirs."""
        try:
            return self._agreed(source, updates, draining)
        except OthersLost as error:
            self.lost(error, draining)
            return None

    def lost(self, error: OthersLost, draining: bool) -> None:
        """Another trainer is gone: the controller ends all of them. If it does not, the network has failed."""
        if self._loss is not None:
            raise error
        self._loss = error, monotonic() + GRACE
        self.over = draining

    def close(self) -> None:
        self._agreement.close()

    def _agreed(self, source: BatchSource, updates: int, draining: bool) -> Rows | None:
        agreement = self._agreement
        if self._loss is not None:
            if monotonic() >= self._loss[1]:
                raise self._loss[0]
            return None
        if not agreement.met:
            self.over = draining  # nothing was learned yet
            return None
        if not agreement.open:
            if self._rows is None:
                self._rows = source.take(updates)
            if self._rows is None and not draining:
                return None
            agreement.ask(updates, source.brings if self._rows is not None else 0, self._progress.seconds, draining)
        agreed = agreement.answer()
        if agreed is None:
            return None
        rows, self._rows = self._rows, None
        if agreed.stops:
            self.over = True
            if rows is not None:
                source.drop()
            return None
        source.brings, self._progress.agreed = agreed.env_steps, agreed.seconds
        return rows
