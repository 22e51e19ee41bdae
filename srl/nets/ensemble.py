"""Networks of equal sizes side by side, such as twin critics: on CPU one autograd node for all of their layers.

With `half` the products of hidden layers are made in bfloat16, and what lies between the layers is kept in it. Parameters,
their gradients and the outputs are float32.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Literal, NamedTuple, TypeAlias

import torch
from torch import Tensor, nn

from srl.api.flat import Block
from srl.nets.mlp import GAIN, activate, linear
from srl.nets.norms import EPS, BatchRenorm, LayerNorms
from srl.nets.products import activated_, dense, input_grad, product, runs_in_numpy, weight_grad
from srl.nets.towers import unactivate_

Norm: TypeAlias = Literal["no", "layer", "batch"]


class Layer(NamedTuple):
    """Of one tower. `gain` and `shift` are those of the normalization behind it."""

    weight: Tensor
    bias: Tensor
    gain: Tensor | None = None
    shift: Tensor | None = None


Tower: TypeAlias = list[Layer]


class Pass(NamedTuple):
    """What a backward pass needs of a tower."""

    values: list[Tensor]
    """The inputs of its layers."""
    normal: list[tuple[Tensor, Tensor, Tensor]]
    """Of every normalization: what it was given, the mean of each row and one over its deviation."""


class Ensemble(nn.Module):
    """`count` towers `sizes[0] -> ... -> sizes[-1]`; the activation, perhaps after a normalization, follows each hidden layer."""

    def __init__(
        self,
        sizes: tuple[int, ...],
        count: int = 1,
        *,
        activation: str = "relu",
        norm: Norm = "no",
        gain: float = 1.0,
        half: bool = False,
    ) -> None:
        """`gain`: of the last layer, which has no activation."""
        super().__init__()
        self.activation, self.count, self.bf16 = activation, count, half
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
        self._cache: tuple[int, Block, list[Tower]] | None = None

    def forward(self, x: Tensor, *, frozen: bool = False, only: int | None = None) -> Tensor:
        """`[..., inputs]` -> `[count, ..., outputs]`. `frozen`: gradients reach `x` alone. `only`: the first so many towers."""
        rows = x if x.ndim == 2 else x.reshape(-1, x.shape[-1])
        if self.norm != "batch" and runs_in_numpy(rows):
            block, towers = self._known()
            if not torch.is_grad_enabled() or (frozen and not x.requires_grad):
                out = self.run(rows.contiguous(), towers[:only])[0]
            else:
                leaves = () if frozen else block.leaves()
                out = _Layers.apply(rows.contiguous(), self, towers[:only], block, *leaves)  # type: ignore[no-untyped-call]
        else:
            with torch.autocast(rows.device.type, torch.bfloat16, enabled=self.bf16):
                out = self._by_layers(rows, frozen, only).float()
        return out if x.ndim == 2 else out.view(len(out), *x.shape[:-1], out.shape[-1])

    def _known(self) -> tuple[Block, list[Tower]]:
        """All parameters, and views of each tower's. Made again when they have moved."""
        known, place = self._cache, self.weights[0].data_ptr()
        if known is None or known[0] != place:
            norms: list[Any] = list(self.norms or ())
            params = [*self.weights, *self.biases, *(one.gain for one in norms), *(one.bias for one in norms)]
            layers = [[weight.detach(), bias.detach()] for weight, bias in zip(self.weights, self.biases, strict=True)]
            for layer, norm in zip(layers, norms, strict=False):
                layer += [norm.gain.detach()[:, 0], norm.bias.detach()[:, 0]]
            towers = [[Layer(*(one[i] for one in layer)) for layer in layers] for i in range(self.count)]
            known = self._cache = (place, Block(params), towers)
        return known[1:]

    def run(self, x: Tensor, towers: list[Tower]) -> tuple[Tensor, list[Pass]]:
        """Without autograd: the outputs `[count, N, outputs]`, and what a backward pass needs."""
        out = x.new_empty((len(towers), x.shape[0], len(towers[0][-1].bias)))
        kept: list[Pass] = []
        first = x.bfloat16() if self.bf16 and len(towers[0]) > 1 else x
        for tower, into in zip(towers, out.unbind(0), strict=True):
            values, normal = [first], []
            for weight, bias, gain, shift in tower[:-1]:
                if gain is None:
                    values.append(dense(values[-1], weight, bias, self.activation))
                else:
                    before = dense(values[-1], weight, bias, None)
                    after, mean, scale = torch.native_layer_norm(before, before.shape[1:], gain, shift, EPS)
                    normal.append((before, mean, scale))
                    values.append(activated_(after, self.activation))
            last = tower[-1]
            torch.addmm(last.bias, values[-1].float(), last.weight.t(), out=into)
            kept.append(Pass(values, normal))
        return out, kept

    def _by_layers(self, rows: Tensor, frozen: bool, only: int | None) -> Tensor:
        """The same by ordinary operations."""
        params = [one.detach() if frozen else one for pair in zip(self.weights, self.biases, strict=True) for one in pair]
        if rows.device.type != "cpu":
            return self._layers(rows, [one[:only] for one in params], frozen, slice(only))
        each = list(zip(*(one.unbind(0) for one in params), strict=True))[
            :only
        ]  # torch's batched product takes seven times as long
        return torch.stack([self._layers(rows, tower, frozen, at) for at, tower in enumerate(each)])

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


class _Layers(torch.autograd.Function):
    """All layers of all towers over the same rows, on CPU. Without parameters they are frozen."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, net: Ensemble, towers: list[Tower], block: Block, *leaves: Tensor) -> Tensor:
        out, ctx.kept = net.run(x, towers)
        ctx.towers, ctx.activation, ctx.block, ctx.leaves = towers, net.activation, block, leaves
        return out

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, given: Tensor) -> tuple[Any, ...]:
        through_x = ctx.needs_input_grad[0]
        grads, back = _gradients(ctx.block, ctx.leaves) if ctx.leaves else ([], ())
        depth = len(ctx.towers[0])
        to_x: Tensor | None = None
        for number, (tower, (values, normal), grad) in enumerate(zip(ctx.towers, ctx.kept, given.unbind(0), strict=True)):
            own = [one[number] for one in grads]
            for i in range(depth - 1, -1, -1):
                if own:
                    weight_grad(grad, values[i].to(grad.dtype), own[i])
                    torch.sum(grad, 0, dtype=torch.float32, out=own[depth + i])
                if i or through_x:
                    grad = input_grad(grad, tower[i].weight)
                if i:
                    grad = grad.to(values[i].dtype)
                    unactivate_(grad, values[i], ctx.activation)
                if i and normal:
                    gain, shift = tower[i - 1][2:]
                    asked = [True, bool(own), bool(own)]
                    grad, *affine = _norm_back(grad, normal[i - 1][0], grad.shape[1:], *normal[i - 1][1:], gain, shift, asked)
                    if own:
                        own[2 * depth + i - 1].copy_(affine[0])
                        own[3 * depth + i - 2].copy_(affine[1])
            if through_x:
                to_x = grad.float() if to_x is None else to_x.add_(grad)
        return (to_x, None, None, None, *back)


_norm_back: Any = torch.ops.aten.native_layer_norm_backward


def _gradients(block: Block, leaves: Sequence[Tensor]) -> tuple[list[Tensor], Sequence[Tensor]]:
    """Where the gradients of all parameters are to be written, and what the node returns."""
    slots, flat = block.slots(leaves)
    if flat is not None:
        return [torch.from_numpy(one) for one in slots], (flat,)
    back = [torch.zeros_like(one) for one in leaves]
    return back, back
