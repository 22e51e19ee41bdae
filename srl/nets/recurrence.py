"""LSTM and GRU over whole windows, forward and backward, in numpy: used by the autograd node of `srl.nets.cells`.

Arrays are stored features first, `[T, features, B]`, so that every gate is one contiguous block. Each step is one product
with inputs, previous output and a constant one; products over all steps give the gradients of the inputs and of the weights.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from srl.core.tree import Array
from srl.nets.products import is_for_onednn, mm


class Space:
    """Reusable named buffers; sizes of minibatches differ by a sequence or two."""

    def __init__(self) -> None:
        self._held: dict[str, Array] = {}
        self.grown = 0
        """Views taken before this number changed refer to released memory."""

    def take(self, name: str, *shape: int) -> Array:
        """Undefined content; the same memory as the last time under this name."""
        size = int(np.prod(shape))
        held = self._held.get(name)
        if held is None or len(held) < size:
            self.grown += held is not None
            held = self._held[name] = np.empty(size, np.float32)
        return held[:size].reshape(shape)


def across(rows: Array, space: Space, name: str) -> Array:
    """`[T, k, B]` -> `[k, T * B]`."""
    time, size, number = rows.shape
    flat = space.take(name, size, time * number)
    np.copyto(flat.reshape(size, time, number), rows.transpose(1, 0, 2))
    return flat


def _rows(rows: Array) -> Array:
    """`[T, k, B]` as `[T, B, k]`, stored features first: `srl.nets.towers` multiplies it as it is."""
    return rows.transpose(1, 0, 2).copy().transpose(1, 2, 0)


_sigmoid_back: Any = torch.ops.aten.sigmoid_backward.grad_input
_tanh_back: Any = torch.ops.aten.tanh_backward.grad_input


class Pass:
    """Forward and backward pass of one cell. Each step reads its input, a one, the previous output, and another one."""

    def __init__(self, inputs: int, width: int) -> None:
        self._width, self._size = width, inputs
        self._space, self._half = Space(), False
        self._plans: dict[tuple[int, int, int], Any] = {}

    def forward(self, weights: list[Array], x: Array, memory: Array, first: Array, *, half: bool) -> tuple[Array, Array]:
        """Outputs `[T, B, width]`, stored features first, and the last memory."""
        self._weights, self._half = weights, half
        self._resize(*first.shape)
        np.copyto(self._found[:, : self._size], x.transpose(0, 2, 1))
        self._keep: Array = (~first).astype(np.float32)
        self._resets: list[bool] = np.any(first, axis=1).tolist()
        np.multiply(memory.T[: self._width], self._keep[0], out=self._found[0, self._size + 1 : -1])
        self._run(memory)
        return _rows(self._outs), self._last()

    def backward(self, given: Array | None, last: Array | None, stop: Array | None) -> tuple[Array, Array, list[Array]]:
        """Backpropagate from the gradients of both to those of inputs `[T, B, inputs]`, memory and weights."""
        time, width, number = self._outs.shape
        grads = self._space.take("to_outs", time, width, number)
        if given is None:
            grads.fill(0.0)
        else:
            np.copyto(grads, given.transpose(0, 2, 1))
        if last is not None:
            grads[-1] += last.T[:width]
        ends, keep = self._resets, self._keep
        if stop is not None:
            ends = [one or other for one, other in zip(ends, np.any(stop, axis=1).tolist(), strict=True)]
            keep = keep * ~stop
        to_memory = self._run_back(grads, last, ends, keep)
        to, found = across(self._to, self._space, "to_across"), across(self._found, self._space, "found_across")
        return self._input_grad(to).reshape(self._size, time, number).transpose(1, 2, 0), to_memory, self._weight_grads(to, found)

    def _run(self, memory: Array) -> None:
        """Fill `_outs`."""
        raise NotImplementedError

    def _last(self) -> Array:
        """The recurrent state after the last step."""
        raise NotImplementedError

    def _run_back(self, grads: Array, last: Array | None, ends: list[bool], keep: Array) -> Array:
        """Fill `_to` and `_back`; the gradient of the memory at the start. Where `keep` is 0 it ends."""
        raise NotImplementedError

    def _input_grad(self, to: Array) -> Array:
        """`[inputs, T * B]`."""
        raise NotImplementedError

    def _weight_grads(self, to: Array, found: Array) -> list[Array]:
        raise NotImplementedError

    def _views(
        self, time: int, number: int, found: Array, outs: Array, to: Array, back: Array
    ) -> tuple[tuple[Array, ...], list[Any]]:
        """Arrays for results of the moment, and what each step works on."""
        raise NotImplementedError

    def _resize(self, time: int, number: int) -> None:
        key = (time, number, self._space.grown)
        if key not in self._plans:
            before, plan = self._space.grown, self._plan(time, number)
            if self._space.grown != before or len(self._plans) > 3:
                self._plans.clear()
            key = (time, number, self._space.grown)
            self._plans[key] = plan
        self._outs: Array
        self._found, self._outs, self._to, self._back, self._scratch, self._steps = self._plans[key]
        self._found[:, self._size] = 1.0
        self._found[:, -1] = 1.0

    def _plan(self, time: int, number: int) -> Any:
        take, width = self._space.take, self._width
        found = take("found", time, self._size + width + 2, number)
        outs = take("outs", time, width, number)
        to, back = take("to", time, 4 * width, number), take("back", time, width, number)
        return found, outs, to, back, *self._views(time, number, found, outs, to, back)

    def _ready(self, weight: Array) -> Tensor:
        """A factor for `_multiply`: rounded to bfloat16 with `half`."""
        ready = torch.from_numpy(weight)
        return ready.bfloat16() if self._half else ready

    def _multiply(self, weight: Tensor, rows: Array, out: Array) -> None:
        if self._half or is_for_onednn(weight, weight.numel() * rows.shape[1]):
            mm(weight, torch.from_numpy(rows), half=self._half, out=torch.from_numpy(out))
        else:
            np.matmul(weight.numpy(), rows, out=out)

    def _onto_inputs(self, weight: Array, to: Array) -> Array:
        """`weight.T @ to`: the gradient of the inputs of all steps."""
        out = np.empty((weight.shape[1], to.shape[1]), np.float32)
        self._multiply(self._ready(weight).T, to, out)
        return out

    def _over_steps(self, to: Array, found: Array) -> Array:
        """`to @ found.T`: a gradient of weights. A constant one in `found` would make the product half as fast."""
        out = np.empty((len(to), len(found)), np.float32)
        self._multiply(self._ready(to), found.T, out)
        return out

    def _pass_on(self, t: int, out: Array) -> None:
        """Pass the output of a step to the next one."""
        if t + 1 < len(self._steps):
            there = self._found[t + 1, self._size + 1 : -1]
            if self._resets[t + 1]:
                np.multiply(out, self._keep[t + 1], out=there)
            else:
                np.copyto(there, out)


class _LstmStep(NamedTuple):
    found: Array
    gates: Array
    """i, f, o, and g, which goes beside the cell; then their gradients."""
    soft: Tensor
    raw: Array
    i_f: Array
    i: Array
    f: Array
    o: Array
    g: Array
    g_cell: Array
    """g and the cell before."""
    g_tensor: Tensor
    cell: Array
    bent: Array
    """tanh of the cell."""
    bent_tensor: Tensor
    out: Array
    to_g: Tensor
    back: Array


class LstmPass(Pass):
    """Gates are stored in the order i, f, o, g: the sigmoids together."""

    def _views(
        self, time: int, number: int, found: Array, outs: Array, to: Array, back: Array
    ) -> tuple[tuple[Array, ...], list[Any]]:
        take, width = self._space.take, self._width
        gates, g_cell = to, take("g_cell", time + 1, 2, width, number)
        bent, tensor = take("bent", time, width, number), torch.from_numpy
        scratch = take("soft_back", 3, width, number), take("one", width, number), take("later", width, number)
        pair = (2, width, number)
        steps = [
            _LstmStep(
                found=found[t, :-1], gates=gates[t], soft=tensor(gates[t, : 3 * width]), raw=gates[t, 3 * width :],
                i_f=gates[t, : 2 * width].reshape(pair), i=gates[t, :width], f=gates[t, width : 2 * width],
                o=gates[t, 2 * width : 3 * width], g=g_cell[t, 0], g_cell=g_cell[t], g_tensor=tensor(g_cell[t, 0]),
                cell=g_cell[t + 1, 1], bent=bent[t], bent_tensor=tensor(bent[t]), out=outs[t],
                to_g=tensor(to[t, 3 * width :]), back=back[t],
            )
            for t in range(time)
        ]  # fmt: skip
        return scratch, steps

    def _run(self, memory: Array) -> None:
        width, size = self._width, self._size
        joined = self._space.take("joined", 4 * width, size + 1 + width)
        weight_ih, weight_hh, bias_ih, bias_hh = self._weights
        for theirs, ours in self._orders():
            joined[ours, :size], joined[ours, size + 1 :] = weight_ih[theirs], weight_hh[theirs]
            np.add(bias_ih[theirs], bias_hh[theirs], out=joined[ours, size])
        self._joined, ready = joined, self._ready(joined)
        product = self._scratch[0][:2]
        np.multiply(memory.T[width:], self._keep[0], out=self._steps[0].g_cell[1])
        kept, new = product
        for t, step in enumerate(self._steps):
            self._multiply(ready, step.found, step.gates)
            torch.sigmoid(step.soft, out=step.soft)
            np.tanh(step.raw, out=step.g)
            np.multiply(step.i_f, step.g_cell, out=product)
            np.add(kept, new, out=step.cell)
            np.tanh(step.cell, out=step.bent)
            np.multiply(step.o, step.bent, out=step.out)
            self._pass_on(t, step.out)
            if t + 1 < len(self._steps) and self._resets[t + 1]:
                np.multiply(step.cell, self._keep[t + 1], out=step.cell)

    def _last(self) -> Array:
        last: Array = np.concatenate([self._outs[-1], self._steps[-1].cell])
        return last.T.copy()

    def _run_back(self, grads: Array, last: Array | None, ends: list[bool], keep: Array) -> Array:
        size, (to_soft, one, later) = self._size, self._scratch
        to_i_f, to_o, to_soft_tensor = to_soft[:2], to_soft[2], torch.from_numpy(to_soft.reshape(-1, to_soft.shape[-1]))
        one_tensor = torch.from_numpy(one)
        through_h = self._ready(self._joined[:, size + 1 :].copy()).T
        later[...] = 0.0 if last is None else last.T[self._width :]
        for t in range(len(self._steps) - 1, -1, -1):
            step, grad = self._steps[t], grads[t]
            if t + 1 < len(self._steps):
                np.add(grad, self._back[t + 1], out=grad)
            np.multiply(grad, step.bent, out=to_o)
            np.multiply(grad, step.o, out=one)
            _tanh_back(one_tensor, step.bent_tensor, grad_input=one_tensor)
            np.add(later, one, out=later)
            np.multiply(step.g_cell, later, out=to_i_f)
            np.multiply(later, step.i, out=one)
            _tanh_back(one_tensor, step.g_tensor, grad_input=step.to_g)
            np.multiply(later, step.f, out=later)
            _sigmoid_back(to_soft_tensor, step.soft, grad_input=step.soft)  # from here on the gates are gone
            self._multiply(through_h, step.gates, step.back)
            if ends[t]:
                later *= keep[t]
                step.back[...] *= keep[t]
        to_memory: Array = np.concatenate([self._back[0], later])
        return to_memory.T.copy()

    def _input_grad(self, to: Array) -> Array:
        return self._onto_inputs(self._joined[:, : self._size], to)

    def _weight_grads(self, to: Array, found: Array) -> list[Array]:
        size = self._size
        to_ih, to_hh, sums = self._over_steps(to, found[:size]), self._over_steps(to, found[size + 1 : -1]), _row_sums(to)
        grads = [np.empty_like(weight) for weight in self._weights]
        for theirs, ours in self._orders():
            for grad, one in zip(grads, (to_ih, to_hh, sums, sums), strict=True):
                grad[theirs] = one[ours]
        return grads

    def _orders(self) -> list[tuple[slice, slice]]:
        """Gates i, f, g, o as the weights have them, and i, f, o, g."""
        w = self._width
        return [
            (slice(0, 2 * w), slice(0, 2 * w)),
            (slice(2 * w, 3 * w), slice(3 * w, 4 * w)),
            (slice(3 * w, 4 * w), slice(2 * w, 3 * w)),
        ]


class _GruStep(NamedTuple):
    found: Array
    given: Array
    """The inputs and a one."""
    recalled: Array
    """The output before, and a one."""
    before: Array
    soft: Array
    """r and z."""
    soft_tensor: Tensor
    r: Array
    z: Array
    n: Array
    n_tensor: Tensor
    inner: Array
    """The part of n that r lets through."""
    out: Array
    to_hh: Array
    """r, z, inner"""
    to_n: Array
    to_n_tensor: Tensor
    to_r: Array
    to_z: Array
    to_soft: Tensor
    to_inner: Array
    back: Array


class GruPass(Pass):
    """Gradients are stored in the order n, r, z, inner: those of each product are one block."""

    def _views(
        self, time: int, number: int, found: Array, outs: Array, to: Array, back: Array
    ) -> tuple[tuple[Array, ...], list[Any]]:
        width, size, tensor = self._width, self._size, torch.from_numpy
        gates = self._space.take("gates", time, 4 * width, number)
        steps = [
            _GruStep(
                found=found[t], given=found[t, : size + 1], recalled=found[t, size + 1 :], before=found[t, size + 1 : -1],
                soft=gates[t, : 2 * width], soft_tensor=tensor(gates[t, : 2 * width]), r=gates[t, :width],
                z=gates[t, width : 2 * width], n=gates[t, 2 * width : 3 * width],
                n_tensor=tensor(gates[t, 2 * width : 3 * width]),
                inner=gates[t, 3 * width :], out=outs[t], to_hh=to[t, width:], to_n=to[t, :width],
                to_n_tensor=tensor(to[t, :width]), to_r=to[t, width : 2 * width], to_z=to[t, 2 * width : 3 * width],
                to_soft=tensor(to[t, width : 3 * width]), to_inner=to[t, 3 * width :],
                back=back[t],
            )
            for t in range(time)
        ]  # fmt: skip
        return (self._space.take("one", width, number),), steps

    def _run(self, memory: Array) -> None:
        width, size, (one,) = self._width, self._size, self._scratch
        weight_ih, weight_hh, bias_ih, bias_hh = self._weights
        soft = self._space.take("soft", 2 * width, size + width + 2)
        own, moved = self._space.take("own", width, size + 1), self._space.take("moved", width, width + 1)
        soft[:, :size], soft[:, size] = weight_ih[: 2 * width], bias_ih[: 2 * width]
        soft[:, size + 1 : -1], soft[:, -1] = weight_hh[: 2 * width], bias_hh[: 2 * width]
        own[:, :size], own[:, size] = weight_ih[2 * width :], bias_ih[2 * width :]
        moved[:, :width], moved[:, width] = weight_hh[2 * width :], bias_hh[2 * width :]
        to_soft, to_n, to_inner = self._ready(soft), self._ready(own), self._ready(moved)
        for t, step in enumerate(self._steps):
            self._multiply(to_soft, step.found, step.soft)
            self._multiply(to_n, step.given, step.n)
            self._multiply(to_inner, step.recalled, step.inner)
            torch.sigmoid(step.soft_tensor, out=step.soft_tensor)
            np.multiply(step.r, step.inner, out=one)
            np.add(step.n, one, out=step.n)
            np.tanh(step.n, out=step.n)
            np.subtract(step.before, step.n, out=one)
            np.multiply(one, step.z, out=one)
            np.add(step.n, one, out=step.out)
            self._pass_on(t, step.out)

    def _last(self) -> Array:
        last: Array = self._outs[-1].T.copy()
        return last

    def _run_back(self, grads: Array, last: Array | None, ends: list[bool], keep: Array) -> Array:
        (one,) = self._scratch
        through_h = self._ready(self._weights[1]).T
        for t in range(len(self._steps) - 1, -1, -1):
            step, grad = self._steps[t], grads[t]
            if t + 1 < len(self._steps):
                np.add(grad, self._back[t + 1], out=grad)
            np.subtract(step.before, step.n, out=one)
            np.multiply(one, grad, out=step.to_z)
            np.multiply(grad, step.z, out=one)
            np.subtract(grad, one, out=step.to_n)
            _tanh_back(step.to_n_tensor, step.n_tensor, grad_input=step.to_n_tensor)
            np.multiply(step.to_n, step.inner, out=step.to_r)
            np.multiply(step.to_n, step.r, out=step.to_inner)
            _sigmoid_back(step.to_soft, step.soft_tensor, grad_input=step.to_soft)
            self._multiply(through_h, step.to_hh, step.back)
            np.add(step.back, one, out=step.back)
            if ends[t]:
                step.back[...] *= keep[t]
        to_memory: Array = self._back[0].T.copy()
        return to_memory

    def _input_grad(self, to: Array) -> Array:
        width, weight_ih = self._width, self._weights[0]
        turned = np.concatenate([weight_ih[2 * width :], weight_ih[: 2 * width]])  # n, r, z
        return self._onto_inputs(turned, to[: 3 * width])

    def _weight_grads(self, to: Array, found: Array) -> list[Array]:
        width, size = self._width, self._size
        inputs = to[: 3 * width]  # n, r, z
        to_ih, sums = self._over_steps(inputs, found[:size]), _row_sums(inputs)
        theirs = np.concatenate([to_ih[width:], to_ih[:width]]), np.concatenate([sums[width:], sums[:width]])
        return [theirs[0], self._over_steps(to[width:], found[size + 1 : -1]), theirs[1], _row_sums(to[width:])]


def _row_sums(rows: Array) -> Array:
    sums: Array = np.matmul(rows, np.ones(rows.shape[1], np.float32))
    return sums
