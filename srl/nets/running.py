"""Normalization by exponential running statistics. Buffers: published and checkpointed with the weights, frozen while acting."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from srl.api.batch import Ranks


class RunningScale(nn.Module):
    """`(x - mean) / deviation`, with bias-corrected exponential means over batches."""

    mean: Tensor
    scale: Tensor
    seen_mean: Tensor
    seen_square: Tensor
    share: Tensor

    def __init__(self, size: int, *, decay: float = 0.99999, least: float = 0.1, limit: float = 5.0) -> None:
        super().__init__()
        self.decay, self.least, self.limit = decay, least, limit
        self.register_buffer("mean", torch.zeros(size))
        self.register_buffer("scale", torch.ones(size))
        self.register_buffer("seen_mean", torch.zeros(size, dtype=torch.float64))
        self.register_buffer("seen_square", torch.zeros(size, dtype=torch.float64))
        self.register_buffer("share", torch.zeros((), dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        """Normalized and clipped to `limit` deviations; deviations are at least `least`."""
        return ((x - self.mean) * self.scale).clamp_(-self.limit, self.limit)

    @torch.no_grad()
    def observe(self, rows: Tensor, ranks: Ranks | None = None) -> None:
        """Take the rows `[N, size]` of one batch."""
        rows = rows.double()
        sums = torch.cat([rows.sum(0), rows.square().sum(0), rows.new_full((1,), float(len(rows)))])
        if ranks is not None:
            sums = ranks.total(sums)
        if float(sums[-1]) == 0.0:
            return
        mean, square = (sums[:-1] / sums[-1]).chunk(2)
        rate = 1.0 - self.decay
        self.seen_mean.lerp_(mean, rate)
        self.seen_square.lerp_(square, rate)
        self.share.lerp_(torch.ones_like(self.share), rate)
        mean, square = self.seen_mean / self.share, self.seen_square / self.share
        self.mean.copy_(mean)
        self.scale.copy_((square - mean * mean).clamp(min=0.0).sqrt().clamp(min=self.least).reciprocal())
