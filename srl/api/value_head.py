"""The last layer of a critic, optionally with normalized outputs."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class ValueHead(nn.Linear):
    """A layer of one output that is read as `return = mean + deviation * output`.

    Mean and deviation are a buffer, so that they travel with the weights: a policy of any age says returns.
    """

    moments: Tensor

    def __init__(self, inputs: int) -> None:
        super().__init__(inputs, 1)
        self.register_buffer("moments", torch.tensor([0.0, 1.0]))

    def returns(self, value: Tensor) -> Tensor:
        """From outputs to returns."""
        mean, deviation = self.moments
        scaled: Tensor = mean + deviation * value
        return scaled

    @torch.no_grad()
    def rescale(self, mean: Tensor | float, deviation: Tensor | float) -> None:
        """Read by other moments from now on; what the layer says stays the same."""
        old_mean, old_deviation = self.moments.clone()
        self.weight.mul_(old_deviation / deviation)
        self.bias.copy_((old_deviation * self.bias + old_mean - mean) / deviation)
        self.moments[0], self.moments[1] = mean, deviation
