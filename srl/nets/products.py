"""Matrix products: in float32, or with inputs rounded to bfloat16 (docs/decisions/0013, 0018)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

LARGE = 4_000_000
"""Products with at least this many multiply-adds go to oneDNN."""
SEVERAL = 4
"""Within a node of several layers, products a quarter as large do."""


def product(x: Tensor, weight: Tensor, bias: Tensor | None = None, *, half: bool = False) -> Tensor:
    """`x @ weight.T + bias`; with `half` the factors are rounded to bfloat16, sums are not."""
    if not half and (not runs_in_numpy(x) or not is_for_onednn(x, x.numel() * weight.shape[0])):
        return nn.functional.linear(x, weight, bias)
    node: Any = _HalfNode if half else _OneDnnNode
    out: Tensor = node.apply(x, weight, bias)
    return out


def with_bias(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """`x @ weight.T + bias` of matrices on CPU, in float32, without autograd."""
    return _onednn(x, weight, bias) if is_for_onednn(x, x.numel() * weight.shape[0]) else torch.addmm(bias, x, weight.t())


def dense(x: Tensor, weight: Tensor, bias: Tensor, activation: str | None) -> Tensor:
    """The activation of `x @ weight.T + bias` of matrices on CPU, as precise as `x`, without autograd."""
    half = x.dtype == torch.bfloat16
    if half:
        weight = weight.bfloat16()
    if _FUSED is not None if half else is_for_onednn(x, SEVERAL * x.numel() * weight.shape[0]):
        out: Tensor = _FUSED(x, weight, bias, "relu" if activation == "relu" else "none", [], "")
        return activated_(out, None if activation == "relu" else activation)
    out = torch.addmm(bias.to(x.dtype), x, weight.t())
    return activated_(out, activation)


def activated_(x: Tensor, kind: str | None) -> Tensor:
    """Apply an activation in place, without autograd."""
    if kind is None:
        return x
    return x.relu_() if kind == "relu" else x.tanh_() if kind == "tanh" else nn.functional.elu_(x)


def weight_grad(grad: Tensor, x: Tensor, out: Tensor) -> None:
    """`grad.T @ x` of contiguous matrices into `out`, which is float32."""
    if x.dtype == torch.bfloat16:
        out.copy_(torch.mm(grad.t(), x))
    elif is_for_onednn(x, SEVERAL * x.numel() * grad.shape[1]):
        thin = x.shape[1] < grad.shape[1]
        out.copy_(_LINEAR(x.t(), grad.t(), None, "none", [], "").t() if thin else _LINEAR(grad.t(), x.t(), None, "none", [], ""))
    else:
        torch.mm(grad.t(), x, out=out)


def input_grad(grad: Tensor, weight: Tensor) -> Tensor:
    """`grad @ weight` of contiguous matrices, as precise as `grad`."""
    if len(weight) == 1:
        return grad * weight
    if grad.dtype == torch.bfloat16:
        return torch.mm(grad, weight.bfloat16())
    if is_for_onednn(grad, SEVERAL * grad.numel() * weight.shape[1]):
        out: Tensor = _LINEAR(grad, weight.t(), None, "none", [], "")
        return out
    return torch.mm(grad, weight)


def mm(one: Tensor, two: Tensor, *, half: bool = False, out: Tensor | None = None) -> Tensor:
    """`one @ two` on CPU, in float32, without autograd; with `half` either may be rounded already."""
    if half:
        rounded = torch.mm(one.bfloat16(), two.bfloat16())
        return rounded.float() if out is None else out.copy_(rounded)
    if is_for_onednn(one, one.numel() * two.shape[1]):
        turned = one.shape[0] > two.shape[1] and one.stride(0) == 1  # over long columns, as a weight's gradient: thin on the left
        found = _onednn(two.t(), one).t() if turned else _onednn(one, two.t())
        return found if out is None else out.copy_(found)
    return torch.mm(one, two) if out is None else torch.mm(one, two, out=out)


def runs_in_numpy(x: Tensor) -> bool:
    """True if the numpy nodes can be used: float32 on CPU, outside tracing, compilation and autocast."""
    return (
        x.device.type == "cpu"
        and x.dtype == torch.float32
        and not torch.compiler.is_compiling()
        and not torch.jit.is_tracing()  # type: ignore[attr-defined, no-untyped-call]
        and not torch.is_autocast_enabled("cpu")
    )


def is_for_onednn(x: Tensor, multiply_adds: int) -> bool:
    """True if a product of this size goes to oneDNN."""
    return _MKL_IS_NARROW and multiply_adds >= LARGE and x.dtype == torch.float32 and x.device.type == "cpu"


class _OneDnnNode(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.biased = bias is not None
        return _onednn(x, weight, bias)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor, Tensor | None]:
        x, weight = ctx.saved_tensors
        grad = grad.reshape(-1, grad.shape[-1])
        back = mm(grad, weight).view(x.shape) if ctx.needs_input_grad[0] else None
        return back, mm(grad.t(), x.reshape(-1, x.shape[-1])), _sums(grad) if ctx.biased else None


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
        return back, torch.mm(rounded.t(), flat).float(), _sums(grad) if ctx.biased else None


def _sums(rows: Tensor) -> Tensor:
    """Of each column."""
    return torch.mm(rows.new_ones(1, len(rows)), rows)[0]


def _onednn(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    out: Tensor = _LINEAR(_whole(x), _whole(weight), bias, "none", [], "")
    return out


def _whole(x: Tensor) -> Tensor:
    """Make rows or columns contiguous: otherwise oneDNN takes a slow path."""
    return x if x.is_contiguous() or (x.dim() == 2 and x.t().is_contiguous()) else x.contiguous()


def _has_wide_onednn() -> bool:
    """AVX-512, and a oneDNN that joins a product and an activation."""
    return (
        torch.backends.cpu.get_cpu_capability() == "AVX512"
        and torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
        and hasattr(torch.ops.mkldnn, "_linear_pointwise")
    )


def _is_of_intel() -> bool:
    """On other CPUs torch's MKL uses half the width of AVX-512, and its oneDNN all of it."""
    about = Path("/proc/cpuinfo")
    return not about.exists() or "GenuineIntel" in about.read_text(errors="replace")


_FUSED: Any = torch.ops.mkldnn._linear_pointwise.default if _has_wide_onednn() else None
_MKL_IS_NARROW = _FUSED is not None and not _is_of_intel()
_LINEAR: Any = _FUSED if _MKL_IS_NARROW else None
