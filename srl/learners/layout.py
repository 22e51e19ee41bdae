"""Where things lie in the memory that the two sides of a split learner share: the same pieces in the same order on both."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from srl.learners.give import GIVEN, Given
from srl.learners.questions import PLACES, Link, Questions
from srl.learners.slots import Slots

_LEAST = 1 << 16
"""Bytes for tensors that cross at once, besides those of four batches."""


@dataclass(frozen=True, kw_only=True)
class Layout:
    """Parameters in mode simultaneous and asynchronous, places for questions in mode exact, and batches."""

    record: tuple[tuple[str, str, tuple[int, ...]], ...]
    lag: int
    exact: bool

    def sizes(self, actor: Sequence[Tensor], critics: Sequence[Tensor]) -> list[int]:
        """Bytes of every piece."""
        shown = [one.numel() * one.element_size() for one in (*critics, *actor)]
        return [*([self._question] * (2 * PLACES) if self.exact else [*shown, *shown]), *self._leaves * self._batches]

    def places(
        self, memory: Any, link: Link, *, actor: Sequence[Tensor], critics: Sequence[Tensor]
    ) -> tuple[Slots, Slots, tuple[Questions, Questions] | None, Given]:
        """What the actor shows, what the critics show, the questions of each (actor, critics), and the batches."""
        words = memory.words
        mine, theirs = (
            Slots(words[i : i + 2], [[], []] if self.exact else [memory.like(held, reader) for _ in range(2)])
            for i, held, reader in ((0, actor, 1), (2, critics, 0))
        )
        questions = None
        if self.exact:
            there, back = (memory.channel(link, words[i : i + 2], self._question, reader) for i, reader in ((4, 1), (6, 0)))
            questions = Questions(there, back), Questions(back, there)
        slots = [{path: memory.array(shape, kind) for path, kind, shape in self.record} for _ in range(self._batches)]
        return mine, theirs, questions, Given(words[GIVEN:], slots)

    @property
    def _batches(self) -> int:
        """One that is given, those that the critics may be behind, and one whose rows are still observed."""
        return self.lag + 3

    @property
    def _leaves(self) -> list[int]:
        return [math.prod(shape) * np.dtype(kind).itemsize for _, kind, shape in self.record]

    @property
    def _question(self) -> int:
        return _LEAST + 4 * sum(self._leaves)
