"""Convolutional image encoders. Pictures stay uint8 until they are on the device; the scale is in the first layer's weights."""

from __future__ import annotations

import math
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from srl.api.inputs import SCALE, channels_last, kind_of, picture_shape, runs_in_half
from srl.api.policy import PictureConfig
from srl.core.spec import Leaf
from srl.nets.mlp import linear
from srl.nets.products import product

Pair: TypeAlias = tuple[Tensor, Tensor]
"""Weight and bias of a layer."""
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
        self._acting: tuple[Any, list[Pair]] | None = None
        """The weights as `_pairs` gives them, and what they were made from."""
        with torch.no_grad():
            sample = torch.zeros(1, channels, height, width)
            size = self._convolve(sample, [_prepared(layer, sample) for layer in layers]).flatten(1).shape[1]
        self.out = linear(size, config.features, math.sqrt(2.0))

    def forward(self, pictures: Tensor) -> Tensor:
        """[..., three sizes] uint8 -> [..., features]."""
        flat = pictures.reshape(-1, *pictures.shape[-3:])
        x = self._dense(flat.permute(0, 3, 1, 2) if self.last else flat)
        *pairs, out = self._ready(x)
        x = self._convolve(x, pairs).flatten(1).relu_()  # flat first: gradients are not channels last
        features = torch.relu(_multiplied(x, out))
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

    def _ready(self, x: Tensor) -> list[Pair]:
        """The weights for `x`. Acting keeps them until others are loaded: preparing them costs as much as eight images."""
        if _is_traced():
            return self._pairs(x)
        if not torch.is_inference_mode_enabled():
            self._acting = None  # they may be trained now
            return self._pairs(x)
        weights = list(self.parameters())
        if any(one.is_inference() for one in weights):  # their changes are not counted
            return self._pairs(x)
        made_from = (x.dtype, x.device, *((one.data_ptr(), one._version) for one in weights))
        if self._acting is None or self._acting[0] != made_from:
            self._acting = made_from, self._pairs(x)
        return self._acting[1]

    def _pairs(self, x: Tensor) -> list[Pair]:
        """Weight and bias of each convolution, then of the last layer, in the type of `x`. The first takes bytes."""
        pairs = [_prepared(layer, x, SCALE if depth == 0 else 1.0) for depth, layer in enumerate(self.convolutions)]
        return [*pairs, (self.out.weight.to(x.dtype), self.out.bias.to(x.dtype))]

    def _convolve(self, x: Tensor, pairs: list[Pair]) -> Tensor:
        """Before the last activation."""
        if self.kind == "impala":
            return self._sections(x, pairs)
        *layers, last = zip(self.convolutions, pairs, strict=True)
        for layer in layers:
            x = _convolved(x, *layer).relu_()
        return _convolved(x, *last)

    def _sections(self, x: Tensor, pairs: list[Pair]) -> Tensor:
        """Espeholt et al. 2018: a convolution and a maximum that halves the picture, then two residual blocks."""
        layers = list(zip(self.convolutions, pairs, strict=True))
        for depth in range(0, len(layers), 5):
            first, *blocks = layers[depth : depth + 5]
            x = nn.functional.max_pool2d(_convolved(x, *first), 3, 2, 1)
            for one, two in (blocks[:2], blocks[2:]):
                x = x + _convolved(_convolved(torch.relu(x), *one).relu_(), *two)
        return x


def _section(low: int, high: int) -> list[nn.Conv2d]:
    return [nn.Conv2d(low, high, 3, 1, 1), *(nn.Conv2d(high, high, 3, 1, 1) for _ in range(4))]


def _prepared(layer: nn.Module, x: Tensor, scale: float = 1.0) -> Pair:
    """Weight and bias for a convolution of `x`: scaled, instead of its input, and channels last on CPU."""
    assert isinstance(layer, nn.Conv2d) and layer.bias is not None
    weight = layer.weight if scale == 1.0 else layer.weight * scale
    if x.device.type == "cpu":
        weight = weight.to(x.dtype).contiguous(memory_format=torch.channels_last)
    return weight, layer.bias.to(x.dtype)


def _convolved(x: Tensor, layer: nn.Module, pair: Pair) -> Tensor:
    assert isinstance(layer, nn.Conv2d)
    return nn.functional.conv2d(x, *pair, layer.stride, layer.padding)


def _multiplied(x: Tensor, pair: Pair) -> Tensor:
    return product(x, *pair) if x.dtype == torch.float32 else nn.functional.linear(x, *pair)


def _is_traced() -> bool:
    """True while the network is exported or compiled: float32 and plain operations then."""
    return torch.compiler.is_compiling() or torch.jit.is_tracing()  # type: ignore[attr-defined, no-untyped-call]
