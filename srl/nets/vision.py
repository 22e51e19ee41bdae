"""The convolutional encoder of pictures. They stay uint8 until the device."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from srl.core.spec import Leaf
from srl.nets.mlp import linear


def is_picture(leaf: Leaf) -> bool:
    """uint8 with three sizes: channels first `[C, H, W]`, or last `[H, W, C]`."""
    return leaf.dtype == "uint8" and len(leaf.shape) == 3


class NatureCnn(nn.Module):
    """Mnih et al. 2015: three convolutions and a layer of `features` relus."""

    def __init__(self, leaf: Leaf, features: int) -> None:
        super().__init__()
        shape = leaf.shape
        self.last = shape[-1] <= 4 < shape[0]
        channels, height, width = (shape[2], shape[0], shape[1]) if self.last else shape
        if min(height, width) < 36:
            raise ValueError(f"pictures of {height} x {width} are too small for the Nature encoder, which needs 36 x 36")
        layers = [nn.Conv2d(channels, 32, 8, 4), nn.Conv2d(32, 64, 4, 2), nn.Conv2d(64, 64, 3, 1)]
        for layer in layers:
            nn.init.orthogonal_(layer.weight, math.sqrt(2.0))
            assert layer.bias is not None
            nn.init.zeros_(layer.bias)
        self.convolutions = nn.ModuleList(layers)
        with torch.no_grad():
            size = self._convolve(torch.zeros(1, channels, height, width)).shape[1]
        self.out = linear(size, features, math.sqrt(2.0))

    def forward(self, pictures: Tensor) -> Tensor:
        """[..., three sizes] uint8 -> [..., features]."""
        flat = pictures.reshape(-1, *pictures.shape[-3:])
        if self.last:
            flat = flat.permute(0, 3, 1, 2)
        features = torch.relu(self.out(self._convolve(flat.float() / 255.0)))
        return features.view(*pictures.shape[:-3], features.shape[-1])

    def _convolve(self, x: Tensor) -> Tensor:
        for layer in self.convolutions:
            x = torch.relu(layer(x))
        return x.flatten(1)
