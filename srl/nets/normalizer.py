"""Running mean and variance of inputs. Buffers: published and checkpointed with the weights, frozen while acting."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from srl.api.batch import Ranks
from srl.nets.numpy_mlp import LIMIT


class Normalizer(nn.Module):
    """`(x - mean) * scale`, from all rows that `observe` has seen."""

    mean: Tensor
    scale: Tensor
    count: Tensor
    total_mean: Tensor
    total_var: Tensor

    def __init__(self, size: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(size))
        self.register_buffer("scale", torch.ones(size))
        self.register_buffer("count", torch.zeros((), dtype=torch.float64))
        self.register_buffer("total_mean", torch.zeros(size, dtype=torch.float64))
        self.register_buffer("total_var", torch.ones(size, dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        return ((x - self.mean) * self.scale).clamp_(-LIMIT, LIMIT)

    @torch.no_grad()
    def observe(self, rows: Tensor, ranks: Ranks | None = None) -> None:
        """Add the rows `[N, size]` of all ranks; parallel variance of Chan et al."""
        number = len(rows) if ranks is None else int(ranks.total(torch.tensor(float(len(rows)), device=rows.device)))
        if number == 0:
            return
        rows = rows.double()
        if ranks is None:
            mean, var = rows.mean(0), rows.var(0, correction=0)
        else:
            mean = ranks.total(rows.sum(0)) / number
            var = ranks.total((rows - mean).square().sum(0)) / number
        count = self.count + number
        away = mean - self.total_mean
        share = number / count
        self.total_var.copy_((self.total_var * self.count + var * number) / count + away * away * share * (1.0 - share))
        self.total_mean += away * share
        self.count.copy_(count)
        self.mean.copy_(self.total_mean)
        self.scale.copy_((self.total_var + 1e-8).rsqrt())
