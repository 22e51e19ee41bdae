"""Encoder of lidar rays: a circular convolution, computed as one product."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from srl.nets.products import product

CHANNELS = 9
_TAPS = 3


class RayEncoder(nn.Module):
    """`[R, rays]` -> `[R, CHANNELS * rays]`: a convolution over a ray and its two neighbours, and relu."""

    def __init__(self, rays: int) -> None:
        super().__init__()
        self.rays = rays
        self.size = CHANNELS * rays
        self.weight = nn.Parameter(torch.empty(CHANNELS, _TAPS))
        self.bias = nn.Parameter(torch.zeros(CHANNELS))
        # the bound of Xavier for a convolution of one input channel
        nn.init.uniform_(self.weight, -math.sqrt(6.0 / (_TAPS * (1 + CHANNELS))), math.sqrt(6.0 / (_TAPS * (1 + CHANNELS))))
        each = torch.eye(rays)
        # not a buffer: it is no state
        self._shifts = torch.stack([each.roll(tap, 1) for tap in (-1, 0, 1)]).view(_TAPS, -1)

    def forward(self, rays: Tensor) -> Tensor:
        shifts = self._shifts.to(rays.device)
        matrix = (self.weight @ shifts).view(self.size, self.rays)
        return torch.relu(product(rays, matrix, self.bias.repeat_interleave(self.rays)))
