"""Products of matrices: by torch, by numpy, or rounded to bfloat16 if that is asked for (docs/decisions/0013)."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn


def product(x: Tensor, weight: Tensor, bias: Tensor | None = None, *, half: bool = False) -> Tensor:
    """`x @ weight.T + bias`; with `half` the numbers that are multiplied are rounded, sums are not."""
    if not half and not (
        x.device.type == "cpu" and x.dtype == torch.float32 and by_numpy() and not torch.compiler.is_compiling()
    ):
        return nn.functional.linear(x, weight, bias)
    node: Any = _HalfNode if half else _NumpyNode
    out: Tensor = node.apply(x, weight, bias)
    return out


def mm(one: Tensor, two: Tensor, *, half: bool = False, out: Tensor | None = None) -> Tensor:
    """`one @ two` on CPU, in float32, without autograd; with `half` either may be rounded already."""
    if half:
        rounded = torch.mm(one.bfloat16(), two.bfloat16())
        return rounded.float() if out is None else out.copy_(rounded)
    if not by_numpy():
        return torch.mm(one, two) if out is None else torch.mm(one, two, out=out)
    if out is None:
        return torch.from_numpy(np.matmul(one.detach().numpy(), two.detach().numpy()))
    np.matmul(one.detach().numpy(), two.detach().numpy(), out=out.numpy())
    return out


@cache
def by_numpy() -> bool:
    """Whether products are numpy's, which are a little faster: on x86 with AVX-512, made by another than MKL's maker."""
    if not torch.backends.mkl.is_available():  # type: ignore[no-untyped-call]
        return False
    try:
        facts = Path("/proc/cpuinfo").read_text()
    except OSError:
        return False
    return "avx512f" in facts and "GenuineIntel" not in facts


class _NumpyNode(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        flat = x.reshape(-1, x.shape[-1])
        out = np.matmul(flat.numpy(), weight.numpy().T)
        if bias is not None:
            out += bias.numpy()
        ctx.save_for_backward(flat, weight)
        ctx.shape, ctx.biased = x.shape, bias is not None
        return torch.from_numpy(out).view(*x.shape[:-1], len(weight))

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor, Tensor | None]:
        flat, weight = ctx.saved_tensors
        given = grad.reshape(-1, grad.shape[-1]).numpy()
        back = torch.from_numpy(np.matmul(given, weight.numpy())).view(ctx.shape) if ctx.needs_input_grad[0] else None
        bias = torch.from_numpy(np.ones(len(given), np.float32) @ given) if ctx.biased else None
        return back, torch.from_numpy(np.matmul(given.T, flat.numpy())), bias


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
