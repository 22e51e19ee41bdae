"""Normalizations of several networks side by side: `[count, rows, size]`."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class LayerNorms(nn.Module):
    """Layer normalization, with gain and bias of each network's own."""

    def __init__(self, count: int, size: int) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.ones(count, 1, size))
        self.bias = nn.Parameter(torch.zeros(count, 1, size))

    def forward(self, x: Tensor, frozen: bool = False) -> Tensor:
        """`frozen`: gradients reach `x` alone."""
        return _scaled(self, nn.functional.layer_norm(x, x.shape[-1:]), frozen)


class BatchRenorm(nn.Module):
    """Batch renormalization (Ioffe 2017): by the statistics of the batch, corrected towards running ones.

    A frozen pass uses the running ones. The corrections begin after `warmup` batches.
    """

    mean: Tensor
    deviation: Tensor
    seen: Tensor

    def __init__(self, count: int, size: int, *, momentum: float = 0.99, eps: float = 1e-3, warmup: int = 100_000) -> None:
        super().__init__()
        self.momentum, self.eps, self.warmup = momentum, eps, warmup
        self.gain = nn.Parameter(torch.ones(count, 1, size))
        self.bias = nn.Parameter(torch.zeros(count, 1, size))
        self.register_buffer("mean", torch.zeros(count, 1, size))
        self.register_buffer("deviation", torch.ones(count, 1, size))
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, x: Tensor, frozen: bool = False) -> Tensor:
        """`frozen`: gradients reach `x` alone, and no statistics are taken."""
        if frozen:
            return _scaled(self, (x - self.mean) / self.deviation, frozen)
        mean = x.mean(1, keepdim=True)
        deviation = (x.var(1, keepdim=True, correction=0) + self.eps).sqrt()
        with torch.no_grad():
            late = float(self.seen) >= self.warmup
            scale = (deviation / self.deviation).clamp_(1.0 / 3.0, 3.0) if late else torch.ones_like(deviation)
            shift = ((mean - self.mean) / self.deviation).clamp_(-5.0, 5.0) if late else torch.zeros_like(mean)
            self.mean.lerp_(mean, 1.0 - self.momentum)
            self.deviation.lerp_(deviation, 1.0 - self.momentum)
            self.seen += 1
        return _scaled(self, torch.addcmul(shift, (x - mean) / deviation, scale), frozen)


def _scaled(norm: LayerNorms | BatchRenorm, x: Tensor, frozen: bool) -> Tensor:
    if frozen:
        return torch.addcmul(norm.bias.detach(), x, norm.gain.detach())
    return torch.addcmul(norm.bias, x, norm.gain)
