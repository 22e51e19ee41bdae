"""How minibatches are cut: which rows of a batch each one has, gathered for several at once. Tensors, time first."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from srl.api.slab import Window
from srl.core.tree import leaves

if TYPE_CHECKING:
    from srl.api.batch import Batch

SPAN_BYTES = 4 << 20
"""Rows are gathered for several minibatches at once, as long as one leaf of them stays below this."""


class Pool:
    """Tensors that are allocated once and handed out again at every update."""

    def __init__(self) -> None:
        self._held: dict[str, Tensor] = {}

    def empty(self, key: str, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
        """A tensor with undefined content; the one of the last call with this key, if it fits."""
        held = self._held.get(key)
        if held is None or held.dtype != dtype or held.device != device or held.shape[1:] != shape[1:] or len(held) < shape[0]:
            held = self._held[key] = torch.empty(shape, dtype=dtype, device=device)
        return held[: shape[0]]


class Cut(NamedTuple):
    """The rows of one minibatch."""

    gather: Gather
    place: int
    """Which of the minibatches that were gathered together."""
    first: Tensor | None
    """Rows of `memories` that its sequences start with."""
    trained: Tensor | None
    """Which of its rows are trained; None: all of them."""
    detach_at: Tensor | None = None
    counts: Tensor | None = None
    """Rows of it on all ranks that are valid, and those that enter the policy loss; None: there is one rank."""


class Gather:
    """The rows of a few minibatches: one `index_select` per leaf, into memory that is used again.

    Leaves are gathered when they are first read, and those that were read of the rows before at once.
    """

    def __init__(self, batch: Batch, index: Tensor, leads: list[tuple[int, int]], before: Gather | None = None) -> None:
        self.batch = batch
        self.index = index
        self.leads = leads
        """(time, number) of each minibatch."""
        self.parts: dict[str, list[Any]] = {}
        """The leaves `[time, number, ...]` of each tree that was read, for each minibatch."""
        self._flags: dict[tuple[int, int], Tensor] = {}
        for name in before.parts if before is not None else ():
            self.read(name)

    def read(self, name: str) -> list[Any]:
        """Those of one tree."""
        found = self.parts.get(name)
        if found is None:
            found = self.parts[name] = self._cut(name, getattr(self.batch, name))
        return found

    def all_true(self, place: int) -> Tensor:
        """Flags of a minibatch whose rows are all trained."""
        flags = self._flags.get(self.leads[place])
        if flags is None:
            flags = self._flags[self.leads[place]] = torch.ones(self.leads[place], dtype=torch.bool, device=self.index.device)
        return flags

    def _cut(self, path: str, tree: Any) -> list[Any]:
        if tree is None or (isinstance(tree, Tensor) and tree.ndim == 1):  # about the whole batch
            return [tree] * len(self.leads)
        if isinstance(tree, Mapping):
            parts = {key: self._cut(f"{path}/{key}", part) for key, part in tree.items()}
            return [{key: part[i] for key, part in parts.items()} for i in range(len(self.leads))]
        rows = self._take(path, tree)
        if self.leads.count(self.leads[0]) == len(self.leads):
            return list(rows.view(len(self.leads), *self.leads[0], *rows.shape[1:]).unbind(0))
        cuts = torch.split(rows, [time * number for time, number in self.leads])
        return [one.view(*lead, *one.shape[1:]) for one, lead in zip(cuts, self.leads, strict=True)]

    def _take(self, key: str, leaf: Tensor) -> Tensor:
        flat = leaf.flatten(0, 1)
        shape = (len(self.index), *flat.shape[1:])
        if self.batch.origin.pool is None or leaf.requires_grad:
            return flat.index_select(0, self.index)
        out = self.batch.origin.pool.empty(key, shape, leaf.dtype, leaf.device)
        return torch.index_select(flat, 0, self.index, out=out)


class Rows:
    """Single rows, those that are valid."""

    rows_each = 1
    """Rows of the smallest part."""

    def __init__(self, batch: Batch) -> None:
        self.batch = batch
        size = batch.lead[0] * batch.lead[1]
        valid = batch.valid.reshape(size, -1)
        if batch.valid.ndim > 2:
            self.rows_each = valid.shape[1]
        present = valid.any(1) if valid.shape[1] > 1 else valid[:, 0]
        self.index = None if bool(present.all()) else present.nonzero()[:, 0]
        self.total = size if self.index is None else len(self.index)
        self.places = size
        self._gather: Gather | None = None
        if batch.memories != {} and batch.origin.memory_every != 1:
            raise ValueError("single rows of a policy with memory need memory at every row: Needs.window=Window(length=1)")

    def epoch(self, size: int, generator: torch.Generator) -> Iterator[Cut]:
        """Minibatches of at most `size` rows, every row once."""
        batch, device = self.batch, self.batch.valid.device
        order = torch.randperm(self.total, generator=generator).to(device)
        index = order if self.index is None else self.index[order]
        number = -(-self.places // size)  # by the places, not the valid rows: the same on every rank
        bounds = [self.total * i // number for i in range(number + 1)]
        counts = None
        if batch.origin.ranks is not None:
            flags = [flag.reshape(self.places, -1).sum(1)[index] for flag in (batch.valid, batch.choice)]
            counts = _counts(batch, flags, bounds)
            if self.total < number:
                yield from self._few(index, bounds, counts)
                return
        dense = len(batch.lead) == 2
        everyone = None if dense else torch.ones((1, 1), dtype=torch.bool, device=device)
        for low, high in _spans(batch, size, number):
            rows = index[bounds[low] : bounds[high]]
            gather = self._gather = Gather(batch, rows, [(1, bounds[i + 1] - bounds[i]) for i in range(low, high)], self._gather)
            for i in range(low, high):
                if bounds[i + 1] > bounds[i]:
                    first = index[bounds[i] : bounds[i + 1]] if batch.memories != {} else None
                    yield Cut(gather, i - low, first, everyone, counts=None if counts is None else counts[i])

    def _few(self, index: Tensor, bounds: list[int], counts: Tensor) -> Iterator[Cut]:
        """Fewer rows than minibatches, while other ranks have more and wait: a row that is not valid where there is none."""
        for count, (low, high) in zip(counts, pairwise(bounds), strict=True):
            rows = index[low:high] if high > low else index.new_zeros(1)
            trained = torch.full((1, 1), high > low, device=rows.device)
            first = rows if self.batch.memories != {} else None
            yield Cut(Gather(self.batch, rows, [(1, len(rows))]), 0, first, trained, counts=count)


class Sequences:
    """Windows of one column each."""

    def __init__(self, batch: Batch, window: Window) -> None:
        steps, self.width = batch.lead[0], batch.lead[1]
        self.window = window = window.within(steps)
        every = batch.origin.memory_every or steps
        places = window.places(steps) if window.fits(steps) else []
        if not places or (batch.memories != {} and any(start % every for start, _ in places)):
            raise ValueError(f"slabs of {steps} rows with memory every {every} rows cannot be cut into {window}")
        self.batch, self.every = batch, every
        self.whole = window.rows == window.length and batch.valid.ndim == 2 and bool(batch.valid.all())
        """True if every row of every window is trained."""
        self.rows_each = (window.length or 1) * math.prod(batch.lead[2:])
        self._gather: Gather | None = None
        self.starts, self.before = torch.tensor(places, device=batch.valid.device).unbind(1)

    def epoch(self, size: int, generator: torch.Generator) -> Iterator[Cut]:
        """Minibatches of at most `size` windows, every window once."""
        batch, window, device = self.batch, self.window, self.batch.valid.device
        total = len(self.starts) * self.width
        order = torch.randperm(total, generator=generator).to(device)
        windows, column = order // self.width, order % self.width
        number = -(-total // size)
        bounds = [total * i // number for i in range(number + 1)]
        time = torch.arange(window.rows, device=device)[:, None]
        starts, befores = self.starts[windows], self.before[windows]
        index = (starts + time) * self.width + column
        counts = None
        if batch.origin.ranks is not None:
            trained = window.trained(time, befores)
            flags = [flag.flatten(0, 1)[index].flatten(2).sum(2) for flag in (batch.valid[..., None], batch.choice[..., None])]
            counts = _counts(batch, [(flag * trained).sum(0) for flag in flags], bounds)
        firsts = torch.div(starts, self.every, rounding_mode="floor") * self.width + column
        for low, high in _spans(batch, size * window.rows, number):
            parts = [slice(bounds[i], bounds[i + 1]) for i in range(low, high)]
            rows = torch.cat([index[:, part].flatten() for part in parts])
            leads = [(window.rows, part.stop - part.start) for part in parts]
            gather = self._gather = Gather(batch, rows, leads, self._gather)
            for place, part in enumerate(parts):
                trained = None if self.whole else window.trained(time, befores[part])
                detach_at = self._detach_at(time, befores[part]) if window.rows > (window.length or 1) else None
                number_of = None if counts is None else counts[low + place]
                yield Cut(gather, place, firsts[part], trained, detach_at, number_of)

    def _detach_at(self, time: Tensor, before: Tensor) -> Tensor:
        """The first trained row of every sequence: gradients end where the burn-in does."""
        agents = self.batch.lead[2:]
        rows = time == before
        return rows.view(*rows.shape, *[1] * len(agents)).expand(*rows.shape, *agents)


def _counts(batch: Batch, own: list[Tensor], bounds: list[int]) -> Tensor:
    """`[number, 2]`: how many rows each minibatch has on all ranks, by the numbers of each part that is shuffled."""
    assert batch.origin.ranks is not None
    sums = torch.nn.functional.pad(torch.stack(own, 1).cumsum(0), (0, 0, 1, 0))[bounds]
    return batch.origin.ranks.total((sums[1:] - sums[:-1]).float())


def _spans(batch: Batch, size: int, number: int) -> Iterator[tuple[int, int]]:
    """Groups of minibatches that are gathered together."""
    largest = max((leaf[0, 0].numel() * leaf.element_size() for _, leaf in leaves(batch.__dict__.get("obs", {}))), default=4)
    step = max(1, min(number, SPAN_BYTES // max(largest * size, 1)))
    for low in range(0, number, step):
        yield low, min(low + step, number)
