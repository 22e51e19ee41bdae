"""Convolutional image encoders. Images stay uint8 until they are on the device."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from srl.api.inputs import channels_last, kind_of, picture_shape
from srl.core.spec import Leaf
from srl.nets.mlp import linear


class PictureEncoder(nn.Module):
    """Convolutions and a layer of `features` relus: those of Mnih et al. 2015 from 36x36, two of 3x3 for less."""

    def __init__(self, leaf: Leaf, features: int) -> None:
        super().__init__()
        self.last = channels_last(leaf.shape)
        channels, height, width = picture_shape(leaf.shape)
        if kind_of(leaf) == "nature":
            layers = [nn.Conv2d(channels, 32, 8, 4), nn.Conv2d(32, 64, 4, 2), nn.Conv2d(64, 64, 3, 1)]
        else:
            layers = [nn.Conv2d(channels, 16, 3, 1, 1), nn.Conv2d(16, 32, 3, 2 if min(height, width) >= 8 else 1, 1)]
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
