"""PopArt (van Hasselt et al. 2016): values are learned on a running scale of the returns, outputs are preserved."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class ValueScale(nn.Module):
    """`return = mean + deviation * value`."""

    mean: Tensor
    square: Tensor
    rate: Tensor

    def __init__(self, decay: float = 0.99) -> None:
        super().__init__()
        self.decay = decay
        self.register_buffer("mean", torch.zeros((), dtype=torch.float64))
        self.register_buffer("square", torch.zeros((), dtype=torch.float64))
        self.register_buffer("rate", torch.zeros((), dtype=torch.float64))

    def up(self, value: Tensor) -> Tensor:
        """From the scale of the value head to that of returns."""
        mean, deviation = self.moments()
        return mean + deviation * value

    def down(self, value: Tensor) -> Tensor:
        """From the scale of returns to that of the value head."""
        mean, deviation = self.moments()
        return (value - mean) / deviation

    def moments(self) -> tuple[Tensor, Tensor]:
        """Mean and deviation; 0 and 1 before anything was seen."""
        share = self.rate.clamp(min=1e-12)  # the start of a running mean weighs too little without it
        mean, square = self.mean / share, self.square / share
        deviation = (square - mean * mean).clamp(min=1e-4).sqrt()
        seen = self.rate > 0
        return torch.where(seen, mean, 0.0).float(), torch.where(seen, deviation, 1.0).float()

    @torch.no_grad()
    def observe(self, returns: Tensor, valid: Tensor, policy: nn.Module) -> None:
        """Take the returns of a batch, and change the layer `policy.value` so that it still says the same."""
        before = self.moments()
        rows = returns[valid].double()
        if len(rows):
            rate = 1.0 - self.decay
            self.mean.lerp_(rows.mean(), rate)
            self.square.lerp_(rows.square().mean(), rate)
            self.rate.lerp_(torch.ones_like(self.rate), rate)
        after = self.moments()
        layer = policy.value
        if not isinstance(layer, nn.Linear):
            raise TypeError("normalize_value needs a policy whose last value layer is the nn.Linear `policy.value`")
        layer.weight.mul_(before[1] / after[1])
        layer.bias.copy_((before[1] * layer.bias + before[0] - after[0]) / after[1])
