"""Several trainers of one policy: each brings its part of a batch, and they agree before every update."""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING

from srl.core.errors import OthersLost
from srl.core.types import Waiting
from srl.workers.base import Context
from srl.workers.batches import BatchSource, Rows
from srl.workers.task import Progress, device_of

if TYPE_CHECKING:  # torch
    from srl.api.batch import Ranks

GRACE = 5.0
"""Seconds in which the controller reacts to the loss of another trainer, before this one fails too."""


class Gang:
    """What one trainer knows of the others. It never waits."""

    def __init__(self, context: Context, progress: Progress) -> None:
        """Begin to look for the others."""
        from srl.learners.ranks import Meeting

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
