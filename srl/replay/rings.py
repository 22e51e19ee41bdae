"""Rings: the newest rows of every env and agent (a column), in order, in memory that is allocated once.

A row has a number in its column that only grows; row number s stands at place `s % rows` of its ring. The newest place is
the head: it holds the observation after the last row, and becomes a row when the next slab continues there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from srl.api.slab import Window
from srl.core.errors import SettingError
from srl.core.spec import Leaf
from srl.core.tree import Array, leaves

ASKED = ("obs", "first", "mask", "state", "extra")
"""Leaves that a slab has one row more of."""
_OF_SLABS = ("version", "reused", "origin")
"""Leaves with one number for a whole slab."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RingShape:
    """The sizes of all rings."""

    columns: int
    rows: int
    """Places of one ring; a whole number of `every`. One of them is the head."""
    every: int
    """Windows start at every k-th row: where the memory is recorded."""
    window: Window

    @classmethod
    def of(cls, record: Mapping[str, Any], *, columns: int, size: int, window: Window) -> RingShape:
        """Rings that hold at least `size` rows together, of slabs with this record."""
        window = window.within(1)
        steps = record["reward"].shape[0]
        every = 1
        if "memory" in record:
            every = window.memory_every or 1
            if steps % every:
                raise SettingError("window", f"must start at every k-th row of a slab of {steps} rows, not at every {every}-th")
        needed = -(-size // columns) + 1
        least = window.rows + steps + every + 1
        if needed < least:
            raise SettingError("size", f"must be at least {least * columns} rows for {columns} envs and agents, not {size}")
        return cls(columns=columns, rows=-(-needed // every) * every, every=every, window=window)

    @property
    def starts(self) -> int:
        """Places of one ring where a window may start."""
        return self.rows // self.every


def ring_record(record: Mapping[str, Any], shape: RingShape) -> dict[str, Leaf]:
    """Every array of the rings by its path: `[columns, rows, ...]`."""
    columns, rows = shape.columns, shape.rows
    found = {"version": Leaf((columns, rows), "int64")}
    for path, leaf in leaves(record):
        name = path.partition("/")[0]
        if name in _OF_SLABS:
            continue
        inner = leaf.shape[2:] if name == "state" else leaf.shape[3:]
        found[path] = Leaf((columns, shape.starts if name == "memory" else rows, *inner), leaf.dtype)
    found["start"] = Leaf((columns, shape.starts), "bool")
    return found


class Rings:
    """`append` rows of a slab; `flat` arrays are read by slot, which is `column * rows + place`."""

    def __init__(self, record: Mapping[str, Any], shape: RingShape) -> None:
        self.shape = shape
        self.arrays: dict[str, Array] = {
            path: np.zeros(leaf.shape, leaf.dtype) for path, leaf in ring_record(record, shape).items()
        }
        """By path. `start` is true where a whole window can be drawn: none crosses a gap."""
        self.flat: dict[str, Array] = {path: array.reshape(-1, *array.shape[2:]) for path, array in self.arrays.items()}
        self.heads = np.zeros(shape.columns, np.int64)
        """Number of the row that comes next, by column."""
        self.begins = np.zeros(shape.columns, np.int64)
        """Number of the first row of the stretch without a gap that the head belongs to."""
        self.started = np.zeros(shape.columns, bool)
        """False before the first slab."""
        self.windows = 0
        """Windows that can be drawn."""

    def append(self, slab: Mapping[str, Any], first: int, continues: bool) -> tuple[int, int]:
        """Add the rows of a slab to the columns from `first` on. Row 0 continues the slab before, or a gap is left.

        Returned are the numbers (low, high) between which starts of windows have come or gone.
        """
        shape = self.shape
        steps, envs, agents = slab["reward"].shape
        columns = slice(first, first + envs * agents)
        old = int(self.heads[first])
        head = old if continues or not self.started[first] else self._leave_gap(columns, old)
        self._write(slab, columns, head, steps, agents)
        new = head + steps
        self.heads[columns] = new
        self.started[columns] = True
        begin = int(self.begins[first])
        low = max(old - shape.window.rows + 1, 0)
        starts = self.arrays["start"][columns]
        before = self._count(starts, low, new + 1)
        for part in self.start_spans(old + 1, new + 1):
            starts[:, part] = False
        self._open_windows(starts, columns, max(begin, low), new)
        self.windows += self._count(starts, low, new + 1) - before
        return low, new + 1

    def start_spans(self, low: int, high: int) -> Iterator[slice]:
        """The places in `start` of the rows with these numbers: one or two parts."""
        every = self.shape.every
        return _spans(-(-low // every), -(-high // every), self.shape.starts)

    # one slab -----------------------------------------------------------------------------------------------------

    def _leave_gap(self, columns: slice, head: int) -> int:
        """Close the stretch at the head, which stays as its last observation; the number of the next stretch's first row."""
        every = self.shape.every
        begin = -(-(head + 1) // every) * every
        for part in _spans(head, begin, self.shape.rows):
            self.arrays["valid"][columns, part] = False
        self.begins[columns] = begin
        return begin

    def _write(self, slab: Mapping[str, Any], columns: slice, head: int, steps: int, agents: int) -> None:
        rows, every = self.shape.rows, self.shape.every
        for path, leaf in leaves(slab):
            name = path.partition("/")[0]
            if name in _OF_SLABS:
                continue
            target = self.arrays[path][columns]
            if name == "state":
                leaf = leaf if agents == 1 else np.repeat(leaf, agents, axis=1)
            else:
                leaf = leaf.reshape(len(leaf), -1, *leaf.shape[3:])
            if name == "memory":
                _put(target, leaf, head // every, len(leaf), rows // every)
            else:
                _put(target, leaf, head, steps + 1 if name in ASKED else steps, rows)
        last = (head + steps) % rows
        self.arrays["valid"][columns, last] = False
        for part in _spans(head, head + steps, rows):
            self.arrays["version"][columns, part] = slab["version"][0]

    def _open_windows(self, starts: Array, columns: slice, low: int, head: int) -> None:
        """Windows that start at `low` or later and end before the head: those with a valid row among the trained ones."""
        shape, window = self.shape, self.shape.window
        every, length = shape.every, cast(int, window.length)
        numbers = np.arange(-(-low // every) * every, head - window.rows + 1, every)
        if len(numbers):
            valid = self.arrays["valid"][columns]
            trained = (numbers[:, None] + np.arange(window.burn_in, window.burn_in + length)) % shape.rows
            starts[:, numbers // every % shape.starts] = valid[:, trained].any(axis=2)

    def _count(self, starts: Array, low: int, high: int) -> int:
        return sum(int(np.count_nonzero(starts[:, part])) for part in self.start_spans(low, high))


def _spans(low: int, high: int, places: int) -> Iterator[slice]:
    """Where the numbers from `low` up to `high` stand in a ring of so many places: one or two parts."""
    while low < high:
        place = low % places
        size = min(high - low, places - place)
        yield slice(place, place + size)
        low += size


def _put(target: Array, leaf: Array, number: int, count: int, rows: int) -> None:
    """Rows `[count, columns, ...]` into rings `[columns, rows, ...]`."""
    place = number % rows
    size = min(count, rows - place)
    target[:, place : place + size] = leaf[:size].swapaxes(0, 1)
    if size < count:
        target[:, : count - size] = leaf[size:count].swapaxes(0, 1)
