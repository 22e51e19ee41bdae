"""PopArt (van Hasselt et al. 2016): values are learned on a running scale of the returns; rescaling preserves the outputs."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from srl.api.batch import Ranks
from srl.api.value_head import ValueHead


class ValueScale(nn.Module):
    """Moves the moments of a value head."""

    mean: Tensor
    square: Tensor
    rate: Tensor

    def __init__(self, moments: Tensor, decay: float = 0.99) -> None:
        """`moments` `[2]`: of a head, possibly trained before; 0 and 1 mean no data yet."""
        super().__init__()
        self.decay = decay
        mean, deviation = moments.double()
        seen = (mean != 0.0) | (deviation != 1.0)
        self.register_buffer("mean", mean.clone())
        self.register_buffer("square", (deviation.square() + mean.square()) * seen)
        self.register_buffer("rate", seen.double())

    def down(self, value: Tensor) -> Tensor:
        """From the scale of returns to that of the value head."""
        mean, deviation = self.moments()
        return (value - mean) / deviation

    def moments(self) -> tuple[Tensor, Tensor]:
        """Mean and standard deviation; 0 and 1 before any data."""
        share = self.rate.clamp(min=1e-12)  # the start of a running mean weighs too little without it
        mean, square = self.mean / share, self.square / share
        deviation = (square - mean * mean).clamp(min=1e-4).sqrt()
        seen = self.rate > 0
        return torch.where(seen, mean, 0.0).float(), torch.where(seen, deviation, 1.0).float()

    @torch.no_grad()
    def observe(self, returns: Tensor, valid: Tensor, head: ValueHead, ranks: Ranks | None = None) -> None:
        """Update the moments with the returns of a batch, and change the head so that its outputs are preserved."""
        rows = returns[valid].double()
        count = ranks.total(torch.tensor(float(len(rows)), device=rows.device)) if ranks is not None else len(rows)
        if count:
            mean, square = (rows.mean(), rows.square().mean()) if ranks is None else _means(rows, count, ranks)
            rate = 1.0 - self.decay
            self.mean.lerp_(mean, rate)
            self.square.lerp_(square, rate)
            self.rate.lerp_(torch.ones_like(self.rate), rate)
        head.rescale(*self.moments())


def _means(rows: Tensor, count: Any, ranks: Ranks) -> tuple[Tensor, ...]:
    return tuple(ranks.total(torch.stack([rows.sum(), rows.square().sum()])) / count)
