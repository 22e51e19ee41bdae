"""Convolutional image encoders. Pictures stay uint8 until they are on the device; the scale is in the first layer's weights."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from srl.api.inputs import SCALE, channels_last, kind_of, picture_shape, runs_in_half
from srl.api.policy import PictureConfig
from srl.core.spec import Leaf
from srl.nets.cached import Cached
from srl.nets.mlp import linear
from srl.nets.products import product

Layer: TypeAlias = Callable[[Tensor, bool], Tensor]
"""A convolution or the last layer, with the weights that it has now; then a relu, if asked for."""
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
        self._cached: Cached[list[Layer]] = Cached()
        with torch.no_grad():
            sample = torch.zeros(1, channels, height, width)
            size = self._convolve(sample, [_convolution(layer, sample) for layer in layers]).flatten(1).shape[1]
        self.out = linear(size, config.features, math.sqrt(2.0))

    def forward(self, pictures: Tensor) -> Tensor:
        """[..., three sizes] uint8 -> [..., features]."""
        flat = pictures.reshape(-1, *pictures.shape[-3:])
        x = self._dense(flat.permute(0, 3, 1, 2) if self.last else flat)
        *layers, out = self._ready(x)
        x = self._convolve(x, layers).flatten(1).relu_()  # flat first: gradients are not channels last
        features = out(x, True)
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

    def _ready(self, x: Tensor) -> list[Layer]:
        """The layers for `x`. Preparing them costs as much as eight images."""
        if _is_traced():
            return self._layers(x)
        able = _CAN_PACK and x.device.type == "cpu"
        layers = (*self.convolutions, self.out)
        return self._cached.of(layers, lambda kept: self._layers(x, packed=kept and able), x.dtype, x.device)

    def _layers(self, x: Tensor, *, packed: bool = False) -> list[Layer]:
        """The convolutions, then the last layer, for inputs of the type of `x`. The first takes bytes."""
        first, *others = self.convolutions
        layers = [_convolution(first, x, SCALE, packed), *(_convolution(layer, x, packed=packed) for layer in others)]
        return [*layers, _last(self.out, x, packed)]

    def _convolve(self, x: Tensor, layers: list[Layer]) -> Tensor:
        """Before the last activation."""
        if self.kind == "impala":
            return self._sections(x, layers)
        *others, last = layers
        for layer in others:
            x = layer(x, True)
        return last(x, False)

    def _sections(self, x: Tensor, layers: list[Layer]) -> Tensor:
        """Espeholt et al. 2018: a convolution and a maximum that halves the picture, then two residual blocks."""
        for depth in range(0, len(layers), 5):
            first, *blocks = layers[depth : depth + 5]
            x = nn.functional.max_pool2d(first(x, False), 3, 2, 1)
            for one, two in (blocks[:2], blocks[2:]):
                x = x + two(one(torch.relu(x), True), False)
        return x


def _section(low: int, high: int) -> list[nn.Conv2d]:
    return [nn.Conv2d(low, high, 3, 1, 1), *(nn.Conv2d(high, high, 3, 1, 1) for _ in range(4))]


def _convolution(layer: nn.Module, x: Tensor, scale: float = 1.0, packed: bool = False) -> Layer:
    """With its weights scaled, instead of its input, and channels last on CPU; or `packed` as oneDNN reads them, for acting."""
    assert isinstance(layer, nn.Conv2d) and layer.bias is not None
    weight = layer.weight if scale == 1.0 else layer.weight * scale
    weight, bias = weight.to(x.dtype), layer.bias.to(x.dtype)
    stride, padding = layer.stride, layer.padding
    if packed:
        held = _ATEN.mkldnn_reorder_conv2d_weight(weight.contiguous().to_mkldnn(), padding, stride)
        return lambda x, relu: _MKLDNN._convolution_pointwise(x, held, bias, padding, stride, (1, 1), 1, _name(relu), [], "")
    if x.device.type == "cpu":
        weight = weight.contiguous(memory_format=torch.channels_last)

    def run(x: Tensor, relu: bool) -> Tensor:
        x = nn.functional.conv2d(x, weight, bias, stride, padding)
        return x.relu_() if relu else x

    return run


def _last(layer: nn.Linear, x: Tensor, packed: bool) -> Layer:
    """The same for a layer of products."""
    weight, bias = layer.weight.to(x.dtype), layer.bias.to(x.dtype)
    if packed:
        held = _MKLDNN._reorder_linear_weight(weight, None)
        return lambda x, relu: _MKLDNN._linear_pointwise(x, held, bias, _name(relu), [], "")
    multiply = product if x.dtype == torch.float32 else nn.functional.linear

    def run(x: Tensor, relu: bool) -> Tensor:
        x = multiply(x, weight, bias)
        return torch.relu(x) if relu else x

    return run


def _name(relu: bool) -> str:
    return "relu" if relu else "none"


def _is_traced() -> bool:
    """True while the network is exported or compiled: float32 and plain operations then."""
    return torch.compiler.is_compiling() or torch.jit.is_tracing()  # type: ignore[attr-defined, no-untyped-call]


_ATEN: Any = torch.ops.aten
_MKLDNN: Any = torch.ops.mkldnn
_CAN_PACK = (
    torch.backends.cpu.get_cpu_capability() in ("AVX2", "AVX512")
    and torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    and all(hasattr(_MKLDNN, name) for name in ("_convolution_pointwise", "_reorder_linear_weight", "_linear_pointwise"))
)
