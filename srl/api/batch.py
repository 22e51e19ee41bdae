"""Batches: what an algorithm trains on. Tensors, time first, on the learner's device; the memory is reused after update."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from srl.api.slab import Window
from srl.core.seeds import word
from srl.core.tree import Array, leaves, map_tree

SPAN_BYTES = 4 << 20
"""Rows are gathered for several minibatches at once, as long as one leaf of them stays below this."""

ROWS = Window()
"""Single rows, or whole slabs of a policy with memory."""


class Memory:
    """Tensors that are allocated once and handed out again at every update."""

    def __init__(self) -> None:
        self._held: dict[str, Tensor] = {}

    def empty(self, key: str, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
        """A tensor with undefined content; the one of the last call with this key, if it fits."""
        held = self._held.get(key)
        if held is None or held.dtype != dtype or held.device != device or held.shape[1:] != shape[1:] or len(held) < shape[0]:
            held = self._held[key] = torch.empty(shape, dtype=dtype, device=device)
        return held[: shape[0]]


@dataclass(frozen=True, slots=True)
class Feedback:
    """What an algorithm hands back to where its rows came from: priorities, refreshed memories, new targets."""

    ids: Array
    """`[B]`, as they came with the batch."""
    leaves: dict[str, Any]
    """`[B, ...]` each."""


class Ranks:
    """The learners that train one policy together, each on its own rows: a process group of torch.distributed.

    Losses are means over the rows of all ranks and gradients are summed, so that ranks with few valid rows weigh less.
    All ranks make the same calls in the same order, or they wait for each other for ever.
    """

    def __init__(self, group: Any = None) -> None:
        self._group = group

    def total(self, x: Tensor) -> Tensor:
        """The sum over all ranks, the same on each; written into `x`."""
        torch.distributed.all_reduce(x, group=self._group)
        return x


class _Total(torch.autograd.Function):
    """The sum over ranks; its gradient is that of the own part, since the optimizer adds gradients up."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, ranks: Ranks) -> Tensor:
        return ranks.total(x.clone())

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        return grads[0], None


@dataclass(slots=True)
class Origin:
    """Where a batch comes from: decides its random numbers, its buffers and its ranks."""

    seed: int = 0
    update: int = 0
    memory_every: int | None = None
    memory: Memory | None = None
    ranks: Ranks | None = None
    between: Callable[[], None] | None = None
    """Called between two minibatches."""


