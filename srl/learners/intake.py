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
from srl.core.learner import prefetches
from srl.core.tree import leaves as tree_leaves
from srl.core.tree import map_tree
from srl.learners.base import Task
from srl.learners.prefetch import Prefetcher

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
        between: Callable[[], None] | None = None, prefetch: bool = False,
    ) -> None:  # fmt: skip
        """`prefetch`: batches are copied, the next one while this one trains."""
        self.shape = shape
        self.device = device
        self.prefetcher = Prefetcher(device) if prefetch else None
        self.joint = joint
        own = seed if ranks is None else seed ^ ranks.index << 32  # each rank shuffles its rows in another way
        self._origin = Origin(own, 0, shape.memory_every, Pool(), ranks, between)
        self._known: dict[int, tuple[Mapping[str, Any], dict[str, Any]]] = {}
        """Rows that lie in the same memory for every batch, and the tensors that look at it."""

    def batch(self, rows: Mapping[str, Any], update: int) -> Batch:
        """The batch of one update."""
        if self.prefetcher is not None:
            rows = self.prefetcher.take(rows)
        known = self._known.get(id(rows))
        leaves = known[1] if known is not None and known[0] is rows else self._leaves(rows)
        cut = leaves["terminated"] | leaves["truncated"] | ~leaves["valid"]
        return Batch({**leaves, "cut": cut}, replace(self._origin, update=update))

    @property
    def tell(self) -> Callable[[Mapping[str, Any]], None] | None:
        """Where a source names the next batch as soon as it has come; None: it trains where it lies."""
        return self.prefetcher.tell if self.prefetcher is not None else None

    def metrics(self) -> dict[str, float]:
        """The share of batches that were under way before they were asked for, since the last call."""
        return self.prefetcher.metrics() if self.prefetcher is not None else {}

    def close(self) -> None:
        """End the thread that copies. Idempotent."""
        if self.prefetcher is not None:
            self.prefetcher.close()

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
        """True if all tensors of these rows look at the caller's memory, or at a place of the prefetcher."""
        repeats = "state" in rows and not self.joint and self.shape.agents > 1
        stays = self.device.type == "cpu" or self.prefetcher is not None
        return stays and not repeats and all(_can_be_shared(leaf) for _, leaf in tree_leaves(rows))

    def _rows(self, leaf: Any) -> Tensor:
        tensor = self._tensor(leaf)
        return tensor if self.joint or tensor.ndim == 1 else tensor.flatten(1, 2)

    def _state(self, leaf: Any) -> Tensor:
        tensor = self._tensor(leaf)
        agents = self.shape.agents
        return tensor if self.joint or agents == 1 else tensor.repeat_interleave(agents, 1)

    def _tensor(self, leaf: Any) -> Tensor:
        if isinstance(leaf, Tensor):
            return leaf
        array = np.asarray(leaf)
        if not _can_be_shared(array):
            array = np.array(array, order="C")  # torch knows no read-only tensors
        return torch.from_numpy(array).to(self.device)


def intake_of(task: Task, config: Any, *, joint: bool) -> Intake:
    """As a learner with these settings takes in batches."""
    device = torch.device(task.device)
    prefetch = prefetches(task.device, getattr(config, "prefetch", None))
    return Intake(task.shape, device, task.seed, joint=joint, ranks=task.ranks, between=task.between, prefetch=prefetch)


def _can_be_shared(leaf: Any) -> bool:
    return isinstance(leaf, Tensor) or (isinstance(leaf, np.ndarray) and leaf.flags.writeable and leaf.flags.c_contiguous)
