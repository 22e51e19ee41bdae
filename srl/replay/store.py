"""The store of a replay: slabs go in, batches drawn from all of their rows come out.

A batch is a slab: leaves `[T, B, 1, ...]`, with one row more for `obs`, `first`, `mask`, `state` and `extra`, and

    ids [B]         of the rows that the windows start with; what is given back finds them by it
    weight [B]      importance weights, at most 1
    version [B]     the policy that answered the first row
    env_steps [1]   inserted so far

Single transitions (`Window(length=1)`): T = 1, and the two rows of `obs` are row i and row i + m, where m <= n_step is where the
sum of rewards ends: at the end of an episode, at a gap, or where no more rows are known. `reward[0]` is this discounted sum,
`discount[0]` what the value of row i + m counts: gamma^m, or 0 after a termination. `terminated` and `truncated` are of row
i + m - 1. Longer windows have the rows as they were recorded, and the memory of their first row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from srl.api.slab import Window
from srl.core.errors import UserError
from srl.core.spec import Leaf, differences, lead, spec_of, total_bytes
from srl.core.tree import Array, leaves
from srl.replay.frames import Frames
from srl.replay.prioritised import Prioritised
from srl.replay.rings import ASKED, OF_SLABS, Rings, RingShape, ring_record
from srl.replay.sum_tree import SumTree
from srl.replay.uniform import Uniform

_DRAWN = ("ids", "weight", "version", "env_steps", "discount")
_LAST = ("terminated", "truncated")


def batch_record(record: Mapping[str, Any], batch: int, window: Window) -> dict[str, Any]:
    """The record of batches with so many windows, drawn from slabs with this record."""
    rows = window.within(1).rows
    spec: dict[str, Any] = {}
    for name, tree in record.items():
        if name in OF_SLABS:
            continue
        steps = 1 if name == "memory" else rows + 1 if name in ASKED else rows
        if name == "state":
            spec[name] = lead(_inner(tree, 2), steps, batch)
        else:
            spec[name] = lead(_inner(tree, 3), steps, batch, 1)
    spec["ids"] = Leaf((batch,), "int64")
    spec["weight"] = Leaf((batch,), "float32")
    spec["version"] = Leaf((batch,), "int64")
    spec["env_steps"] = Leaf((1,), "int64")
    if rows == 1:
        spec["discount"] = Leaf((1, batch, 1), "float32")
    return spec


def store_bytes(
    record: Mapping[str, Any], *, columns: int, size: int, window: Window, history: Sequence[str] = (), prioritised: bool = False
) -> int:  # fmt: skip
    """Memory that a store with these settings takes once it is full."""
    shape = RingShape.of(record, columns=columns, size=size, window=window, history=history)
    return total_bytes(ring_record(record, shape)) + (SumTree.bytes_of(columns, shape.starts) if prioritised else 0)


class Store:
    """One ring for each env and agent. Nothing is allocated per row or per batch."""

    def __init__(
        self, record: Mapping[str, Any], *, columns: int, size: int, window: Window, n_step: int = 1, gamma: float = 0.99,
        alpha: float | None = None, history: Sequence[str] = (),
    ) -> None:  # fmt: skip
        """`record`: of the slabs. `columns`: envs x agents of all that insert here. `size`: rows of all columns together.

        `alpha`: windows are drawn in proportion to priority^alpha, priorities being given back; None: all equally often.
        `history`: paths of observations that are stacks of frames, as `obs/screen`: their frames are kept once.
        """
        self.shape = RingShape.of(record, columns=columns, size=size, window=window, history=history)
        self.inserted = 0
        """Transitions so far; those of all agents count."""
        self.env_steps = 0
        """Env steps so far: steps in which any agent of an env took part."""
        self._window = window = window.within(1)
        self._single = window.rows == 1
        self._record = record
        self._rings = Rings(record, self.shape)
        self.selector = Uniform(self._rings) if alpha is None else Prioritised(self._rings, alpha)
        """What chooses the windows of a batch."""
        self._n_step = n_step
        self._powers = np.float32(gamma) ** np.arange(n_step + 1, dtype=np.float32)
        self._steps = np.arange(n_step)[:, None]
        self._times = np.arange(window.rows + 1)[:, None]
        self._plans: dict[int, tuple[Any, _Plan]] = {}

    def __len__(self) -> int:
        """Windows that can be drawn now."""
        return self._rings.windows

    @property
    def size(self) -> int:
        """Rows that fit in."""
        return self.shape.columns * (self.shape.rows - 1)

    def insert(self, slab: Mapping[str, Any], first_column: int, continues: bool) -> None:
        """Add the rows of one slab to the columns from `first_column` on (env by env, agents side by side).

        `continues`: its row 0 is row T of the slab that was inserted there before.
        """
        low, high = self._rings.append(slab, first_column, continues)
        valid = slab["valid"]
        _, envs, agents = valid.shape
        self.selector.changed(slice(first_column, first_column + envs * agents), low, high)
        count = int(np.count_nonzero(valid))
        self.inserted += count
        self.env_steps += count if agents == 1 else int(np.count_nonzero(valid.any(axis=2)))

    def sample(self, count: int, rng: np.random.Generator, out: Mapping[str, Any], beta: float = 1.0) -> None:
        """Draw windows into `out`, which fits `batch_record`. There must be one: `len(store) > 0`.

        `beta`: how far importance weights make up for the priorities. 1: their means are those of a uniform draw.
        """
        assert self._rings.windows > 0, "nothing can be drawn yet"
        starts, weight = self.selector.draw(count, rng, beta)
        shape = self.shape
        slots = starts if shape.every == 1 else starts * shape.every
        out["ids"][...] = self._ids(slots)
        out["weight"][...] = 1.0 if weight is None else weight
        out["env_steps"][0] = self.env_steps
        flat = self._rings.flat
        flat["version"].take(slots, 0, out["version"], "wrap")
        if self._single:
            rows = slots[None]
            last, asked = self._sum(slots, out)
        else:
            asked = self._rings.after(slots, self._times, self._rings.ends(slots, len(self._times)))
            rows = last = asked[:-1]
        places = (asked, rows, last, starts[None])
        plan, stacks = self._plan(out)
        for source, target, which in plan:
            source.take(places[which], 0, target, "wrap")
        for frames, target in stacks:
            frames.take(flat[frames.path], flat["first"], asked, self._rings.before, target)

    def give_back(self, ids: Array, values: Mapping[str, Any]) -> int:
        """What an algorithm has found for the windows with these ids: `priority` `[B]`, and `memory` `[B, ...]`, the one before
        their first trained rows. Windows that have been overwritten are left out: how many they were.
        """
        shape = self.shape
        slots = ids % (shape.columns * shape.rows)
        places = slots // shape.every
        flat = self._rings.flat
        known = flat["start"].take(places) & (self._ids(slots) == ids)
        missing = len(ids) - int(np.count_nonzero(known))
        if missing:
            places = places[known]
        for name, tree in values.items():
            for path, leaf in leaves(tree, name):
                value = leaf[known] if missing else leaf
                if name == "priority" and isinstance(self.selector, Prioritised):
                    self.selector.give(places, value)
                elif name == "memory" and path in flat:
                    flat[path][self._trained(places)] = value
                else:
                    raise ValueError(f"this replay cannot take back `{path}`: only priorities if it draws by them, and memories")
        return missing

    def state(self) -> dict[str, Array]:
        """All that `restore` needs, by name: views of the store's own memory, of the places in use."""
        rings, shape = self._rings, self.shape
        used = min(int(rings.heads.max()) + 1, shape.rows)
        places = {shape.rows: used, shape.starts: -(-used // shape.every)}
        window = shape.window
        sizes = (shape.columns, shape.rows, shape.every, window.burn_in, window.length, window.after)
        return {
            **{f"rings/{path}": array[:, : places[array.shape[1]]] for path, array in rings.arrays.items()},
            **{f"drawn/{name}": array for name, array in self.selector.state().items()},
            **{f"frames/{one.path}": np.array(one.padding) for one in shape.frames},
            "heads": rings.heads,
            "begins": rings.begins,
            "started": rings.started,
            "counts": np.array([self.inserted, self.env_steps, rings.windows]),
            "sizes": np.array(sizes),
        }

    def restore(self, saved: Mapping[str, Any]) -> None:
        """The inverse of `state`, into a store of the same sizes; UserError if it is of others."""
        flat = dict(leaves(saved))
        mine, rings = self.state(), self._rings
        lines = differences(spec_of(_without_rows(mine)), spec_of(_without_rows(flat)))
        if not lines and (mine["sizes"] != flat["sizes"]).any():
            lines = [f"columns, rows, rows between starts, window: {flat['sizes'].tolist()}, not {mine['sizes'].tolist()}"]
        if lines:
            found = "\n".join(lines[:8])
            raise UserError(
                "a saved replay cannot be restored into one of other sizes",
                ("found", found),
                ("try", "the settings of env, sampling and replay that it was saved with"),
                code="E15",
            )
        rings.arrays["start"][...] = False
        for path, array in rings.arrays.items():
            rows = flat[f"rings/{path}"]
            array[:, : rows.shape[1]] = rows
        rings.heads[...], rings.begins[...], rings.started[...] = flat["heads"], flat["begins"], flat["started"]
        self.inserted, self.env_steps, rings.windows = (int(one) for one in flat["counts"])
        for one in self.shape.frames:
            one.padding = int(flat[f"frames/{one.path}"])
        self.selector.restore({name.removeprefix("drawn/"): array for name, array in flat.items() if name.startswith("drawn/")})

    # ------------------------------------------------------------------------------------------------------------------

    def _trained(self, places: Array) -> Array:
        """Where the memory of the first trained rows stands, by where that of the first rows does."""
        starts = self.shape.starts
        column, place = np.divmod(places, starts)
        found: Array = column * starts + (place + self._window.burn_in // self.shape.every) % starts
        return found

    def _sum(self, slots: Array, out: Mapping[str, Any]) -> tuple[Array, Array]:
        """Sums of rewards and their discounts into `out`; (slots of the last rows of the sums, `[2, B]` of i and i + m)."""
        flat, reward, discount = self._rings.flat, out["reward"][0, :, 0], out["discount"][0, :, 0]
        after, ends = self._rings.after, self._rings.ends(slots, self._n_step)
        last, count = slots, np.int64(1)
        if self._n_step == 1:
            flat["reward"].take(slots, 0, reward, "wrap")
            discount[...] = self._powers[1]
        else:
            ahead = after(slots, self._steps, ends)
            alive = flat["valid"].take(ahead, 0, None, "wrap")
            np.logical_and.accumulate(alive, axis=0, out=alive)
            rewards = flat["reward"].take(ahead, 0, None, "wrap")
            rewards *= alive
            reward[...] = self._powers[:-1] @ rewards
            count = np.add.reduce(alive, axis=0, dtype=np.int64)
            self._powers.take(count, 0, discount, "clip")
            last = after(slots, count - 1, ends)
        discount[flat["terminated"].take(last, 0, None, "wrap")] = 0.0
        asked = np.empty((2, len(slots)), np.int64)
        asked[0] = slots
        asked[1] = after(slots, count, ends)
        return last[None], asked

    def _ids(self, slots: Array) -> Array:
        """A slot, and how often its place had been written: a number that no other row has."""
        shape, heads = self.shape, self._rings.heads
        total = shape.columns * shape.rows
        ids: Array
        if shape.columns == 1:
            round_, head = divmod(int(heads[0]), shape.rows)
            ids = slots + round_ * total
            ids -= total * (slots >= head)
            return ids
        column, place = np.divmod(slots, shape.rows)
        rounds, places = np.divmod(heads.take(column), shape.rows)
        rounds -= place >= places
        ids = slots + rounds * total
        return ids

    def _plan(self, out: Mapping[str, Any]) -> _Plan:
        """Where the leaves of this batch come from; known from the last time."""
        known = self._plans.get(id(out))
        if known is not None and known[0] is out:
            return known[1]
        plan: _Plan = [], []
        stacked = {one.path: one for one in self.shape.frames}
        for path, leaf in leaves(out):
            name = path.partition("/")[0]
            if name in _DRAWN or (self._single and name == "reward"):
                continue
            target = leaf if name == "state" else leaf.reshape(*leaf.shape[:2], *leaf.shape[3:], copy=False)
            if path in stacked:
                plan[1].append((stacked[path], target))
            else:
                which = 0 if name in ASKED else 3 if name == "memory" else 2 if name in _LAST else 1
                plan[0].append((self._rings.flat[path], target, which))
        if len(self._plans) >= 64:
            self._plans.clear()
        self._plans[id(out)] = out, plan
        return plan


_Plan: TypeAlias = tuple[list[tuple[Array, Array, int]], list[tuple[Frames, Array]]]
"""(array of the rings, where its rows go, which of the slots) of every leaf, and stacks with where they go."""


def _inner(tree: Any, axes: int) -> Any:
    if isinstance(tree, Mapping):
        return {name: _inner(branch, axes) for name, branch in tree.items()}
    return Leaf(tree.shape[axes:], tree.dtype)


def _without_rows(saved: Mapping[str, Array]) -> dict[str, Array]:
    """One row of each ring: how many are in use may differ."""
    return {name: array[:, :1] if name.startswith("rings/") else array for name, array in saved.items()}
