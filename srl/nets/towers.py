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

from srl.api.flat import Block
from srl.api.value_head import ValueHead
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
        self.activation = towers[0][0].activation
        self.shape: Shape = tuple((len(body.layers), len(heads)) for body, heads in towers)
        layers: list[Any] = [layer for body, heads in towers for layer in (*body.layers, *heads)]
        self.values = [isinstance(head, ValueHead) for _, heads in towers for head in heads]
        """Which heads are values: one number each, without an axis of its own."""
        self.block = Block([one for layer in layers for one in (layer.weight, layer.bias)])

    def __call__(self, x: Tensor) -> list[Tensor]:
        """The heads of every tower over features `[..., inputs]`: values `[...]`, others `[..., n]`; or its last layer."""
        outs: list[Tensor] = _Towers.apply(x, self, *self.block.leaves())  # type: ignore[no-untyped-call]
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
    def forward(ctx: Any, x: Tensor, towers: Towers, *leaves: Tensor) -> tuple[Tensor, ...]:
        params = towers.block.arrays(leaves)
        lead = x.shape[:-1]
        rows = x.reshape(-1, x.shape[-1]).numpy()
        outs: list[Tensor] = []
        kept: list[list[Array]] = []
        at = 0
        for layers, heads in towers.shape:
            values = [rows]
            for i in range(at, at + 2 * layers, 2):
                layer = _layer if heads or i < at + 2 * layers - 2 else _last_layer
                values.append(activate_(layer(values[-1], params[i], params[i + 1]), towers.activation))
            at += 2 * layers
            for i in range(at, at + 2 * heads, 2):
                out = np.matmul(params[i], values[-1].T)
                out += params[i + 1][:, None]
                outs.append(torch.from_numpy(out.reshape(lead) if towers.values[len(outs)] else out.T.reshape(*lead, len(out))))
            at += 2 * heads
            if not heads:
                outs.append(torch.from_numpy(values[-1].T).view(values[-1].shape[1], *lead).movedim(0, -1))
            kept.append(values)
        ctx.set_materialize_grads(False)
        ctx.towers, ctx.kept, ctx.lead = towers, kept, x.shape
        ctx.save_for_backward(*leaves)
        return tuple(outs)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *given: Tensor | None) -> tuple[Any, ...]:
        towers: Towers = ctx.towers
        leaves = ctx.saved_tensors
        params = towers.block.arrays(leaves)
        slots, flat = towers.block.slots(leaves)
        grads: list[Array | None] = [None] * len(params)
        rows = len(ctx.kept[0][0])
        ones: Array = np.ones(rows, np.float32)
        through_x = ctx.needs_input_grad[0]
        to_input = _from_head if ctx.kept[0][0].flags.c_contiguous else _through_head  # the gradient is stored as the input is
        to_x: Array | None = None
        i, head = len(params), len(given)
        for (layers, heads), values in zip(reversed(towers.shape), reversed(ctx.kept), strict=True):  # the last is in the cache
            grad: Array | None = None
            for out in reversed(given[head - heads : head] if heads else ()):
                i -= 2
                if out is None:
                    continue
                outs = out.numpy().reshape(rows, len(params[i])).T
                grads[i] = np.matmul(outs, values[-1], out=slots[i])
                grads[i + 1] = np.matmul(outs, ones, out=slots[i + 1])
                if layers:
                    grad = _from_head(outs, params[i], grad)
                elif through_x:
                    grad = to_input(outs, params[i], grad)
            if not heads and (out := given[head - 1]) is not None:
                grad = np.array(out.reshape(rows, out.shape[-1]).numpy(), order="F")  # a copy: it is overwritten below
            head -= max(heads, 1)
            for depth in range(layers, 0, -1):
                i -= 2
                if grad is None:
                    continue
                unactivate_(torch.from_numpy(grad), torch.from_numpy(values[depth]), towers.activation)
                grads[i] = _weight_grad(grad, values[depth - 1], slots[i])
                grads[i + 1] = np.matmul(ones, grad, out=slots[i + 1])
                grad = _input_grad(grad, params[i]) if depth > 1 or through_x else None
            if grad is not None and through_x:
                to_x = grad if to_x is None else np.add(to_x, grad, out=to_x)
        back = None if to_x is None else torch.from_numpy(to_x).reshape(ctx.lead)
        if flat is not None:
            return back, None, flat
        return (back, None, *(None if one is None else torch.from_numpy(one) for one in grads))


def _layer(x: Array, weight: Array, bias: Array) -> Array:
    """`x @ weight.T + bias`."""
    if len(x) * weight.size >= LARGE:
        return _array(with_bias(torch.from_numpy(x), torch.from_numpy(weight), torch.from_numpy(bias)))
    out: Array = np.matmul(x, weight.T)
    torch.from_numpy(out).add_(torch.from_numpy(bias))
    return out


def _last_layer(x: Array, weight: Array, bias: Array) -> Array:
    """The same, stored features first."""
    if len(x) * weight.size >= LARGE:
        out = _array(mm(torch.from_numpy(weight), torch.from_numpy(x).t()))
    else:
        out = np.matmul(weight, x.T)
    out += bias[:, None]
    return out.T


def _from_head(outs: Array, weight: Array, more: Array | None) -> Array:
    """`outs.T @ weight`, and more."""
    grad = _array(torch.mm(torch.from_numpy(outs).t(), torch.from_numpy(weight)))
    if more is not None:
        grad += more
    return grad


def _through_head(outs: Array, weight: Array, more: Array | None) -> Array:
    """The same, stored features first, as cells have it."""
    grad = _array(torch.mm(torch.from_numpy(weight).t(), torch.from_numpy(outs))).T
    if more is not None:
        grad += more
    return grad


def _weight_grad(grad: Array, x: Array, out: Array | None) -> Array:
    """`grad.T @ x`, in `out` if there is one."""
    whole = grad.T.flags.c_contiguous
    if (whole or grad.shape[1] * x.shape[1] > SMALL) and grad.size * x.shape[1] >= LARGE:
        return _array(mm(torch.from_numpy(grad.T), torch.from_numpy(x), out=None if out is None else torch.from_numpy(out)))
    if x.shape[1] < grad.shape[1]:  # the quicker order
        turned: Array = np.matmul(x.T, grad, out=None if out is None else out.T)
        return turned.T
    found: Array = np.matmul(grad.T, x, out=out)
    return found


def _input_grad(grad: Array, weight: Array) -> Array:
    """`grad @ weight`."""
    if len(grad) * weight.size >= LARGE:
        return _array(mm(torch.from_numpy(grad), torch.from_numpy(weight)))
    found: Array = np.matmul(grad, weight)
    return found


def _array(tensor: Tensor) -> Array:
    array: Array = tensor.numpy()
    return array
