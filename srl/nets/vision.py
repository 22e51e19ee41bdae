"""Convolutional image encoders. Pictures stay uint8 until they are on the device; the scale is in the first layer's weights."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from srl.api.inputs import SCALE, channels_last, kind_of, picture_shape, runs_in_half
from srl.api.policy import PictureConfig
from srl.core.spec import Leaf
from srl.nets.mlp import linear
from srl.nets.products import product

DEPTHS = (16, 32, 32)
"""Channels of the sections of the ResNet."""


class PictureEncoder(nn.Module):
    """Convolutions and a layer of `features` relus. On CPU they run channels last, and in bfloat16 where that is faster."""

    def __init__(self, leaf: Leaf, config: PictureConfig) -> None:
        super().__init__()
        self.last = channels_last(leaf.shape)
        channels, height, width = picture_shape(leaf.shape)
        self.kind = kind_of(leaf) if config.encoder == "auto" else config.encoder
        self._half = runs_in_half(config, self.kind)
        if self.kind == "nature":
            layers = [nn.Conv2d(channels, 32, 8, 4), nn.Conv2d(32, 64, 4, 2), nn.Conv2d(64, 64, 3, 1)]
        elif self.kind == "impala":
            layers = [layer for low, high in zip((channels, *DEPTHS), DEPTHS, strict=False) for layer in _section(low, high)]
        else:
            layers = [nn.Conv2d(channels, 16, 3, 1, 1), nn.Conv2d(16, 32, 3, 2 if min(height, width) >= 8 else 1, 1)]
        for layer in layers:
            nn.init.orthogonal_(layer.weight, math.sqrt(2.0))
            assert layer.bias is not None
            nn.init.zeros_(layer.bias)
        self.convolutions = nn.ModuleList(layers)
        with torch.no_grad():
            size = self._convolve(torch.zeros(1, channels, height, width)).flatten(1).shape[1]
        self.out = linear(size, config.features, math.sqrt(2.0))

    def forward(self, pictures: Tensor) -> Tensor:
        """[..., three sizes] uint8 -> [..., features]."""
        flat = pictures.reshape(-1, *pictures.shape[-3:])
        x = flat.permute(0, 3, 1, 2) if self.last else flat
        features = torch.relu(self._out(self._convolve(self._dense(x)).flatten(1)))
        return features.float().view(*pictures.shape[:-3], features.shape[-1])

    def _dense(self, x: Tensor) -> Tensor:
        """Floats, channels last in memory."""
        kind = torch.bfloat16 if self._half and x.device.type == "cpu" and not _is_traced() else torch.float32
        if self.last or x.device.type != "cpu" or _is_traced():
            return x.to(kind)
        rows, channels, height, width = x.shape
        dense = torch.empty((rows, height, width, channels), dtype=kind)
        for channel in range(channels):  # in torch a permuted copy of bytes takes three times as long
            dense[..., channel] = x[:, channel]
        return dense.permute(0, 3, 1, 2)

    def _out(self, x: Tensor) -> Tensor:
        weight, bias = self.out.weight, self.out.bias
        if x.dtype == torch.float32:
            return product(x, weight, bias)
        return nn.functional.linear(x, weight.to(x.dtype), bias.to(x.dtype))

    def _convolve(self, x: Tensor) -> Tensor:
        if self.kind == "impala":
            return self._sections(x)
        for depth, layer in enumerate(self.convolutions):
            x = _convolved(x, layer, SCALE if depth == 0 else 1.0).relu_()
        return x

    def _sections(self, x: Tensor) -> Tensor:
        """Espeholt et al. 2018: a convolution and a maximum that halves the picture, then two residual blocks."""
        for depth in range(0, len(self.convolutions), 5):
            first, *blocks = self.convolutions[depth : depth + 5]
            x = nn.functional.max_pool2d(_convolved(x, first, SCALE if depth == 0 else 1.0), 3, 2, 1)
            for one, two in (blocks[:2], blocks[2:]):
                x = x + _convolved(_convolved(torch.relu(x), one).relu_(), two)
        return torch.relu(x)


def _section(low: int, high: int) -> list[nn.Conv2d]:
    return [nn.Conv2d(low, high, 3, 1, 1), *(nn.Conv2d(high, high, 3, 1, 1) for _ in range(4))]


def _convolved(x: Tensor, layer: nn.Module, scale: float = 1.0) -> Tensor:
    """A convolution in the type of `x`, whose weights are scaled instead of its input."""
    assert isinstance(layer, nn.Conv2d) and layer.bias is not None
    weight = layer.weight if scale == 1.0 else layer.weight * scale
    if x.device.type == "cpu":
        weight = weight.to(x.dtype).contiguous(memory_format=torch.channels_last)
    return nn.functional.conv2d(x, weight, layer.bias.to(x.dtype), layer.stride, layer.padding)


def _is_traced() -> bool:
    """True while the network is exported or compiled: float32 and plain operations then."""
    return torch.compiler.is_compiling() or torch.jit.is_tracing()  # type: ignore[attr-defined, no-untyped-call]
