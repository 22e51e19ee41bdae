"""The newest parameters in shared memory: one end writes, any number of readers copy, nobody waits.

Publication n goes to slot n % 3, so the next two leave it alone. A reader that copied while n+2 began copies again.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from srl.core.tree import Array, Tree
from srl.streams.base import Version
from srl.streams.codec import Arena, Layout

_SLOTS = 3


def version_arena(record: Layout) -> Arena:
    """How many publications there were, the version in each slot, and the slots."""
    return Arena(1 + _SLOTS, [record] * _SLOTS)


class Writer:
    """The publisher's side."""

    def __init__(self, record: Layout, memory: Any) -> None:
        arena = version_arena(record)
        self._words = arena.words(memory)
        self._slots = [record.flat(arena.record(memory, slot)) for slot in range(_SLOTS)]

    def write(self, version: Version, arrays: list[Array]) -> None:
        """Make this the newest publication."""
        number = self._words[0] + 1
        slot = number % _SLOTS
        for target, source in zip(self._slots[slot], arrays, strict=True):
            target[...] = source
        self._words[1 + slot] = version
        self._words[0] = number


class Reader:
    """A subscriber's side."""

    def __init__(self, record: Layout, memory: Any) -> None:
        arena = version_arena(record)
        self._record = record
        self._words = arena.words(memory)
        self._slots = [record.flat(arena.record(memory, slot, writable=False)) for slot in range(_SLOTS)]
        self._copy = [np.empty(shape, dtype) for shape, dtype in zip(record.shapes, record.dtypes, strict=True)]
        self._seen, self._version = -1, -1

    def read(self, newer_than: Version) -> tuple[Version, Tree] | None:
        """A copy of the newest publication if its version is newer than that. Valid until the next one."""
        words = self._words
        if words[0] == self._seen and self._version <= newer_than:
            return None
        while True:
            number = words[0]
            if number == 0:
                self._seen = 0
                return None
            slot = number % _SLOTS
            version = words[1 + slot]
            if version <= newer_than:
                if words[0] == number:
                    self._seen, self._version = number, version
                    return None
                continue
            for target, source in zip(self._copy, self._slots[slot], strict=True):
                target[...] = source
            if words[0] - number < _SLOTS - 1:
                self._seen, self._version = number, version
                return version, self._record.tree(self._copy)
