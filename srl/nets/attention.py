"""Self-attention among the few entities of one row, some of which are hidden. Made for many rows of few entities."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from srl.core.tree import Array

FEW = 8
"""Up to so many entities pairs are multiplied out; beyond, products of small matrices are faster."""
_BLOCK = 256  # rows whose pairs stay in the cache
_HIDDEN = -1e9


class EntityAttention(nn.Module):
    """LayerNorm, attention of `heads` heads, output layer, residual, LayerNorm."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        if width % heads:
            raise ValueError(f"{heads} heads do not divide a width of {width}: choose heads among the divisors")
        self.heads = heads
        self.before = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.after = nn.LayerNorm(width)
        for layer in (self.qkv, self.out):
            nn.init.normal_(layer.weight, 0.0, math.sqrt(0.125 / width))
            nn.init.zeros_(layer.bias)

    def forward(self, x: Tensor, seen: Tensor) -> Tensor:
        """Entities `[R, E, width]`, of which those in `seen` `[R, E]` are looked at, at least one."""
        rows, number, width = x.shape
        qkv = self.qkv(self.before(x)).view(rows, number, 3, width)
        y: Tensor = self.after(x + self.out(attend(qkv, seen, self.heads)))
        return y


def attend(
    qkv: Tensor,  # [R, E, 3, width]
    seen: Tensor,  # [R, E] which entities are looked at
    heads: int,
) -> Tensor:  # [R, E, width]
    """Scaled dot-product attention."""
    small = qkv.shape[1] <= FEW and qkv.device.type == "cpu" and qkv.dtype == torch.float32
    if small and not torch.compiler.is_compiling():
        out: Tensor = _Pairs.apply(qkv, seen, heads)  # type: ignore[no-untyped-call]
        return out
    return attend_by_products(qkv, seen, heads)


def attend_by_products(qkv: Tensor, seen: Tensor, heads: int) -> Tensor:
    """`attend` for any device, type and number of entities."""
    rows, number, _, width = qkv.shape
    q, k, v = qkv.view(rows, number, 3, heads, width // heads).permute(2, 0, 3, 1, 4)
    scores = (q * (width // heads) ** -0.5) @ k.transpose(-1, -2)
    weights = torch.softmax(scores.masked_fill(~seen[:, None, None], _HIDDEN), -1)
    out: Tensor = (weights @ v).transpose(1, 2).reshape(rows, number, width)
    return out


def seen_mean(x: Tensor, seen: Tensor) -> Tensor:
    """The mean of the entities `[R, E, width]` in `seen` `[R, E]`, at least one: `[R, width]`."""
    weights = seen.to(x.dtype)
    weights = weights / weights.sum(-1, keepdim=True)
    return torch.bmm(weights.unsqueeze(1), x).squeeze(1)


class _Pairs(torch.autograd.Function):
    """Every pair of entities multiplied out, blocks of rows at a time; sums over heads are thin products, best in numpy."""

    @staticmethod
    def forward(ctx: Any, qkv: Tensor, seen: Tensor, heads: int) -> Tensor:
        rows, number, _, width = qkv.shape
        given = qkv.numpy()
        into, onto = _head_sums(width, heads)
        hidden = np.where(seen.numpy(), np.float32(0.0), np.float32(_HIDDEN))
        out = np.empty((rows, number, width), np.float32)
        weights = np.empty((rows, number, number, heads), np.float32)
        for block in _blocks(rows):
            q, k, v = (given[block, :, part] for part in range(3))
            pairs = q[:, :, None] * k[:, None]
            flat = pairs.reshape(-1, width)
            scores = (flat @ into).reshape(weights[block].shape)
            scores += hidden[block, None, :, None]
            scores -= scores.max(2, keepdims=True)
            np.exp(scores, out=scores)
            np.divide(scores, scores.sum(2, keepdims=True), out=weights[block])
            np.matmul(weights[block].reshape(-1, heads), onto, out=flat)
            pairs *= v[:, None]
            np.sum(pairs, axis=2, out=out[block])
        ctx.save_for_backward(qkv)
        ctx.weights = weights
        return torch.from_numpy(out)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        given, weights = ctx.saved_tensors[0].numpy(), ctx.weights
        rows, heads, width = len(given), weights.shape[3], given.shape[3]
        into, onto = _head_sums(width, heads)
        back, wanted = np.empty_like(given), grad.contiguous().numpy()
        for block in _blocks(rows):
            q, k, v = (given[block, :, part] for part in range(3))
            to_q, to_k, to_v = (back[block, :, part] for part in range(3))
            ahead, weight = wanted[block, :, None], weights[block]
            pairs = ahead * v[:, None]
            flat = pairs.reshape(-1, width)
            scores = (flat @ into).reshape(weight.shape)  # already scaled as the scores were
            np.matmul(weight.reshape(-1, heads), onto, out=flat)
            pairs *= ahead
            np.sum(pairs, axis=1, out=to_v)
            scores -= (scores * weight).sum(2, keepdims=True)
            scores *= weight
            np.matmul(scores.reshape(-1, heads), onto, out=flat)
            np.sum(pairs * k[:, None], axis=2, out=to_q)
            pairs *= q[:, :, None]
            np.sum(pairs, axis=1, out=to_k)
        return torch.from_numpy(back), None, None


def _head_sums(width: int, heads: int) -> tuple[Array, Array]:
    """`[width, heads]`, which sums and scales each head's numbers; `[heads, width]`, which spreads one number over them."""
    spread = np.repeat(np.eye(heads, dtype=np.float32), width // heads, axis=1)
    return np.ascontiguousarray(spread.T) * np.float32((width // heads) ** -0.5), spread


def _blocks(rows: int) -> list[slice]:
    return [slice(low, min(low + _BLOCK, rows)) for low in range(0, rows, _BLOCK)]
