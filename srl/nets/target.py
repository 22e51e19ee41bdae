"""Target networks: copies that follow another network slowly, as one flat tensor."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn


class Target(nn.Module):
    """A copy of a network whose parameters follow those of the original. It takes no gradients."""

    def __init__(self, source: nn.Module) -> None:
        super().__init__()
        self.net: Any = copy.deepcopy(source).requires_grad_(False)
        self._members: list[Tensor] = list(self.net.parameters())
        self._flat = torch.cat([one.detach().reshape(-1) for one in self._members])
        start = 0
        for one in self._members:
            one.data = self._flat[start : start + one.numel()].view(one.shape)
            start += one.numel()
        self._pairs = list(zip(self.net.buffers(), source.buffers(), strict=True))
        self._source: list[Tensor] = list(source.parameters())
        self._whole: Tensor | None = None
        """The parameters of the original as one tensor, once they are."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.net(*args, **kwargs)

    @torch.no_grad()
    def follow(self, share: float) -> None:
        """Move by `share` towards the original; buffers are copied."""
        if self._whole is None or self._whole.data_ptr() != self._source[0].data_ptr():
            self._whole = _whole(self._source)
        if self._whole is not None:
            self._flat.lerp_(self._whole, share)
        else:
            torch._foreach_lerp_(self._members, self._source, share)
        for mine, theirs in self._pairs:
            mine.copy_(theirs)


def _whole(parameters: Sequence[Tensor]) -> Tensor | None:
    """Parameters that an optimizer has put side by side, as one tensor; else None."""
    start = parameters[0]
    at = start.data_ptr()
    for one in parameters:
        if one.data_ptr() != at or not one.is_contiguous():
            return None
        at += one.numel() * one.element_size()
    size = sum(one.numel() for one in parameters)
    if start.untyped_storage().nbytes() < (start.storage_offset() + size) * start.element_size():
        return None
    return start.detach().as_strided((size,), (1,), start.storage_offset())
