"""Normalizations of several networks side by side.

`at` says whose rows they are: of one network `[rows, size]`, of a slice of them `[networks, rows, size]`. In a frozen pass
gradients reach the rows alone.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

EPS = 1e-5
"""Of layer normalization, as torch has it."""


class LayerNorms(nn.Module):
    """Layer normalization, with gain and bias of each network's own."""

    def __init__(self, count: int, size: int) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.ones(count, 1, size))
        self.bias = nn.Parameter(torch.zeros(count, 1, size))

    def forward(self, x: Tensor, frozen: bool, at: int | slice) -> Tensor:
        gain, bias = _affine(self, frozen, at)
        if isinstance(at, int):
            return nn.functional.layer_norm(x, x.shape[-1:], gain[0], bias[0], EPS)
        return torch.addcmul(bias, nn.functional.layer_norm(x, x.shape[-1:], eps=EPS), gain)


class BatchRenorm(nn.Module):
    """Batch renormalization (Ioffe 2017): by the statistics of the batch, corrected towards running ones.

    A frozen pass uses the running ones. The corrections begin after `warmup` batches.
    """

    is_of_one_batch = True
    """Ranks would have statistics of their own."""

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
        self.register_buffer("seen", torch.zeros(count))

    def forward(self, x: Tensor, frozen: bool, at: int | slice) -> Tensor:
        gain, bias = _affine(self, frozen, at)
        running, spread = self.mean[at], self.deviation[at]
        if frozen:
            slope = gain / spread
            return torch.addcmul(torch.addcmul(bias, running, slope, value=-1.0), x, slope)
        mean = x.mean(-2, keepdim=True)
        away = x - mean
        deviation = ((away * away).mean(-2, keepdim=True) + self.eps).sqrt()
        slope = gain / deviation
        with torch.no_grad():
            late = bool((self.seen[at] >= self.warmup).all())
            scale, shift = (deviation / spread).clamp_(1.0 / 3.0, 3.0), ((mean - running) / spread).clamp_(-5.0, 5.0)
            running.lerp_(mean, 1.0 - self.momentum)
            spread.lerp_(deviation, 1.0 - self.momentum)
            self.seen[at] += 1.0
        if late:
            bias, slope = torch.addcmul(bias, gain, shift), slope * scale
        return torch.addcmul(bias, away, slope)


def _affine(norm: LayerNorms | BatchRenorm, frozen: bool, at: int | slice) -> tuple[Tensor, Tensor]:
    """Gain and bias of these networks, `[..., 1, size]`."""
    return (norm.gain.detach()[at], norm.bias.detach()[at]) if frozen else (norm.gain[at], norm.bias[at])
