"""Networks of equal sizes side by side, such as twin critics: on CPU one autograd node for all of their layers."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, Literal, TypeAlias

import torch
from torch import Tensor, nn

from srl.nets.mlp import GAIN, activate, linear
from srl.nets.norms import BatchRenorm, LayerNorms
from srl.nets.products import dense, mm, product, runs_in_numpy
from srl.nets.towers import unactivate_

Norm: TypeAlias = Literal["no", "layer", "batch"]


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

    def forward(self, x: Tensor, *, frozen: bool = False, only: int | None = None) -> Tensor:
        """`[..., inputs]` -> `[count, ..., outputs]`. `frozen`: gradients reach `x` alone. `only`: the first so many towers."""
        rows = x.reshape(-1, x.shape[-1])
        params = [one for pair in zip(self.weights, self.biases, strict=True) for one in pair]
        if frozen:
            params = [one.detach() for one in params]
        if self.norms is None and runs_in_numpy(rows):
            out: Tensor = _Layers.apply(rows, self.activation, only or self.count, *params)  # type: ignore[no-untyped-call]
        else:
            out = self._layers(rows, params)[:only]
        return out.view(len(out), *x.shape[:-1], out.shape[-1])

    def _layers(self, rows: Tensor, params: list[Tensor]) -> Tensor:
        """Layer by layer, `[count, rows, size]`."""
        x = rows.expand(self.count, *rows.shape)
        norms = list(self.norms) if self.norms is not None else []
        if self.norm == "batch":
            x = norms.pop(0)(x)
        for i in range(0, len(params), 2):
            x = _stacked(x, params[i], params[i + 1])
            if i < len(params) - 2:
                x = activate(norms.pop(0)(x) if norms else x, self.activation)
        return x


def _stacked(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """`[count, N, in]` by `[count, out, in]`; on CPU torch's batched product takes seven times as long as one by one."""
    if x.device.type == "cpu":
        return torch.stack([product(x[i], weight[i], bias[i]) for i in range(len(x))])
    return torch.baddbmm(bias[:, None], x, weight.transpose(1, 2))


class _Layers(torch.autograd.Function):
    """All layers of all towers over the same rows, on CPU in float32."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, activation: str, count: int, *params: Tensor) -> Tensor:
        hidden = len(params) // 2 - 1
        out = x.new_empty((count, len(x), params[-1].shape[-1]))
        kept: list[list[Tensor]] = []
        for tower in range(count):
            values = [x]
            for i in range(0, 2 * hidden, 2):
                values.append(dense(values[-1], params[i][tower], params[i + 1][tower], activation))
            weight, bias = params[-2][tower], params[-1][tower]
            if len(weight) == 1:
                torch.add(torch.mv(values[-1], weight[0])[:, None], bias, out=out[tower])
            else:
                torch.addmm(bias, values[-1], weight.t(), out=out[tower])
            kept.append(values)
        ctx.activation, ctx.kept = activation, kept
        ctx.save_for_backward(*params)
        return out

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, given: Tensor) -> tuple[Any, ...]:
        params: tuple[Tensor, ...] = ctx.saved_tensors
        last = len(params) - 2
        wanted, through_x = ctx.needs_input_grad[3], ctx.needs_input_grad[0]
        grads = [torch.empty_like(one) for one in params] if wanted else []
        to_x: Tensor | None = None
        for tower, values in enumerate(ctx.kept):
            grad = given[tower]
            for i in range(last, -1, -2):
                weight, value = params[i][tower], values[i // 2]
                if i < last:
                    unactivate_(grad, values[i // 2 + 1], ctx.activation)
                if wanted:
                    mm(grad.t(), value, out=grads[i][tower])
                    torch.sum(grad, 0, out=grads[i + 1][tower])
                if i or through_x:
                    grad = grad * weight if len(weight) == 1 else mm(grad, weight)
            if through_x:
                to_x = grad if to_x is None else to_x.add_(grad)
        return (to_x, None, None, *(grads if wanted else [None] * len(params)))
