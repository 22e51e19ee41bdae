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
from srl.core.tree import map_tree

_APART = ("state", "memory")
"""Rows, but not of agents, or not of every step."""


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
        self._origin = Origin(seed, 0, shape.memory_every, Pool(), ranks, between)

    def batch(self, rows: Mapping[str, Any], update: int) -> Batch:
        """The batch of one update."""
        leaves = {name: map_tree(self._rows, tree) for name, tree in rows.items() if name not in _APART}
        leaves["state"] = map_tree(self._state, rows["state"]) if "state" in rows else None
        leaves["memories"] = map_tree(self._rows, rows.get("memory", {}))
        leaves["memory"] = map_tree(lambda leaf: leaf[0], leaves["memories"])
        for name, missing in (("mask", None), ("extra", {}), ("signals", {})):
            leaves.setdefault(name, missing)
        leaves.setdefault("choice", leaves["valid"])
        leaves["cut"] = leaves["terminated"] | leaves["truncated"] | ~leaves["valid"]
        return Batch(leaves, replace(self._origin, update=update))

    def _rows(self, leaf: Any) -> Tensor:
        tensor = self._tensor(leaf)
        return tensor if self.joint or tensor.ndim == 1 else tensor.flatten(1, 2)

    def _state(self, leaf: Any) -> Tensor:
        tensor = self._tensor(leaf)
        agents = self.shape.agents
        return tensor if self.joint or agents == 1 else tensor.repeat_interleave(agents, 1)

    def _tensor(self, leaf: Any) -> Tensor:
        array = np.asarray(leaf)
        if not (array.flags.writeable and array.flags.c_contiguous):
            array = np.array(array, order="C")  # torch knows no read-only tensors
        return torch.from_numpy(array).to(self.device)
