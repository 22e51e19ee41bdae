"""Parameters of several layers as one tensor: stepped, clipped and differentiated as one."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from srl.core.tree import Array


class _Home(NamedTuple):
    """Where a flat parameter lies."""

    values: Tensor
    grads: Tensor
    start: int


def flatten(parameters: Iterable[Tensor]) -> tuple[Tensor, Tensor] | None:
    """Make the parameters and their gradients views of two flat tensors; None if some belong to other flat tensors."""
    members = list(parameters)
    if any(hasattr(one, "_home") for one in members):
        return None
    flat = torch.cat([one.detach().reshape(-1) for one in members])
    grad = torch.zeros_like(flat)
    start = 0
    for one in members:
        stop = start + one.numel()
        one.data = flat[start:stop].view(one.shape)
        one.grad = grad[start:stop].view(one.shape)
        one._home = _Home(flat, grad, start)  # type: ignore[attr-defined]
        start = stop
    return flat, grad


class Block:
    """The parameters that one autograd node reads: a single leaf where they are neighbours in a flat tensor on the CPU.

    One leaf costs a backward 30 us less than a dozen. Where there is none, as while acting or with some of them frozen,
    the node is applied to each.
    """

    def __init__(self, parameters: Sequence[Tensor]) -> None:
        self.parameters = tuple(parameters)
        self._home: Any = None
        self._leaf: Tensor | None = None
        self._size = 0
        self._slices: list[tuple[slice, tuple[int, ...]]] = []
        self._arrays: list[Array] = []

    def __deepcopy__(self, memo: Any) -> Block:
        return Block(copy.deepcopy(self.parameters, memo))  # of the copied network, which no optimizer has made flat

    def leaves(self) -> tuple[Tensor, ...]:
        """What the node is applied to."""
        home = getattr(self.parameters[0], "_home", None)
        if home is None or not torch.is_grad_enabled():
            return self.parameters
        if home is not self._home:
            self._join(home)
        if self._leaf is None or not all(one.requires_grad for one in self.parameters):
            return self.parameters
        return (self._leaf,)

    def arrays(self, leaves: Sequence[Tensor]) -> list[Array]:
        """The parameters, from what the node was applied to."""
        return self._arrays if leaves[0] is self._leaf else [one.detach().numpy() for one in leaves]

    def slots(self, leaves: Sequence[Tensor]) -> tuple[list[Array | None], Tensor | None]:
        """Where the gradients of the parameters are to be written, in a flat one that is zero; None: anywhere."""
        if leaves[0] is not self._leaf:
            return [None] * len(leaves), None
        flat = np.zeros(self._size, np.float32)
        return [flat[part].reshape(shape) for part, shape in self._slices], torch.from_numpy(flat)

    def _join(self, home: _Home) -> None:
        """Find out whether they are neighbours."""
        self._home, self._leaf = home, None
        homes = [getattr(one, "_home", None) for one in self.parameters]
        if any(one is None or one.values is not home.values for one in homes) or home.values.device.type != "cpu":
            return
        starts = [one.start for one in homes]  # type: ignore[union-attr]
        first, self._size = min(starts), sum(one.numel() for one in self.parameters)
        if max(start + one.numel() for start, one in zip(starts, self.parameters, strict=True)) - first != self._size:
            return
        part = slice(first, first + self._size)
        self._leaf = home.values[part].detach().requires_grad_()
        self._leaf.grad = home.grads[part]
        self._arrays = [one.detach().numpy() for one in self.parameters]
        self._slices = [
            (slice(start - first, start - first + one.numel()), tuple(one.shape))
            for start, one in zip(starts, self.parameters, strict=True)
        ]
