"""Networks of equal sizes side by side, such as twin critics: on CPU one autograd node for all of their layers."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Literal, TypeAlias

import torch
from torch import Tensor, nn

from srl.nets.mlp import GAIN, activate, linear
from srl.nets.norms import BatchRenorm, LayerNorms
from srl.nets.products import dense, input_grad, product, runs_in_numpy, weight_grad
from srl.nets.towers import unactivate_

Norm: TypeAlias = Literal["no", "layer", "batch"]
Tower: TypeAlias = list[tuple[Tensor, Tensor]]
"""Weight and bias of every layer."""


class Ensemble(nn.Module):
    """`count` towers `sizes[0] -> ... -> sizes[-1]`; the activation, perhaps after a normalization, follows each hidden layer."""

    def __init__(
        self, sizes: tuple[int, ...], count: int = 1, *, activation: str = "relu", norm: Norm = "no", gain: float = 1.0
    ) -> None:
        """`gain`: of the last layer, which has no activation."""
        super().__init__()
        self.activation, self.count = activation, count
        gains = [*[GAIN[activation]] * (len(sizes) - 2), gain]
        layers = [
            [linear(low, high, gain) for _ in range(count)] for (low, high), gain in zip(pairwise(sizes), gains, strict=True)
        ]
        self.weights = nn.ParameterList(nn.Parameter(torch.stack([one.weight.detach() for one in row])) for row in layers)
        self.biases = nn.ParameterList(nn.Parameter(torch.stack([one.bias.detach() for one in row])) for row in layers)
        kind = {"layer": LayerNorms, "batch": BatchRenorm}.get(norm)
        self.norms = (
            nn.ModuleList(kind(count, size) for size in (sizes[:-1] if norm == "batch" else sizes[1:-1])) if kind else None
        )
        self.norm = norm
        self._cache: tuple[int, list[Tensor], list[Tower]] | None = None

    def forward(self, x: Tensor, *, frozen: bool = False, only: int | None = None) -> Tensor:
        """`[..., inputs]` -> `[count, ..., outputs]`. `frozen`: gradients reach `x` alone. `only`: the first so many towers."""
        rows = x if x.ndim == 2 else x.reshape(-1, x.shape[-1])
        if self.norms is None and runs_in_numpy(rows):
            _, flat, towers = self._known()
            towers = towers[:only]
            if not torch.is_grad_enabled() or (frozen and not x.requires_grad):
                out = _run(rows.contiguous(), towers, self.activation)[0]
            else:
                out = _Layers.apply(rows.contiguous(), towers, self.activation, *(() if frozen else flat))  # type: ignore[no-untyped-call]
        else:
            params = [one.detach() if frozen else one for pair in zip(self.weights, self.biases, strict=True) for one in pair]
            if rows.device.type == "cpu":  # torch's batched product takes seven times as long there
                each = list(zip(*(one.unbind(0) for one in params), strict=True))[:only]
                out = torch.stack([self._layers(rows, tower, frozen, at) for at, tower in enumerate(each)])
            else:
                out = self._layers(rows, [one[:only] for one in params], frozen, slice(only))
        return out if x.ndim == 2 else out.view(len(out), *x.shape[:-1], out.shape[-1])

    def _known(self) -> tuple[int, list[Tensor], list[Tower]]:
        """Where the parameters are, all of them, and views of each tower's. Made again when they have moved."""
        known = self._cache
        if known is None or known[1][0].data_ptr() != known[0]:
            flat = [one for pair in zip(self.weights, self.biases, strict=True) for one in pair]
            layers = [(weight.detach(), bias.detach()) for weight, bias in zip(self.weights, self.biases, strict=True)]
            towers = [[(weight[i], bias[i]) for weight, bias in layers] for i in range(self.count)]
            known = self._cache = (flat[0].data_ptr(), flat, towers)
        return known

    def _layers(self, x: Tensor, params: Sequence[Tensor], frozen: bool, at: int | slice) -> Tensor:
        """Layer by layer: of one tower `[rows, outputs]`, of several `[towers, rows, outputs]`."""
        norms = iter(self.norms) if self.norms is not None else iter(())
        if isinstance(at, slice):
            x = x.expand(len(params[0]), *x.shape)
        if self.norm == "batch":
            x = next(norms)(x, frozen, at)
        for i in range(0, len(params), 2):
            weight, bias = params[i], params[i + 1]
            x = product(x, weight, bias) if isinstance(at, int) else torch.baddbmm(bias[:, None], x, weight.transpose(1, 2))
            if i < len(params) - 2:
                x = activate(x if self.norms is None else next(norms)(x, frozen, at), self.activation)
        return x


def _run(x: Tensor, towers: list[Tower], activation: str) -> tuple[Tensor, list[list[Tensor]]]:
    """The outputs `[count, N, outputs]`, and of every tower the inputs of its layers."""
    out = x.new_empty((len(towers), x.shape[0], towers[0][-1][1].shape[0]))
    kept: list[list[Tensor]] = []
    for tower, into in zip(towers, out.unbind(0), strict=True):
        values = [x]
        for weight, bias in tower[:-1]:
            values.append(dense(values[-1], weight, bias, activation))
        weight, bias = tower[-1]
        torch.addmm(bias, values[-1], weight.t(), out=into)
        kept.append(values)
    return out, kept


class _Layers(torch.autograd.Function):
    """All layers of all towers over the same rows, on CPU in float32. Without parameters they are frozen."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, towers: list[Tower], activation: str, *params: Tensor) -> Tensor:
        out, ctx.kept = _run(x, towers, activation)
        ctx.towers, ctx.activation, ctx.shapes = towers, activation, [one.shape for one in params]
        return out

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, given: Tensor) -> tuple[Any, ...]:
        through_x = ctx.needs_input_grad[0]
        grads = [given.new_empty(shape) for shape in ctx.shapes]
        each = list(zip(*(one.unbind(0) for one in grads), strict=True)) or [()] * len(ctx.towers)
        to_x: Tensor | None = None
        for tower, values, own, grad in zip(ctx.towers, ctx.kept, each, given.unbind(0), strict=True):
            for i in range(len(tower) - 1, -1, -1):
                if own:
                    weight_grad(grad, values[i], own[2 * i])
                    torch.sum(grad, 0, out=own[2 * i + 1])
                if i or through_x:
                    grad = input_grad(grad, tower[i][0])
                if i:
                    unactivate_(grad, values[i], ctx.activation)
            if through_x:
                to_x = grad if to_x is None else to_x.add_(grad)
        return (to_x, None, None, *grads)
