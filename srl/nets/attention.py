"""Masked self-attention among the entities of a row. Optimized for many rows of few entities."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from srl.core.tree import Array
from srl.nets.products import product, runs_in_numpy

FEW = 4
"""So few entities are multiplied out pair by pair; for more, products of small matrices are faster."""
_BLOCK = 256  # rows whose pairs stay in the cache
_HIDDEN = -1e9


class EntityAttention(nn.Module):
    """LayerNorm, attention of `heads` heads, output layer, residual, LayerNorm."""

    def __init__(self, width: int, heads: int, *, half: bool = False) -> None:
        super().__init__()
        if width % heads:
            raise ValueError(f"{heads} heads do not divide a width of {width}: choose heads among the divisors")
        self.heads, self.bf16 = heads, half
        self.before = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.after = nn.LayerNorm(width)
        for layer in (self.qkv, self.out):
            nn.init.normal_(layer.weight, 0.0, math.sqrt(0.125 / width))
            nn.init.zeros_(layer.bias)

    def forward(self, x: Tensor, seen: Tensor) -> Tensor:
        """Entities `[R, E, width]`, attending to those in `seen` `[R, E]`, at least one."""
        rows, number, width = x.shape
        qkv = product(self.before(x), self.qkv.weight, self.qkv.bias, half=self.bf16).view(rows, number, 3, width)
        out = product(attend(qkv, seen, self.heads), self.out.weight, self.out.bias, half=self.bf16)
        y: Tensor = self.after(x + out)
        return y


def attend(
    qkv: Tensor,  # [R, E, 3, width]
    seen: Tensor,  # [R, E] which entities are looked at
    heads: int,
) -> Tensor:  # [R, E, width]
    """Scaled dot-product attention."""
    if runs_in_numpy(qkv):
        node: Any = _PairsNode if qkv.shape[1] <= FEW else _ProductsNode
        out: Tensor = node.apply(qkv, seen, heads)
        return out
    return attend_by_torch(qkv, seen, heads)


def attend_by_torch(qkv: Tensor, seen: Tensor, heads: int) -> Tensor:
    """`attend` for any device and type."""
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
    return (x * weights.unsqueeze(-1)).sum(1)


class _ProductsNode(torch.autograd.Function):
    """In numpy, whose products of many small matrices take half the time of torch's, and need no copies."""

    @staticmethod
    def forward(ctx: Any, qkv: Tensor, seen: Tensor, heads: int) -> Tensor:
        rows, number, _, width = qkv.shape
        q, k, v = qkv.numpy().reshape(rows, number, 3, heads, -1).transpose(2, 0, 3, 1, 4)
        scores = np.matmul(q, k.swapaxes(-1, -2))
        scores *= np.float32((width // heads) ** -0.5)
        scores += np.where(seen.numpy(), np.float32(0.0), np.float32(_HIDDEN))[:, None, None]
        weights = torch.softmax(torch.from_numpy(scores), -1)
        out = np.empty((rows, number, heads, width // heads), np.float32)
        np.matmul(weights.numpy(), v, out=out.transpose(0, 2, 1, 3))
        ctx.save_for_backward(qkv, weights)
        return torch.from_numpy(out.reshape(rows, number, width))

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        qkv, weights = ctx.saved_tensors
        rows, heads, number, _ = weights.shape
        each = qkv.shape[3] // heads
        q, k, v = qkv.numpy().reshape(rows, number, 3, heads, each).transpose(2, 0, 3, 1, 4)
        ahead = grad.contiguous().numpy().reshape(rows, number, heads, each).transpose(0, 2, 1, 3)
        back = np.empty((rows, number, 3, heads, each), np.float32)
        to_q, to_k, to_v = back.transpose(2, 0, 3, 1, 4)
        np.matmul(weights.numpy().swapaxes(-1, -2), ahead, out=to_v)
        to_weights = torch.from_numpy(np.matmul(ahead, v.swapaxes(-1, -2)))
        scores = torch.ops.aten._softmax_backward_data(to_weights, weights, -1, torch.float32).numpy()
        scores *= np.float32(each**-0.5)
        np.matmul(scores, k, out=to_q)
        np.matmul(scores.swapaxes(-1, -2), q, out=to_k)
        return torch.from_numpy(back.reshape(qkv.shape)), None, None


class _PairsNode(torch.autograd.Function):
    """Blocks of rows, entities first; sums over heads are thin products, which are fast in numpy."""

    @staticmethod
    def forward(ctx: Any, qkv: Tensor, seen: Tensor, heads: int) -> Tensor:
        rows, number, _, width = qkv.shape
        into, onto = _head_sums(width, heads)
        hidden = np.where(seen.numpy().T, np.float32(0.0), np.float32(_HIDDEN))[:, :, None]
        out = np.empty((rows, number, width), np.float32)
        kept: list[tuple[slice, Array, Array]] = []
        for block in _blocks(rows):
            turned = np.ascontiguousarray(qkv[block].numpy().transpose(2, 1, 0, 3))
            q, k, v = turned
            weights = np.empty((number, *k.shape[:2], heads), np.float32)
            pairs = np.empty_like(k)
            flat = pairs.reshape(-1, width)
            for i in range(number):
                np.multiply(q[i], k, out=pairs)
                scores = (flat @ into).reshape(weights[i].shape)
                scores += hidden[:, block]
                scores -= scores.max(0)
                np.exp(scores, out=scores)
                np.divide(scores, scores.sum(0), out=weights[i])
                np.matmul(weights[i].reshape(-1, heads), onto, out=flat)
                pairs *= v
                np.sum(pairs, axis=0, out=out[block, i])
            kept.append((block, turned, weights))
        ctx.kept, ctx.shape, ctx.heads = kept, qkv.shape, heads
        return torch.from_numpy(out)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        number, width, heads = ctx.shape[1], ctx.shape[3], ctx.heads
        into, onto = _head_sums(width, heads)
        back = np.empty(ctx.shape, np.float32)
        for block, (q, k, v), weights in ctx.kept:
            ahead = np.ascontiguousarray(grad[block].numpy().transpose(1, 0, 2))
            to_k, to_v = np.zeros((2, *k.shape), np.float32)
            pairs, more = np.empty((2, *k.shape), np.float32)
            flat = pairs.reshape(-1, width)
            for i in range(number):
                np.multiply(ahead[i], v, out=pairs)
                scores = (flat @ into).reshape(weights[i].shape)  # scaled already, as the scores were
                np.matmul(weights[i].reshape(-1, heads), onto, out=flat)
                pairs *= ahead[i]
                to_v += pairs
                scores -= (scores * weights[i]).sum(0)
                scores *= weights[i]
                np.matmul(scores.reshape(-1, heads), onto, out=flat)
                np.sum(np.multiply(pairs, k, out=more), axis=0, out=back[block, i, 0])
                pairs *= q[i]
                to_k += pairs
            back[block, :, 1], back[block, :, 2] = to_k.transpose(1, 0, 2), to_v.transpose(1, 0, 2)
        return torch.from_numpy(back), None, None


def _head_sums(width: int, heads: int) -> tuple[Array, Array]:
    """`[width, heads]`, which sums and scales each head's numbers; `[heads, width]`, which spreads one number over them."""
    onto = np.repeat(np.eye(heads, dtype=np.float32), width // heads, axis=1)
    return np.ascontiguousarray(onto.T) * np.float32((width // heads) ** -0.5), onto


def _blocks(rows: int) -> list[slice]:
    return [slice(low, min(low + _BLOCK, rows)) for low in range(0, rows, _BLOCK)]