class Batch:
    """Rows `[T, B, ...]` (`[T, B, A, ...]` when joint). `obs`, `mask`, `state`, `first`, `extra` have the bootstrap row T too."""

    obs: Any
    mask: Any
    """Allowed choices, or None."""
    state: Any
    """Per row; or None."""
    action: Any
    reward: Tensor
    terminated: Tensor
    truncated: Tensor
    first: Tensor
    valid: Tensor
    """Real transitions."""
    choice: Tensor
    """Valid rows that enter the policy loss."""
    cut: Tensor
    """No later reward may be credited to this row."""
    version: Tensor
    extra: dict[str, Any]
    signals: dict[str, Any]
    memory: Any
    """At row 0, `[B, ...]`; `{}` without memory."""
    memories: Any
    """All that was recorded, `[K, B, ...]`."""
    feedback: Feedback | None = None
    """What `give_back` took."""
    stop: Tensor | None = None
    """`[T, B]`: no gradient flows from the memory before this row to the rows that it comes from; None: it flows everywhere."""

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Columns that `add` made."""

    def __init__(self, rows: Mapping[str, Any], origin: Origin | None = None) -> None:
        self.origin = origin or Origin()
        self._shares: dict[int, tuple[Tensor, Tensor, Tensor, Tensor]] = {}
        for name, tree in rows.items():
            setattr(self, name, tree)
        self._names = list(rows)

    @classmethod
    def of(cls, **rows: Any) -> Batch:
        """A batch by hand: `reward` decides T and B, flags that are missing are harmless."""
        data: dict[str, Any] = {
            name: map_tree(torch.as_tensor, value) if value is not None else None for name, value in rows.items()
        }
        reward = data["reward"] = data["reward"].float()
        off = torch.zeros(reward.shape, dtype=torch.bool)
        for name in ("terminated", "truncated"):
            data[name] = data.get(name, off).bool()
        data.setdefault("valid", ~off)
        data.setdefault("first", torch.zeros((len(reward) + 1, *reward.shape[1:]), dtype=torch.bool))
        data.setdefault("choice", data["valid"])
        data.setdefault("cut", data["terminated"] | data["truncated"] | ~data["valid"])
        for name, empty in (("mask", None), ("state", None), ("extra", {}), ("signals", {}), ("memories", {})):
            data.setdefault(name, empty)
        data.setdefault("memory", map_tree(lambda leaf: leaf[0], data["memories"]))
        data.setdefault("version", torch.zeros(1, dtype=torch.int64))
        return cls(data)

    @property
    def lead(self) -> torch.Size:
        """The sizes in front of every row leaf: (T, B), or (T, B, A)."""
        return self.valid.shape

    def mean(self, x: Tensor, where: Tensor | None = None) -> Tensor:
        """The mean over the valid rows (of them, those in `where`) of all ranks; the gradient is that of the own rows."""
        rows, share, _ = self._share(self.valid if where is None else where)
        own = torch.where(rows, x, 0.0).sum() * share
        total: Tensor = own if self.origin.ranks is None else _Total.apply(own, self.origin.ranks)  # type: ignore[no-untyped-call]
        return total

    def zeroed(self, x: Tensor, where: Tensor | None = None) -> Tensor:
        """`x` with zeros outside of the rows that `mean` takes: what stands there must not overflow in a loss."""
        return torch.where(self._share(self.valid if where is None else where)[0], x, 0.0)

    def count(self, where: Tensor | None = None) -> Tensor:
        """How many rows `mean` takes, over all ranks."""
        return self._share(self.valid if where is None else where)[2]

    def add(self, **columns: Any) -> Batch:
        """Columns of one's own, `[T, B, ...]` or `[T+1, B, ...]`: they ride into the minibatches."""
        for name, tree in columns.items():
            setattr(self, name, tree)
            if name not in self._names:
                self._names.append(name)
        return self

    def keep(self, *names: str) -> Batch:
        """A copy of these leaves that outlives the update; without names, of all."""
        rows = {name: getattr(self, name) for name in names or self._names}
        copied = {name: map_tree(_clone, tree) for name, tree in rows.items()}
        for name in ("valid", "choice", "cut"):
            copied.setdefault(name, getattr(self, name).clone())
        return Batch(copied, Origin(self.origin.seed, self.origin.update, self.origin.memory_every, ranks=self.origin.ranks))

    def give_back(self, **leaves: Any) -> None:
        """Leaves `[B, ...]` for the source of this batch, which knows its rows by `ids`: only a replay has them."""
        if "ids" not in self._names:
            raise ValueError("these rows have no ids: they come from actors, and nothing can be given back to them")
        host = {name: map_tree(lambda leaf: leaf.detach().cpu().numpy().copy(), tree) for name, tree in leaves.items()}
        self.feedback = Feedback(self.ids.cpu().numpy().copy(), host)

    def rng(self, tag: str) -> torch.Generator:
        """A generator that depends on the run's seed, the update and the tag alone."""
        key = np.random.SeedSequence(self.origin.seed, spawn_key=(self.origin.update, word(tag)))
        generator = torch.Generator()
        generator.manual_seed(int(key.generate_state(1, np.uint64)[0] >> np.uint64(1)))
        return generator

    def minibatches(self, rows: int, epochs: int = 1, window: Window = ROWS) -> Iterator[Batch]:
        """Minibatches of at most `rows` rows, shuffled anew each epoch, as even as can be, `[1, M, ...]`.

        Rows that are not valid are left out. Rows with memory, and windows of several rows, are sequences,
        `[window.rows, M / length, ...]`, that start where memory was recorded; rows that are not to be trained are not
        valid in them.
        """
        single = window.rows == 1 and (window.length == 1 or self.memories == {})
        plan = _Rows(self) if single else _Sequences(self, window)
        generator = self.rng("minibatches")
        between = self.origin.between
        for _ in range(epochs):
            for minibatch in plan.epoch(max(rows // plan.rows_each, 1), generator):
                yield minibatch
                if between is not None:
                    between()

    def _share(self, where: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """(the rows, one over their number, their number): kept, since a loss asks several times."""
        known = self._shares.get(id(where))
        if known is None:
            rows = where if where is self.valid else where & self.valid
            count = rows.sum().float()
            if self.origin.ranks is not None:
                count = self.origin.ranks.total(count)
            count = count.clamp(min=1.0)
            known = self._shares[id(where)] = (where, rows, 1.0 / count, count)  # `where` stays: its id must
        return known[1:]


class _Minibatch(Batch):
    """Leaves are gathered when they are first asked for: what a loss does not read costs nothing."""

    def __init__(
        self, gather: _Gather, place: int, first: Tensor | None, trained: Tensor | None, stop: Tensor | None = None
    ) -> None:  # fmt: skip
        self.origin = gather.batch.origin
        self._shares = {}
        self._names = gather.batch._names
        self._gather = gather
        self._place = place
        self._lead = (*gather.leads[place], *gather.batch.lead[2:])
        self._first = first
        self._trained = trained
        self._dense = trained is None
        self.stop = stop

    @property
    def lead(self) -> torch.Size:
        return torch.Size(self._lead)

    def mean(self, x: Tensor, where: Tensor | None = None) -> Tensor:
        return x.mean() if self._is_whole(where) and self.origin.ranks is None else super().mean(x, where)

    def zeroed(self, x: Tensor, where: Tensor | None = None) -> Tensor:
        return x if self._is_whole(where) else super().zeroed(x, where)

    def _is_whole(self, where: Tensor | None) -> bool:
        """Whether these are all rows of the minibatch."""
        return self._dense and (where is None or where is self.__dict__.get("valid"))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        value = self._find(name)
        self.__dict__[name] = value
        return value

    def _find(self, name: str) -> Any:
        source = self._gather.batch
        if name in ("memory", "memories"):
            return self._memory(name)
        if name in ("valid", "choice"):
            return self._flags(name)
        tree = getattr(source, name)
        if tree is None or (isinstance(tree, Tensor) and tree.ndim == 1):
            return tree
        return self._gather.parts(name, tree)[self._place]

    def _flags(self, name: str) -> Tensor:
        source = self._gather.batch
        if name == "choice" and source.choice is source.valid:
            return self.valid
        if self._dense and name == "valid" and len(self._lead) == 2:
            return torch.ones(self._lead, dtype=torch.bool, device=source.valid.device)
        flags: Tensor = self._gather.parts(name, getattr(source, name))[self._place]
        if self._trained is None:
            return flags
        trained = self._trained.view(*self._trained.shape, *[1] * (flags.ndim - 2))
        return flags & trained

    def _memory(self, name: str) -> Any:
        source = self._gather.batch
        if source.memories == {}:
            return {}
        assert self._first is not None
        rows = self._first
        found = map_tree(lambda leaf: leaf.flatten(0, 1).index_select(0, rows), source.memories)
        return found if name == "memory" else map_tree(lambda leaf: leaf[None], found)


class _Gather:
    """The rows of a few minibatches: one `index_select` per leaf, into memory that is used again."""

    def __init__(self, batch: Batch, index: Tensor, leads: list[tuple[int, int]]) -> None:
        self.batch = batch
        self.index = index
        self.leads = leads
        """(time, number) of each minibatch."""
        self._parts: dict[str, list[Any]] = {}

    def parts(self, name: str, tree: Any) -> list[Any]:
        """The leaves `[time, number, ...]` of one tree, for each minibatch."""
        found = self._parts.get(name)
        if found is None:
            found = self._parts[name] = self._cut(name, tree)
        return found

    def _cut(self, path: str, tree: Any) -> list[Any]:
        if isinstance(tree, Mapping):
            parts = {key: self._cut(f"{path}/{key}", part) for key, part in tree.items()}
            return [{key: part[i] for key, part in parts.items()} for i in range(len(self.leads))]
        rows = torch.split(self._take(path, tree), [time * number for time, number in self.leads])
        return [one.view(*lead, *one.shape[1:]) for one, lead in zip(rows, self.leads, strict=True)]

    def _take(self, key: str, leaf: Tensor) -> Tensor:
        flat = leaf.flatten(0, 1)
        shape = (len(self.index), *flat.shape[1:])
        if self.batch.origin.memory is None or leaf.requires_grad:
            return flat.index_select(0, self.index)
        out = self.batch.origin.memory.empty(key, shape, leaf.dtype, leaf.device)
        return torch.index_select(flat, 0, self.index, out=out)


class _Rows:
    """Single rows, those that are valid."""

    rows_each = 1

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
        if batch.memories != {} and batch.origin.memory_every != 1:
            raise ValueError("single rows of a policy with memory need memory at every row: Needs.window=Window(length=1)")

    def epoch(self, size: int, generator: torch.Generator) -> Iterator[Batch]:
        batch, device = self.batch, self.batch.valid.device
        order = torch.randperm(self.total, generator=generator).to(device)
        index = order if self.index is None else self.index[order]
        number = -(-self.places // size)  # by the places, not the valid rows: the same on every rank
        bounds = [self.total * i // number for i in range(number + 1)]
        if self.total < number and batch.origin.ranks is not None:
            yield from self._few(index, bounds)
            return
        dense = len(batch.lead) == 2
        everyone = None if dense else torch.ones((1, 1), dtype=torch.bool, device=device)
        for low, high in _spans(batch, size, number):
            rows = index[bounds[low] : bounds[high]]
            gather = _Gather(batch, rows, [(1, bounds[i + 1] - bounds[i]) for i in range(low, high)])
            for i in range(low, high):
                if bounds[i + 1] > bounds[i]:
                    first = index[bounds[i] : bounds[i + 1]] if batch.memories != {} else None
                    yield _Minibatch(gather, i - low, first, everyone)

    def _few(self, index: Tensor, bounds: list[int]) -> Iterator[Batch]:
        """Fewer rows than minibatches, while other ranks have more and wait: a row that is not valid where there is none."""
        for low, high in pairwise(bounds):
            rows = index[low:high] if high > low else index.new_zeros(1)
            trained = torch.full((1, 1), high > low, device=rows.device)
            yield _Minibatch(_Gather(self.batch, rows, [(1, len(rows))]), 0, rows if self.batch.memories != {} else None, trained)


class _Sequences:
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
        """Whether every row of every window is trained."""
        self.rows_each = (window.length or 1) * math.prod(batch.lead[2:])
        self.starts, self.before = torch.tensor(places, device=batch.valid.device).unbind(1)

    def epoch(self, size: int, generator: torch.Generator) -> Iterator[Batch]:
        batch, window, device = self.batch, self.window, self.batch.valid.device
        total = len(self.starts) * self.width
        order = torch.randperm(total, generator=generator).to(device)
        windows, column = order // self.width, order % self.width
        number = -(-total // size)
        bounds = [total * i // number for i in range(number + 1)]
        time = torch.arange(window.rows, device=device)[:, None]
        starts, befores = self.starts[windows], self.before[windows]
        index = (starts + time) * self.width + column
        firsts = torch.div(starts, self.every, rounding_mode="floor") * self.width + column
        for low, high in _spans(batch, size * window.rows, number):
            parts = [slice(bounds[i], bounds[i + 1]) for i in range(low, high)]
            rows = torch.cat([index[:, part].flatten() for part in parts])
            gather = _Gather(batch, rows, [(window.rows, part.stop - part.start) for part in parts])
            for place, part in enumerate(parts):
                trained = None if self.whole else window.trained(time, befores[part])
                stop = self._stop(time, befores[part]) if window.rows > (window.length or 1) else None
                yield _Minibatch(gather, place, firsts[part], trained, stop)

    def _stop(self, time: Tensor, before: Tensor) -> Tensor:
        """The first trained row of every sequence: gradients end where the burn-in does."""
        agents = self.batch.lead[2:]
        rows = time == before
        return rows.view(*rows.shape, *[1] * len(agents)).expand(*rows.shape, *agents)


def _spans(batch: Batch, size: int, number: int) -> Iterator[tuple[int, int]]:
    """Groups of minibatches that are gathered together."""
    largest = max((leaf[0, 0].numel() * leaf.element_size() for _, leaf in leaves(batch.__dict__.get("obs", {}))), default=4)
    step = max(1, min(number, SPAN_BYTES // max(largest * size, 1)))
    for low in range(0, number, step):
        yield low, min(low + step, number)


def _clone(leaf: Any) -> Any:
    return leaf.clone() if isinstance(leaf, Tensor) else leaf
