"""Batches in the memory that the two sides of a split learner share: a few places in turn, each with its clock."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from srl.api.algorithm import Clock
from srl.core.tree import Array, build, leaves

GIVEN = 8
"""The first word of the batches: how many were given. Then follow three words for each place."""
_FLOAT = struct.Struct("<d")
_INT = struct.Struct("<q")


class Given:
    """The actor's side writes, the critics' side reads."""

    def __init__(self, words: Any, slots: Sequence[Mapping[str, Array]]) -> None:
        self._words, self._slots = words, slots
        self._rows = [build(slot) for slot in slots]

    @property
    def number(self) -> int:
        """Batches that were given."""
        return int(self._words[0])

    def write(self, number: int, clock: Clock, rows: Mapping[str, Any]) -> None:
        """Give a batch; the place of the one so many before must be free."""
        slot = number % len(self._slots)
        for path, leaf in leaves(rows):
            np.copyto(self._slots[slot][path], leaf)
        at = 1 + 3 * slot
        self._words[at], self._words[at + 1] = clock.env_steps, clock.updates
        self._words[at + 2] = _INT.unpack(_FLOAT.pack(clock.progress))[0]
        self._words[0] = number + 1

    def read(self, number: int, clock: Clock) -> Mapping[str, Any]:
        """The batch with this number, as it lies there; sets the clock."""
        slot = number % len(self._slots)
        at = 1 + 3 * slot
        clock.env_steps, clock.updates = self._words[at], self._words[at + 1]
        (clock.progress,) = _FLOAT.unpack(_INT.pack(self._words[at + 2]))
        rows: Mapping[str, Any] = self._rows[slot]
        return rows


def record_of(rows: Mapping[str, Any]) -> tuple[tuple[str, str, tuple[int, ...]], ...]:
    """Of a batch."""
    return tuple((path, np.asarray(leaf).dtype.str, tuple(np.shape(leaf))) for path, leaf in leaves(rows))
