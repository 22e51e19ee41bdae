"""Towers of layers with their heads as one autograd node: on CPU half the time of the same layers as modules.

Small products and tanh go to numpy, which is quicker to call, large products to torch. The outputs of a head are stored
features first, as `srl.nets.dists` reads them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn

from srl.core.tree import Array
from srl.nets.mlp import Mlp
from srl.nets.products import LARGE, mm, with_bias

Shape: TypeAlias = tuple[tuple[int, int], ...]
"""Hidden layers and heads of each tower."""

SMALL = 64 * 64
"""Gradients of weights with at most this many elements are computed in numpy for any number of rows."""


class Towers:
    """Bodies with their heads, read as one list of parameters; not a module, since it owns none of them."""

    def __init__(self, *towers: tuple[Mlp, Sequence[nn.Linear]]) -> None:
        self._activation = towers[0][0].activation
        self._shape: Shape = tuple((len(body.layers), len(heads)) for body, heads in towers)
        layers: list[Any] = [layer for body, heads in towers for layer in (*body.layers, *heads)]
        self._params = [one for layer in layers for one in (layer.weight, layer.bias)]

    def __call__(self, x: Tensor) -> list[Tensor]:
        """The outputs of every head of every tower over features `[..., inputs]`; of a tower without heads its last layer."""
        outs: list[Tensor] = _Towers.apply(x, self._activation, self._shape, *self._params)  # type: ignore[no-untyped-call]
        return outs


def activate_(x: Array, kind: str) -> Array:
    """The activation, in place."""
    if kind == "tanh":
        np.tanh(x, out=x)
    elif kind == "relu":
        np.maximum(x, np.float32(0.0), out=x)
    else:
        nn.functional.elu_(torch.from_numpy(x))
    return x


def unactivate_(grad: Tensor, y: Tensor, kind: str) -> None:
    """Backpropagate a gradient through an activation, in place, from the activation's value."""
    if kind == "tanh":
        _tanh_back(grad, y, grad_input=grad)
    elif kind == "relu":
        torch.ops.aten.threshold_backward.grad_input(grad, y, 0, grad_input=grad)
    else:
        torch.ops.aten.elu_backward.grad_input(grad, 1, 1, 1, True, y, grad_input=grad)


_tanh_back: Any = torch.ops.aten.tanh_backward.grad_input


class _Towers(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, activation: str, shape: Shape, *params: Tensor) -> tuple[Tensor, ...]:
        rows = x.reshape(-1, x.shape[-1]).numpy()
        outs: list[Tensor] = []
        kept: list[list[Array]] = []
        at = 0
        for layers, heads in shape:
            values = [rows]
            for i in range(at, at + 2 * layers, 2):
                values.append(activate_(_layer(values[-1], params[i], params[i + 1]), activation))
            at += 2 * layers
            for i in range(at, at + 2 * heads, 2):
                out = np.matmul(params[i].numpy(), values[-1].T)
                out += params[i + 1].numpy()[:, None]
                outs.append(torch.from_numpy(out.T.reshape(*x.shape[:-1], len(out))))
            at += 2 * heads
            if not heads:
                outs.append(torch.from_numpy(values[-1]).view(*x.shape[:-1], values[-1].shape[1]))
            kept.append(values)
        ctx.set_materialize_grads(False)
        ctx.activation, ctx.towers, ctx.kept, ctx.lead = activation, shape, kept, x.shape
        ctx.save_for_backward(*params)
        return tuple(outs)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *given: Tensor | None) -> tuple[Any, ...]:
        params: tuple[Tensor, ...] = ctx.saved_tensors
        grads: list[Array | None] = [None] * len(params)
        rows = len(ctx.kept[0][0])
        ones: Array = np.ones(rows, np.float32)
        through_x = ctx.needs_input_grad[0]
        to_x: Array | None = None
        i, head = len(params), len(given)
        for (layers, heads), values in zip(reversed(ctx.towers), reversed(ctx.kept), strict=True):  # the last is in the cache
            grad: Array | None = None
            for out in reversed(given[head - heads : head] if heads else ()):
                i -= 2
                if out is None:
                    continue
                outs = out.numpy().reshape(rows, out.shape[-1]).T
                grads[i], grads[i + 1] = np.matmul(outs, values[-1]), np.matmul(outs, ones)
                if layers or through_x:
                    grad = _from_head(outs, params[i].numpy(), grad)
            if not heads and (out := given[head - 1]) is not None:
                grad = np.array(out.numpy()).reshape(rows, out.shape[-1])  # a copy: it is overwritten below
            head -= max(heads, 1)
            for depth in range(layers, 0, -1):
                i -= 2
                if grad is None:
                    continue
                unactivate_(torch.from_numpy(grad), torch.from_numpy(values[depth]), ctx.activation)
                grads[i], grads[i + 1] = _weight_grad(grad, values[depth - 1]), np.matmul(ones, grad)
                grad = _input_grad(grad, params[i]) if depth > 1 or through_x else None
            if grad is not None and through_x:
                to_x = grad if to_x is None else np.add(to_x, grad, out=to_x)
        back = None if to_x is None else torch.from_numpy(to_x).view(ctx.lead)
        return (back, None, None, *(None if one is None else torch.from_numpy(one) for one in grads))


def _layer(x: Array, weight: Tensor, bias: Tensor) -> Array:
    """`x @ weight.T + bias`."""
    if len(x) * weight.numel() >= LARGE:
        return _array(with_bias(torch.from_numpy(x), weight, bias))
    out: Array = np.matmul(x, weight.numpy().T)
    torch.from_numpy(out).add_(bias)
    return out


def _from_head(outs: Array, weight: Array, more: Array | None) -> Array:
    """`outs.T @ weight`, and more."""
    grad: Array = outs.T * weight if len(outs) == 1 else np.matmul(outs.T, weight)
    if more is not None:
        grad += more
    return grad


def _weight_grad(grad: Array, x: Array) -> Array:
    """`grad.T @ x`."""
    if grad.shape[1] * x.shape[1] > SMALL and grad.size * x.shape[1] >= LARGE:
        return _array(mm(torch.from_numpy(grad.T), torch.from_numpy(x)))
    found: Array = np.matmul(grad.T, x)
    return found


def _input_grad(grad: Array, weight: Tensor) -> Array:
    """`grad @ weight`."""
    if len(grad) * weight.numel() >= LARGE:
        return _array(mm(torch.from_numpy(grad), weight))
    found: Array = np.matmul(grad, weight.numpy())
    return found


def _array(tensor: Tensor) -> Array:
    array: Array = tensor.numpy()
    return array
