"""Two sources in one batch: a share of fixed rows, as of a data set, and the rest from the run's own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from srl.core.errors import SettingError, UserError
from srl.core.spec import differences, spec_of
from srl.core.tree import Array, leaves, map_tree
from srl.replay.store import Store


class Mixture:
    """Draws like a store. The first `round(share * count)` windows of a batch are from `fixed`."""

    def __init__(self, online: Store, fixed: Store, share: float) -> None:
        if not 0.0 < share <= 1.0:
            raise SettingError("share", f"must be above 0 and at most 1, not {share:g}")
        if not len(fixed):
            raise SettingError("", "a data set must have at least one window of the length that is trained")
        self.online, self.fixed, self.share = online, fixed, share
        self._parts: dict[tuple[int, int], tuple[Any, Any, Any]] = {}

    def __len__(self) -> int:
        """Windows of the online store: while it has none, nothing is drawn."""
        return len(self.online)

    def sample(self, count: int, rng: np.random.Generator, out: Mapping[str, Any], beta: float = 1.0) -> None:
        """As `Store.sample`. An id is twice that of its source, plus one if the source is `fixed`."""
        fixed = round(self.share * count)
        of_fixed, of_online = self._split(out, fixed)
        if fixed:
            self.fixed.sample(fixed, rng, of_fixed, beta)
        if fixed < count:
            self.online.sample(count - fixed, rng, of_online, beta)
            out["version"][:fixed] = out["version"][fixed:].max()  # fixed rows are of no policy, and never stale
        out["ids"][...] *= 2
        out["ids"][:fixed] += 1
        out["env_steps"][0] = self.online.env_steps

    def give_back(self, ids: Array, values: Mapping[str, Any]) -> int:
        """As `Store.give_back`."""
        missing = 0
        for store, mine in ((self.online, ids % 2 == 0), (self.fixed, ids % 2 == 1)):
            missing += store.give_back(
                ids[mine] // 2, {name: map_tree(lambda leaf, m=mine: leaf[m], tree) for name, tree in values.items()}
            )
        return missing

    def state(self) -> dict[str, Array]:
        """As `Store.state`; of the fixed rows only the priorities, for they are read from their files again."""
        return {**self.online.state(), **{f"fixed/{name}": array for name, array in self.fixed.selector.state().items()}}

    def restore(self, saved: Mapping[str, Any]) -> None:
        """The inverse of `state`."""
        flat = dict(leaves(saved))
        fixed = {name.removeprefix("fixed/"): array for name, array in flat.items() if name.startswith("fixed/")}
        mine = self.fixed.selector.state()
        if lines := differences(spec_of(mine), spec_of(fixed)):
            raise UserError("a saved replay cannot be restored with another data set", ("found", "\n".join(lines)), code="E15")
        self.online.restore({name: array for name, array in flat.items() if not name.startswith("fixed/")})
        self.fixed.selector.restore(fixed)

    def _split(self, out: Mapping[str, Any], fixed: int) -> tuple[Any, Any]:
        """The first windows of a batch, and the rest: views."""
        known = self._parts.get((id(out), fixed))
        if known is None or known[0] is not out:
            known = out, _windows(out, slice(fixed)), _windows(out, slice(fixed, None))
            if len(self._parts) >= 64:
                self._parts.clear()
            self._parts[id(out), fixed] = known
        return known[1], known[2]


def _windows(out: Mapping[str, Any], part: slice) -> dict[str, Any]:
    def cut(leaf: Array) -> Array:
        return leaf[part] if leaf.ndim == 1 else leaf[:, part]

    return {name: tree if name == "env_steps" else map_tree(cut, tree) for name, tree in out.items()}
