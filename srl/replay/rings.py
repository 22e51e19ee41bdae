"""Rings: the newest rows of every env and agent (a column), in order, in memory that is allocated once.

A row has a number in its column that only grows; row number s stands at place `s % rows` of its ring. The newest place is
the head: it holds the observation after the last row, and becomes a row when the next slab continues there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from srl.api.slab import Window
from srl.core.errors import SettingError
from srl.core.spec import Leaf
from srl.core.tree import Array, leaves
from srl.replay.frames import Frames

ASKED = ("obs", "first", "mask", "state", "extra")
"""Leaves that a slab has one row more of."""
OF_SLABS = ("version", "reused", "origin")
"""Leaves that a slab has once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RingShape:
    """The sizes of all rings."""

    columns: int
    rows: int
    """Places of one ring; a whole number of `every`. One of them is the head."""
    every: int
    """Windows start at every k-th row: where the memory is recorded."""
    window: Window
    frames: tuple[Frames, ...] = ()
    """Stacks that are kept as single frames."""

    @classmethod
    def of(
        cls, record: Mapping[str, Any], *, columns: int, size: int, window: Window, history: Sequence[str] = ()
    ) -> RingShape:  # fmt: skip
        """Rings that hold at least `size` rows together, of slabs with this record."""
        window = window.within(1)
        steps = record["reward"].shape[0]
        every = 1
        if "memory" in record:
            every = window.memory_every or 1
            if steps % every and every % steps:
                wanted = f"must start where slabs of {steps} rows have a memory, and these windows start at every {every}-th row"
                raise SettingError("window", wanted, ("try", f"sampling.steps={-(-steps // every) * every}"))
        shape = cls(columns=columns, rows=0, every=every, window=window, frames=Frames.of(record, history))
        needed = -(-size // columns) + 1 + shape.behind
        least = window.rows + steps + every + 2 * shape.behind + 1
        if needed < least:
            raise SettingError("size", f"must be at least {least * columns} rows for {columns} envs and agents, not {size}")
        rows = -(-needed // every) * every
        return cls(columns=columns, rows=rows, every=every, window=window, frames=shape.frames)

    @property
    def starts(self) -> int:
        """Places of one ring where a window may start."""
        return self.rows // self.every

    @property
    def behind(self) -> int:
        """Earlier rows that the observation of a row is made of."""
        return max((one.count - 1 for one in self.frames), default=0)


def ring_record(record: Mapping[str, Any], shape: RingShape) -> dict[str, Leaf]:
    """Every array of the rings by its path: `[columns, rows, ...]`."""
    columns, rows = shape.columns, shape.rows
    single = {one.path for one in shape.frames}
    found = {"start": Leaf((columns, shape.starts), "bool"), "version": Leaf((columns, rows), "int64")}
    for path, leaf in leaves(record):
        name = path.partition("/")[0]
        if name not in OF_SLABS:
            inner = leaf.shape[2 if name == "state" else 4 if path in single else 3 :]
            found[path] = Leaf((columns, shape.starts if name == "memory" else rows, *inner), leaf.dtype)
    return found


class Rings:
    """`append` rows of a slab; `flat` arrays are read by slot, which is `column * rows + place`."""

    def __init__(self, record: Mapping[str, Any], shape: RingShape) -> None:
        self.shape = shape
        arrays = {path: np.zeros(leaf.shape, leaf.dtype) for path, leaf in ring_record(record, shape).items()}
        self.arrays: dict[str, Array] = arrays
        """By path. `start` is true where a whole window can be drawn: none crosses a gap."""
        self.flat: dict[str, Array] = {path: array.reshape(-1, *array.shape[2:]) for path, array in arrays.items()}
        self.heads = np.zeros(shape.columns, np.int64)
        """Number of the row that comes next, by column."""
        self.begins = np.zeros(shape.columns, np.int64)
        """Number of the first row of the stretch without a gap that the head belongs to."""
        self.started = np.zeros(shape.columns, bool)
        """False before the first slab."""
        self.windows = 0
        """Windows that can be drawn."""
        single = {one.path for one in shape.frames}
        self._leaves = [
            (tuple(path.split("/")), "frames" if path in single else path.partition("/")[0], arrays[path])
            for path, _ in leaves(record)
            if path in arrays and path != "version"
        ]
        """(where in a slab, what it is, the array) of every leaf."""

    def append(self, slab: Mapping[str, Any], first: int, continues: bool) -> tuple[int, int]:
        """Add the rows of a slab to the columns from `first` on. Row 0 continues the slab before, or a gap is left.

        Returned are the numbers (low, high) between which starts of windows have come or gone.
        """
        shape = self.shape
        steps, envs, agents = slab["reward"].shape
        columns = slice(first, first + envs * agents)
        for one in shape.frames:
            one.check(slab)
        old = head = int(self.heads[first])
        if not (continues and self.started[first]):
            head = self._leave_gap(columns, old, slab)
        self._write(slab, columns, head, steps, agents)
        new = head + steps
        self.heads[columns] = new
        low, high = max(old - shape.window.rows + 1, 0), new + shape.behind + 1
        starts = self.arrays["start"][columns]
        touched = self.start_spans(low, high)
        self.windows -= _count(starts, touched)
        for part in self.start_spans(old + 1, high):
            starts[:, part] = False
        self._open_windows(starts, columns, max(int(self.begins[first]), low), new)
        self.windows += _count(starts, touched)
        return low, high

    def start_spans(self, low: int, high: int) -> tuple[slice, ...]:
        """The places in `start` of the rows with these numbers: at most two parts."""
        every = self.shape.every
        return _spans(-(-low // every), -(-high // every), self.shape.starts)

    def ends(self, slots: Array, reach: int) -> Array | None:
        """The slots behind the rings of these rows, if any row within `reach` steps goes round; `take` wraps a single ring."""
        rows = self.shape.rows
        if self.shape.columns == 1:
            return None
        ends = slots // rows
        ends += 1
        ends *= rows
        return ends if np.count_nonzero(slots + reach >= ends) else None

    def after(self, slots: Array, steps: Any, ends: Array | None) -> Array:
        """Slots of the rows so many steps later in the same rings."""
        moved: Array = slots + steps
        if ends is not None:
            moved -= self.shape.rows * (moved >= ends)
        return moved

    def before(self, slots: Array) -> Array:
        """Slots of the rows one step earlier in the same rings; `take` wraps a single ring."""
        moved: Array = slots - 1
        if self.shape.columns > 1:
            rows = self.shape.rows
            moved += rows * (slots // rows - moved // rows)
        return moved

    # one slab -----------------------------------------------------------------------------------------------------

    def _leave_gap(self, columns: slice, old: int, slab: Mapping[str, Any]) -> int:
        """Close the stretch at the head, which stays as its last observation; the number of the next stretch's first row.

        Where frames are stacked, those of the first row that are older than itself are put before it.
        """
        shape = self.shape
        free = old + int(self.started[columns.start])
        begin = -(-(free + shape.behind) // shape.every) * shape.every
        for part in _spans(free, begin, shape.rows):
            self.arrays["valid"][columns, part] = False
            self.arrays["first"][columns, part] = False
        for one in shape.frames:
            older = one.older(slab)
            for back in range(1, one.count):
                self.arrays[one.path][columns, (begin - back) % shape.rows] = older[:, -back]
        self.begins[columns] = begin
        self.started[columns] = True
        return begin

    def _write(self, slab: Mapping[str, Any], columns: slice, head: int, steps: int, agents: int) -> None:
        rows, every = self.shape.rows, self.shape.every
        acted, asked = _parts(head, steps, rows), _parts(head, steps + 1, rows)
        for keys, name, array in self._leaves:
            leaf: Any = slab
            for key in keys:
                leaf = leaf[key]
            parts = asked if name in ASKED or name == "frames" else acted
            if name == "frames":
                leaf = leaf[:, :, :, -1]
            elif name == "memory":  # of slabs that are shorter than `every`, only some have one that is needed
                parts = _parts(head // every, len(leaf), rows // every) if head % every == 0 else []
            if name == "state":
                leaf = leaf[:, :, None] if agents == 1 else np.repeat(leaf, agents, axis=1)
            elif agents > 1:
                leaf = leaf.reshape(len(leaf), -1, *leaf.shape[3:])
            for place, part in parts:
                array[columns, place] = (leaf[part, :, 0] if agents == 1 else leaf[part]).swapaxes(0, 1)
        for place, _ in acted:
            self.arrays["version"][columns, place] = slab["version"][0]
        self.arrays["valid"][columns, (head + steps) % rows] = False

    def _open_windows(self, starts: Array, columns: slice, low: int, head: int) -> None:
        """Windows that start at `low` or later and end before the head: those with a valid row among the trained ones."""
        shape, window = self.shape, self.shape.window
        every, length = shape.every, cast(int, window.length)
        valid = self.arrays["valid"][columns]
        if window.rows == every == 1:
            for part in _spans(low, head, shape.rows):
                starts[:, part] = valid[:, part]
            return
        numbers = np.arange(-(-low // every) * every, head - window.rows + 1, every)
        if len(numbers):
            trained = (numbers[:, None] + np.arange(window.burn_in, window.burn_in + length)) % shape.rows
            starts[:, numbers // every % shape.starts] = valid[:, trained].any(axis=2)


def _spans(low: int, high: int, places: int) -> tuple[slice, ...]:
    """Where the numbers from `low` up to `high` stand in a ring of so many places: at most two parts."""
    place, size = low % places, high - low
    if place + size <= places:
        return (slice(place, place + size),) if size > 0 else ()
    return slice(place, places), slice(0, place + size - places)


def _count(starts: Array, spans: tuple[slice, ...]) -> int:
    found = 0
    for part in spans:
        found += int(np.count_nonzero(starts[:, part]))
    return found


def _parts(number: int, count: int, places: int) -> list[tuple[slice, slice]]:
    """(places in a ring, rows of a slab) of so many rows from this number on: one or two parts."""
    place = number % places
    size = min(count, places - place)
    if size == count:
        return [(slice(place, place + count), slice(0, count))]
    return [(slice(place, places), slice(0, size)), (slice(0, count - size), slice(size, count))]
