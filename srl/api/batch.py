"""Batches: what an algorithm trains on. Tensors, time first, on the learner's device; the memory is reused after update."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from srl.api.minibatches import Cut, Pool, Rows, Sequences
from srl.api.slab import Window
from srl.core.seeds import number, word
from srl.core.tree import Array, map_tree

FLAGS = ("valid", "choice")
"""Of a minibatch these depend on which of its rows are trained."""
ROWS = Window()
"""Single rows, or whole slabs of a policy with memory."""


@dataclass(frozen=True, slots=True)
class Feedback:
    """What an algorithm hands back to where its rows came from: priorities, refreshed memories, new targets."""

    ids: Array
    """`[B]`, as they came with the batch."""
    leaves: dict[str, Any]
    """`[B, ...]` each."""


class Ranks:
    """The learners that train one policy together, each on its own rows, and each in a process of its own.

    Losses are means over the rows of all ranks and gradients are summed, so that ranks with few valid rows weigh less.
    All ranks make the same calls in the same order, or they deadlock: what decides about a call must be the same on all.
    """

    def __init__(self, index: int, size: int) -> None:
        self.index = index
        """Of this one, 0 to `size - 1`."""
        self.size = size
        self.sums: dict[str, Any] = {}
        """Kind of a device -> what has `total` for tensors there, once the ranks have met."""

    def total(self, x: Tensor) -> Tensor:
        """The sum over all ranks, the same on each; written into `x`. OthersLost if one of them is gone."""
        total: Tensor = self.sums[x.device.type].total(x)
        return total


@dataclass(slots=True)
class Origin:
    """Where a batch comes from: decides its random numbers, its buffers and its ranks."""

    seed: int = 0
    update: int = 0
    memory_every: int | None = None
    pool: Pool | None = None
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
    passed: int = 0
    """Rows that minibatches were made of, once for each pass."""
    last_pass: bool = True
    """False for minibatches of the epochs before the last one."""
    detach_at: Tensor | None = None
    """`[T, B]`: no gradient flows from the memory before this row to the rows that it comes from; None: it flows everywhere."""
    _is_drawn = False
    """These are single transitions of a replay, of which all are valid."""

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Columns that `add` made."""

    def __init__(self, rows: Mapping[str, Any], origin: Origin | None = None) -> None:
        self.origin = origin or Origin()
        self._counts: dict[str, tuple[Tensor, Tensor, Tensor]] = {}
        for name, tree in rows.items():
            setattr(self, name, tree)
        self._names = list(rows)
        self._is_drawn = "ids" in rows and len(rows["valid"]) == 1

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
        """The mean over the valid rows (of them, those in `where`) of all ranks.

        A loss, with a gradient, is only estimated, as by `estimate`: the gradients of all ranks add up to that of the mean.
        """
        own = self._part(x, where)
        if self.origin.ranks is None:
            return own
        return self._estimated(own) if own.requires_grad else self.origin.ranks.total(own)

    def estimate(self, x: Tensor, where: Tensor | None = None) -> Tensor:
        """The same mean by the own rows, for metrics: the mean over ranks is exact, and they need not wait for each other."""
        return self._estimated(self._part(x, where))

    def zeroed(self, x: Tensor, where: Tensor | None = None) -> Tensor:
        """`x` with zeros outside of the rows that `mean` takes: what stands there must not overflow in a loss."""
        return torch.where(self._rows(where)[0], x, 0.0)

    def count(self, where: Tensor | None = None) -> Tensor:
        """How many rows `mean` takes, over all ranks."""
        return self._rows(where)[2]

    def _part(self, x: Tensor, where: Tensor | None) -> Tensor:
        """The own part of a mean over all ranks."""
        if self._is_whole(where):
            return x.mean() if self.origin.ranks is None else x.mean() / self.origin.ranks.size
        rows, share, _ = self._rows(where)
        return (x if self._is_full(where) else torch.where(rows, x, 0.0)).sum() * share

    def _estimated(self, part: Tensor) -> Tensor:
        """Of the mean, with the gradient of the part: the optimizer adds gradients up."""
        if self.origin.ranks is not None:
            part.data.mul_(self.origin.ranks.size)  # the value alone: no gradient depends on it
        return part

    def _is_whole(self, where: Tensor | None) -> bool:
        """True if these are all rows, and as many on every rank."""
        return self._is_drawn and where is None

    def _is_full(self, where: Tensor | None) -> bool:
        """True if these are all rows of this rank."""
        return self._is_drawn and where is None

    def _known_count(self, name: str) -> Tensor | None:
        """Of all ranks, if they need not be asked."""
        return None

    def add(self, **columns: Any) -> Batch:
        """Columns of one's own, `[T, B, ...]` or `[T+1, B, ...]`: they ride into the minibatches."""
        for name, tree in columns.items():
            setattr(self, name, tree)
            if name not in self._names:
                self._names.append(name)
        return self

    def asked(self, start: int, stop: int | None = None, memory: Any = None) -> Batch:
        """What a policy is asked in rows `start` to `stop`, to unroll it there: views. `memory`: before the first of them."""
        rows: dict[str, Any] = {}
        for name in ("obs", "mask", "state", "first"):
            tree = getattr(self, name)
            rows[name] = None if tree is None else map_tree(lambda leaf: leaf[start:stop], tree)
        rows["memory"] = self.memory if memory is None else memory
        return Batch({**rows, "valid": torch.ones_like(rows["first"])}, self.origin)

    def keep(self, *names: str) -> Batch:
        """A copy of these leaves that outlives the update; without names, of all."""
        rows = {name: getattr(self, name) for name in names or self._names}
        copied = {name: map_tree(_clone, tree) for name, tree in rows.items()}
        for name in ("valid", "choice", "cut"):
            copied.setdefault(name, getattr(self, name).clone())
        return Batch(copied, Origin(self.origin.seed, self.origin.update, self.origin.memory_every, ranks=self.origin.ranks))

    def give_back(self, **leaves: Any) -> None:
        """Leaves `[B, ...]` for the source of this batch, which knows its windows by `ids`: only a replay has them.

        `priority`: of the window. `memory`: before its first trained row, the one after the burn-in.
        """
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

    def normal(self, tag: str, *sizes: int) -> Tensor:
        """Standard normal numbers `[B, *sizes]`, which depend on the run's seed, the update and the tag alone."""
        generator = torch.Generator()
        generator.manual_seed(number(self.origin.seed, self.origin.update, word(tag)) >> 1)
        return torch.randn(*self.lead[1:], *sizes, generator=generator).to(self.valid.device)

    def minibatches(self, rows: int, epochs: int = 1, window: Window = ROWS) -> Iterator[Batch]:
        """Minibatches of at most `rows` rows of all ranks, shuffled anew each epoch, as even as can be, `[1, M, ...]`.

        Rows that are not valid are left out. Rows with memory, and windows of several rows, are sequences,
        `[window.rows, M / length, ...]`, that start where memory was recorded; rows that are not to be trained are not
        valid in them.
        """
        single = window.rows == 1 and (window.length == 1 or self.memories == {})
        cutter = Rows(self) if single else Sequences(self, window)
        generator = self.rng("minibatches")
        between = self.origin.between
        if self.origin.ranks is not None:
            rows = max(rows // self.origin.ranks.size, 1)
        for epoch in range(epochs):
            for cut in cutter.epoch(max(rows // cutter.rows_each, 1), generator):
                self.passed += cutter.rows_each * cut.gather.leads[cut.place][1]
                yield _Minibatch(self, cut, epoch == epochs - 1)
                if between is not None:
                    between()

    def _rows(self, where: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        """(the rows that `mean` takes, one over their number, their number over all ranks).

        Those of `valid` and `choice` are counted once.
        """
        own = self.__dict__
        name = "valid" if where is None or where is own.get("valid") else "choice" if where is own.get("choice") else ""
        known = self._counts.get(name)
        if known is None:
            rows = self.valid if name == "valid" or where is None else where & self.valid
            count = self._known_count(name)
            if count is None:
                count = rows.sum().float()
                if self.origin.ranks is not None:
                    count = self.origin.ranks.total(count)
            count = count.clamp(min=1.0)
            known = rows, 1.0 / count, count
            if name:
                self._counts[name] = known
        return known


class _Minibatch(Batch):
    """Leaves are gathered when they are first asked for: what a loss does not read costs nothing."""

    def __init__(self, source: Batch, cut: Cut, last_pass: bool) -> None:
        self.origin = source.origin
        self.last_pass = last_pass
        self._counts = {}
        self._names = source._names
        self._source = source
        self._cut = cut
        self._lead = (*cut.gather.leads[cut.place], *source.lead[2:])
        self.detach_at = cut.detach_at
        for name, parts in cut.gather.parts.items():
            if name not in FLAGS:
                self.__dict__[name] = parts[cut.place]
        if cut.trained is None:
            self.valid = cut.gather.all_true(cut.place)
            if source.choice is source.valid:
                self.choice = self.valid

    @property
    def lead(self) -> torch.Size:
        return torch.Size(self._lead)

    def zeroed(self, x: Tensor, where: Tensor | None = None) -> Tensor:
        return x if self._is_full(where) else super().zeroed(x, where)

    def _is_whole(self, where: Tensor | None) -> bool:
        return self.origin.ranks is None and self._is_full(where)

    def _is_full(self, where: Tensor | None) -> bool:
        """True if these are all rows of the minibatch."""
        return self._cut.trained is None and (where is None or where is self.valid)

    def _known_count(self, name: str) -> Tensor | None:
        counts = self._cut.counts
        return None if counts is None or name not in FLAGS else counts[FLAGS.index(name)]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        value = self._find(name)
        self.__dict__[name] = value
        return value

    def _find(self, name: str) -> Any:
        if name in ("memory", "memories"):
            return self._memory(name)
        if name in FLAGS:
            return self._flags(name)
        return self._cut.gather.read(name)[self._cut.place]

    def _flags(self, name: str) -> Tensor:
        source = self._source
        if name == "choice" and source.choice is source.valid:
            return self.valid
        flags: Tensor = self._cut.gather.read(name)[self._cut.place]
        if (trained := self._cut.trained) is None:
            return flags
        trained = trained.view(*trained.shape, *[1] * (flags.ndim - 2))
        return flags & trained

    def _memory(self, name: str) -> Any:
        source = self._source
        if source.memories == {}:
            return {}
        rows = self._cut.first
        assert rows is not None
        found = map_tree(lambda leaf: leaf.flatten(0, 1).index_select(0, rows), source.memories)
        return found if name == "memory" else map_tree(lambda leaf: leaf[None], found)


def _clone(leaf: Any) -> Any:
    return leaf.clone() if isinstance(leaf, Tensor) else leaf
