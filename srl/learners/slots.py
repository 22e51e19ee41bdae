"""Two versions of some tensors: one side of a split learner writes them in turn, the other copies the one that it wants."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

BEGUN, COMPLETE = 0, 1
"""Words of a side: one more than the newest version that it began to write, and than the newest that is whole; 0: none."""


class Slots:
    """Version n lies in slot n % 2, so that one is whole while the next one is written."""

    def __init__(self, words: Any, slots: Sequence[Sequence[Tensor]]) -> None:
        """`words`: two integers that both sides see."""
        self._words, self._slots = words, slots

    @property
    def version(self) -> int:
        """The newest that is whole; -1: none yet."""
        return int(self._words[COMPLETE]) - 1

    @torch.no_grad()
    def write(self, version: int, tensors: Sequence[Tensor]) -> None:
        """Make this the newest version. The one before stays as it is."""
        self._words[BEGUN] = version + 1
        for target, source in zip(self._slots[version % 2], tensors, strict=True):
            target.copy_(source)
        self._words[COMPLETE] = version + 1

    @torch.no_grad()
    def read(self, most: int, tensors: Sequence[Tensor]) -> int:
        """Copy the newest version that is at most `most`, and return it. Never a mixture of two: then it is copied again."""
        while True:
            version = min(self.version, most)
            for target, source in zip(tensors, self._slots[version % 2], strict=True):
                target.copy_(source)
            if self._words[BEGUN] < version + 3:
                return version


def joined(held: Iterable[nn.Module | Tensor]) -> list[Tensor]:
    """The parameters of networks and tensors, neighbours in memory as one tensor: few copies instead of many."""
    found: list[Tensor] = []
    for one in held:
        for parameter in one.parameters() if isinstance(one, nn.Module) else [one]:
            last = found[-1] if found else None
            if last is not None and _are_neighbours(last, parameter):
                found[-1] = last.as_strided((last.numel() + parameter.numel(),), (1,), last.storage_offset())
            else:
                found.append(parameter.detach().view(-1))
    return found


def _are_neighbours(one: Tensor, other: Tensor) -> bool:
    same = one.dtype == other.dtype and one.untyped_storage().data_ptr() == other.untyped_storage().data_ptr()
    return same and other.is_contiguous() and one.storage_offset() + one.numel() == other.storage_offset()
