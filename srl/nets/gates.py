"""The recurrences of LSTM and GRU with their gradients, in numpy on the tensors' memory. T steps, B sequences, time first.

Products with the inputs and all weight gradients run over the whole sequence at once. A sigmoid is half a tanh, which
numpy computes fastest: the gates that need it stand side by side, with half the weights.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from srl.core.tree import Array
from srl.nets.products import mm, product


def lstm_node(
    x: Tensor,  # [T, B, inputs]
    memory: Tensor,  # [B, 2 * width]
    first: Tensor,  # [T, B] the memory before this row is forgotten
    weight_ih: Tensor,  # [4 * width, inputs] gates i, f, g, o
    weight_hh: Tensor,
    bias_ih: Tensor,
    bias_hh: Tensor,
    half: bool,  # products in bfloat16
) -> tuple[Tensor, Tensor]:  # [T, B, width], [B, 2 * width]
    """Outputs and the last memory."""
    y, last = _LstmNode.apply(x, memory, first, weight_ih, weight_hh, bias_ih, bias_hh, half)  # type: ignore[no-untyped-call]
    return y, last


def gru_node(
    x: Tensor, memory: Tensor, first: Tensor, weight_ih: Tensor, weight_hh: Tensor, bias_ih: Tensor, bias_hh: Tensor, half: bool
) -> tuple[Tensor, Tensor]:
    """The same with one vector of memory; gates r, z, n."""
    y, last = _GruNode.apply(x, memory, first, weight_ih, weight_hh, bias_ih, bias_hh, half)  # type: ignore[no-untyped-call]
    return y, last


class _LstmNode(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, memory: Tensor, first: Tensor,
        weight_ih: Tensor, weight_hh: Tensor, bias_ih: Tensor, bias_hh: Tensor, half: bool,
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        time, number, _ = x.shape
        width = weight_hh.shape[1]
        resets, keep = _resets(first)
        gates = product(x, _halved(weight_ih, width), _halved(bias_ih + bias_hh, width), half=half)
        onto = _rounded(_halved(weight_hh, width), half).t()
        out_rows, cells = x.new_empty(time + 1, number, width), np.empty((time + 1, number, width), np.float32)
        bent = np.empty((time, number, width), np.float32)  # tanh of the cells
        outs, rows, new = out_rows.numpy(), gates.numpy(), np.empty((number, width), np.float32)
        moved = x.new_empty(number, 4 * width)
        outs[0], cells[0] = memory[:, :width].numpy(), memory[:, width:].numpy()
        for t in range(time):
            cell = cells[t]
            out_row = out_rows[t]
            if resets[t]:
                out_row = torch.from_numpy(outs[t] * keep[t])
                cell = cell * keep[t]
            gates[t].add_(mm(out_row, onto, half=half, out=moved))
            gate = rows[t]
            np.tanh(gate, out=gate)
            soft = gate[:, : 3 * width]
            soft += 1.0
            soft *= 0.5
            np.multiply(gate[:, width : 2 * width], cell, out=cells[t + 1])
            np.multiply(gate[:, :width], gate[:, 3 * width :], out=new)
            cells[t + 1] += new
            np.tanh(cells[t + 1], out=bent[t])
            np.multiply(gate[:, 2 * width : 3 * width], bent[t], out=outs[t + 1])
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(x, weight_ih, weight_hh)
        ctx.kept, ctx.half = (resets, keep, rows, outs, cells, bent), half
        return out_rows[1:], torch.from_numpy(np.concatenate([outs[-1], cells[-1]], 1))

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, given: Tensor | None, last: Tensor | None) -> tuple[Any, ...]:
        x, weight_ih, weight_hh = ctx.saved_tensors
        resets, keep, rows, outs, cells, bent = ctx.kept
        time, number, width = bent.shape
        grads = torch.empty(time, number, 4 * width)
        back = _rounded(_sorted(weight_hh, width), ctx.half)
        # the last gradient of the memory, then that of the step behind
        out_row = torch.zeros(number, width) if last is None else last[:, :width].clone()
        later_out = out_row.numpy()
        later_cell: Array = np.zeros((number, width), np.float32) if last is None else last[:, width:].clone().numpy()
        one, two = np.empty((2, number, width), np.float32)
        for t in range(time - 1, -1, -1):
            gate, to = rows[t], grads[t].numpy()
            i, f, o, g = (gate[:, k * width : (k + 1) * width] for k in range(4))
            to_i, to_f, to_o, to_g = (to[:, k * width : (k + 1) * width] for k in range(4))
            if given is not None:
                later_out += given[t].numpy()
            np.multiply(later_out, o, out=one)
            np.multiply(one, bent[t], out=to_o)
            one -= np.multiply(to_o, bent[t], out=two)
            later_cell += one
            to_o -= np.multiply(to_o, o, out=two)
            np.multiply(later_cell, i, out=one)
            np.multiply(one, g, out=to_i)
            np.subtract(one, np.multiply(to_i, g, out=two), out=to_g)
            to_i -= np.multiply(to_i, i, out=two)
            later_cell *= f
            np.multiply(later_cell, cells[t], out=to_f)
            to_f -= np.multiply(to_f, f, out=two)
            if resets[t]:
                to_f *= keep[t]
                later_cell *= keep[t]
            mm(grads[t], back, half=ctx.half, out=out_row)
            if resets[t]:
                later_out *= keep[t]
        flat = grads.view(time * number, -1)
        before = _before(outs, keep)
        memory = torch.from_numpy(np.concatenate([later_out, later_cell], 1)) if ctx.needs_input_grad[1] else None
        bias, flat = _sorted(_column_sums(flat), width), _rounded(flat, ctx.half)
        through = mm(flat, _sorted(weight_ih, width), half=ctx.half).view_as(x) if ctx.needs_input_grad[0] else None
        to_ih, to_hh = mm(flat.t(), x.reshape(len(flat), -1), half=ctx.half), mm(flat.t(), before, half=ctx.half)
        return through, memory, None, _sorted(to_ih, width), _sorted(to_hh, width), bias, bias, None


class _GruNode(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, memory: Tensor, first: Tensor,
        weight_ih: Tensor, weight_hh: Tensor, bias_ih: Tensor, bias_hh: Tensor, half: bool,
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        time, number, _ = x.shape
        width = weight_hh.shape[1]
        resets, keep = _resets(first)
        given = product(x, weight_ih, bias_ih, half=half)
        onto, moved = _rounded(weight_hh, half).t(), torch.empty(time, number, 3 * width)
        out_rows = x.new_empty(time + 1, number, width)
        outs, rows, new = out_rows.numpy(), given.numpy(), np.empty((number, width), np.float32)
        outs[0] = memory.numpy()
        for t in range(time):
            out_row = torch.from_numpy(outs[t] * keep[t]) if resets[t] else out_rows[t]
            mm(out_row, onto, half=half, out=moved[t])
            moved[t].add_(bias_hh)
            gate, inner = rows[t], moved[t].numpy()[:, 2 * width :]
            soft, n = gate[:, : 2 * width], gate[:, 2 * width :]
            soft += moved[t].numpy()[:, : 2 * width]
            soft *= 0.5
            np.tanh(soft, out=soft)
            soft += 1.0
            soft *= 0.5
            n += np.multiply(gate[:, :width], inner, out=new)
            np.tanh(n, out=n)
            np.subtract(out_row.numpy(), n, out=new)
            new *= gate[:, width : 2 * width]
            np.add(n, new, out=outs[t + 1])
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(x, weight_ih, weight_hh)
        ctx.kept, ctx.half = (resets, keep, rows, outs, moved.numpy()), half
        return out_rows[1:], out_rows[-1].clone()

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, given: Tensor | None, last: Tensor | None) -> tuple[Any, ...]:
        x, weight_ih, weight_hh = ctx.saved_tensors
        resets, keep, rows, outs, moved_rows = ctx.kept
        time, number, width = outs.shape[0] - 1, outs.shape[1], outs.shape[2]
        inputs, moved = torch.empty(2, time, number, 3 * width)
        before = _before(outs, keep)
        earlier = before.numpy().reshape(time, number, width)
        back, moved_back = _rounded(weight_hh, ctx.half), torch.empty(number, width)
        later: Array = np.zeros((number, width), np.float32) if last is None else last.clone().numpy()
        one, two = np.empty((2, number, width), np.float32)
        for t in range(time - 1, -1, -1):
            gate, to = rows[t], inputs[t].numpy()
            r, z, n = (gate[:, k * width : (k + 1) * width] for k in range(3))
            to_r, to_z, to_n = (to[:, k * width : (k + 1) * width] for k in range(3))
            if given is not None:
                later += given[t].numpy()
            np.multiply(later, z, out=one)
            np.subtract(later, one, out=two)
            np.multiply(np.subtract(earlier[t], n, out=to_r), one, out=to_z)
            to_z -= np.multiply(to_z, z, out=to_r)
            np.subtract(two, np.multiply(np.multiply(two, n, out=to_r), n, out=to_r), out=to_n)
            np.multiply(to_n, r, out=two)
            moved[t].numpy()[:, 2 * width :] = two
            np.multiply(two, moved_rows[t][:, 2 * width :], out=to_r)
            to_r -= np.multiply(to_r, r, out=two)
            moved[t].numpy()[:, : 2 * width] = to[:, : 2 * width]
            mm(moved[t], back, half=ctx.half, out=moved_back)
            np.add(one, moved_back.numpy(), out=later)
            if resets[t]:
                later *= keep[t]
        flat, flat_moved = inputs.view(time * number, -1), moved.view(time * number, -1)
        through = mm(flat, weight_ih, half=ctx.half).view_as(x) if ctx.needs_input_grad[0] else None
        memory = torch.from_numpy(later) if ctx.needs_input_grad[1] else None
        to_ih, to_hh = mm(flat.t(), x.reshape(len(flat), -1), half=ctx.half), mm(flat_moved.t(), before, half=ctx.half)
        return through, memory, None, to_ih, to_hh, _column_sums(flat), _column_sums(flat_moved), None


def _resets(first: Tensor) -> tuple[list[bool], Array]:
    """Whether any sequence restarts at each step, and `[T, B, 1]`: 0 where it does, else 1."""
    starts: Array = first.numpy()
    resets: list[bool] = np.any(starts, axis=1).tolist()
    return resets, (~starts).astype(np.float32)[..., None] if any(resets) else np.ones(0, np.float32)


def _before(outs: Array, keep: Array) -> Tensor:
    """`[T * B, width]`: the outputs that each step found."""
    found = outs[:-1] * keep if keep.size else outs[:-1]
    return torch.from_numpy(found.reshape(-1, found.shape[-1]))


def _sorted(gates: Tensor, width: int) -> Tensor:
    """i, f, g, o <-> i, f, o, g along the first axis."""
    return torch.cat([gates[: 2 * width], gates[3 * width :], gates[2 * width : 3 * width]])


def _halved(gates: Tensor, width: int) -> Tensor:
    """The same with half the weights for sigmoids."""
    ours = _sorted(gates, width)
    ours[: 3 * width] *= 0.5
    return ours


def _rounded(x: Tensor, half: bool) -> Tensor:
    return x.bfloat16() if half else x


def _column_sums(rows: Tensor) -> Tensor:
    return mm(rows.new_ones(1, len(rows)), rows)[0]
