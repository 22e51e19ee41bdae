"""Target networks: slow copies of a network that bootstrapped values are read from."""

from __future__ import annotations

import copy
from typing import TypeVar

import torch
from torch import nn

M = TypeVar("M", bound=nn.Module)


def copy_of(module: M) -> M:
    """A copy that is not trained."""
    return copy.deepcopy(module).requires_grad_(False)


@torch.no_grad()
def follow(target: nn.Module, source: nn.Module, share: float = 1.0) -> None:
    """Move the weights of `target` by this share of the way to those of `source`; 1 copies them. Buffers are copied."""
    pairs = [(mine, theirs) for mine, theirs in zip(target.parameters(), source.parameters(), strict=True)]
    torch._foreach_lerp_([mine for mine, _ in pairs], [theirs.detach() for _, theirs in pairs], share)
    for mine, theirs in zip(target.buffers(), source.buffers(), strict=True):
        mine.copy_(theirs)
