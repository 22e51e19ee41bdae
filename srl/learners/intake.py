"""From the numpy rows of a trainer's batch to the tensors that an algorithm sees."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from srl.api.batch import Batch, Origin, Ranks
from srl.api.minibatches import Pool
from srl.api.slab import SlabShape
from srl.core.tree import leaves as tree_leaves
from srl.core.tree import map_tree

_APART = ("state", "memory")
"""Rows, but not of agents, or not of every step."""

_KNOWN = 16
"""Rows whose tensors are kept."""


class Intake:
    """Rows `[T, E, A, ...]` become `[T, E * A, ...]`: views of the caller's memory where the device is the CPU.

    Leaves with one axis (`version`, and of a replay `ids` and `weight`) are about slabs or windows, and stay as they are.
    """

    def __init__(
        self, shape: SlabShape, device: torch.device, seed: int, *, joint: bool, ranks: Ranks | None = None,
        between: Callable[[], None] | None = None,
    ) -> None:  # fmt: skip
        self.shape = shape
        self.device = device
        self.joint = joint
        own = seed if ranks is None else seed ^ ranks.index << 32  # each rank shuffles its rows in another way
        self._origin = Origin(own, 0, shape.memory_every, Pool(), ranks, between)
        self._known: dict[int, tuple[Mapping[str, Any], dict[str, Any]]] = {}
        """Rows that lie in the same memory for every batch, and the tensors that look at it."""

    def batch(self, rows: Mapping[str, Any], update: int) -> Batch:
        """The batch of one update."""
        known = self._known.get(id(rows))
        leaves = known[1] if known is not None and known[0] is rows else self._leaves(rows)
        cut = leaves["terminated"] | leaves["truncated"] | ~leaves["valid"]
        return Batch({**leaves, "cut": cut}, replace(self._origin, update=update))

    def _leaves(self, rows: Mapping[str, Any]) -> dict[str, Any]:
        leaves: dict[str, Any] = {name: map_tree(self._rows, tree) for name, tree in rows.items() if name not in _APART}
        leaves["state"] = map_tree(self._state, rows["state"]) if "state" in rows else None
        leaves["memories"] = map_tree(self._rows, rows.get("memory", {}))
        leaves["memory"] = map_tree(lambda leaf: leaf[0], leaves["memories"])
        for name, missing in (("mask", None), ("extra", {}), ("signals", {})):
            leaves.setdefault(name, missing)
        leaves.setdefault("choice", leaves["valid"])
        if self._is_shared(rows):
            if len(self._known) >= _KNOWN:
                self._known.clear()
            self._known[id(rows)] = rows, leaves
        return leaves

    def _is_shared(self, rows: Mapping[str, Any]) -> bool:
        """True if all tensors of these rows look at the caller's memory."""
        repeats = "state" in rows and not self.joint and self.shape.agents > 1
        return self.device.type == "cpu" and not repeats and all(_can_be_shared(leaf) for _, leaf in tree_leaves(rows))

    def _rows(self, leaf: Any) -> Tensor:
        tensor = self._tensor(leaf)
        return tensor if self.joint or tensor.ndim == 1 else tensor.flatten(1, 2)

    def _state(self, leaf: Any) -> Tensor:
        tensor = self._tensor(leaf)
        agents = self.shape.agents
        return tensor if self.joint or agents == 1 else tensor.repeat_interleave(agents, 1)

    def _tensor(self, leaf: Any) -> Tensor:
        array = np.asarray(leaf)
        if not _can_be_shared(array):
            array = np.array(array, order="C")  # torch knows no read-only tensors
        return torch.from_numpy(array).to(self.device)


def _can_be_shared(leaf: Any) -> bool:
    return isinstance(leaf, np.ndarray) and leaf.flags.writeable and leaf.flags.c_contiguous
