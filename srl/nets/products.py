"""Products of matrices: exact, or rounded to bfloat16 if that is asked for (docs/decisions/0013)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn


def product(x: Tensor, weight: Tensor, bias: Tensor | None = None, *, half: bool = False) -> Tensor:
    """`x @ weight.T + bias`; with `half` the numbers that are multiplied are rounded, sums are not."""
    if not half:
        return nn.functional.linear(x, weight, bias)
    node: Any = _HalfNode
    out: Tensor = node.apply(x, weight, bias)
    return out


def mm(one: Tensor, two: Tensor, *, half: bool = False, out: Tensor | None = None) -> Tensor:
    """`one @ two` on CPU, in float32, without autograd; with `half` either may be rounded already."""
    if half:
        rounded = torch.mm(one.bfloat16(), two.bfloat16())
        return rounded.float() if out is None else out.copy_(rounded)
    return torch.mm(one, two) if out is None else torch.mm(one, two, out=out)


class _HalfNode(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        flat, short = x.reshape(-1, x.shape[-1]).bfloat16(), weight.bfloat16()
        out = torch.mm(flat, short.t())
        ctx.save_for_backward(flat, short)
        ctx.shape, ctx.biased = x.shape, bias is not None
        return (out.float() if bias is None else out.float().add_(bias)).view(*x.shape[:-1], len(weight))

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor, Tensor | None]:
        flat, short = ctx.saved_tensors
        grad = grad.reshape(-1, grad.shape[-1])
        rounded = grad.bfloat16()
        back = torch.mm(rounded, short).float().view(ctx.shape) if ctx.needs_input_grad[0] else None
        bias = torch.mm(grad.new_ones(1, len(grad)), grad)[0] if ctx.biased else None
        return back, torch.mm(rounded.t(), flat).float(), bias
