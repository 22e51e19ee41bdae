"""LSTM and GRU over `[T, B]` rows with resets inside them. On CPU one autograd node, looping over the recurrence alone."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from srl.core.spec import Leaf
from srl.core.tree import Array
from srl.nets.products import product, runs_in_numpy
from srl.nets.recurrence import GruPass, LstmPass, Pass


class Cell(nn.Module):
    """What both have in common: weights named and ordered as in `nn.LSTM` and `nn.GRU`, orthogonal at the start."""

    GATES = 0
    PARTS = 0
    """How many vectors of `width` a row remembers."""
    PASS: ClassVar[type[Pass]]
    """The recurrence on CPU."""

    def __init__(self, inputs: int, width: int, *, half: bool = False) -> None:
        super().__init__()
        self.width, self.bf16 = width, half
        self._pool: Pool | None = None
        self.weight_ih = nn.Parameter(torch.empty(self.GATES * width, inputs))
        self.weight_hh = nn.Parameter(torch.empty(self.GATES * width, width))
        self.bias_ih = nn.Parameter(torch.zeros(self.GATES * width))
        self.bias_hh = nn.Parameter(torch.zeros(self.GATES * width))
        for weight in (self.weight_ih, self.weight_hh):
            for gate in torch.split(weight.detach(), width):
                nn.init.orthogonal_(gate)

    @classmethod
    def leaf_of(cls, width: int) -> Leaf:
        """The memory of one row: the output first."""
        return Leaf((cls.PARTS * width,), "float32")

    def forward(self, x: Tensor, memory: Tensor, first: Tensor, stop: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Rows `[T, B, inputs]`, memory `[B, PARTS * width]`, resets `[T, B]` -> outputs `[T, B, width]`, memory.

        Where `stop` `[T, B]`, no gradient flows from the memory before the row to the rows that it comes from.
        """
        acting = len(x) == 1 and not torch.is_grad_enabled() and not self.bf16  # then preparing the weights is not worth it
        if runs_in_numpy(x) and not acting:
            if self._pool is None or self._pool.half != self.bf16:
                self._pool = Pool(self.PASS, x.shape[2], self.width, half=self.bf16)
            return run_cell(self._pool, x, memory, first, stop, self._weights())
        outs = []
        for t, restart in enumerate(first):
            if stop is not None:
                memory = torch.where(stop[t].unsqueeze(-1), memory.detach(), memory)
            memory = self._step(x[t], memory.masked_fill(restart.unsqueeze(-1), 0.0))
            outs.append(memory[:, : self.width])
        return torch.stack(outs), memory

    def _step(self, x: Tensor, memory: Tensor) -> Tensor:
        """One row each, in torch: the memory after it."""
        raise NotImplementedError

    def _weights(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        return self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh


class Lstm(Cell):
    """Hochreiter and Schmidhuber 1997; gates in the order i, f, g, o."""

    GATES = 4
    PARTS = 2
    PASS = LstmPass

    def _step(self, x: Tensor, memory: Tensor) -> Tensor:
        out, cell = torch.split(memory, self.width, -1)
        weight_ih, weight_hh, bias_ih, bias_hh = self._weights()
        moved = product(x, weight_ih, bias_ih) + product(out, weight_hh, bias_hh)
        i, f, g, o = torch.split(moved, self.width, -1)
        cell = f.sigmoid() * cell + i.sigmoid() * g.tanh()
        return torch.cat([o.sigmoid() * cell.tanh(), cell], -1)


class Gru(Cell):
    """Cho et al. 2014, as `nn.GRU` has it; gates in the order r, z, n."""

    GATES = 3
    PARTS = 1
    PASS = GruPass

    def _step(self, x: Tensor, memory: Tensor) -> Tensor:
        weight_ih, weight_hh, bias_ih, bias_hh = self._weights()
        given = torch.split(product(x, weight_ih, bias_ih), self.width, -1)
        moved = torch.split(product(memory, weight_hh, bias_hh), self.width, -1)
        r, z = (given[0] + moved[0]).sigmoid(), (given[1] + moved[1]).sigmoid()
        n = torch.tanh(given[2] + r * moved[2])
        return torch.lerp(n, memory, z)


class Forgetful(Cell):
    """No recurrence: a layer of the same width in place of a cell, as an ablation."""

    GATES = 1
    PARTS = 0

    def __init__(self, inputs: int, width: int, *, half: bool = False) -> None:
        super().__init__(inputs, width, half=half)
        del self.weight_hh, self.bias_hh

    def forward(self, x: Tensor, memory: Any, first: Tensor, stop: Tensor | None = None) -> tuple[Tensor, Any]:
        return torch.relu(product(x, self.weight_ih, self.bias_ih, half=self.bf16)), memory


CELLS: dict[str, type[Cell]] = {"lstm": Lstm, "gru": Gru, "none": Forgetful}


def run_cell(
    pool: Pool,
    x: Tensor,  # [T, B, inputs]
    memory: Tensor,  # [B, parts * width]
    first: Tensor,  # [T, B] the memory before this row is forgotten
    stop: Tensor | None,  # [T, B] no gradient flows from the memory before this row to the rows that it comes from
    weights: tuple[Tensor, Tensor, Tensor, Tensor],  # weight_ih, weight_hh, bias_ih, bias_hh, as torch's own cells have them
) -> tuple[Tensor, Tensor]:  # [T, B, width], [B, parts * width]
    """Outputs and the last memory."""
    y, last = _Node.apply(x, memory, first, stop, pool, *weights)  # type: ignore[no-untyped-call]
    return y, last


class Pool:
    """A pool of idle passes of one cell, so that their buffers are reused."""

    def __init__(self, kind: type[Pass], inputs: int, width: int, *, half: bool) -> None:
        self._made = (kind, inputs, width)
        self.half = half
        """Products in bfloat16."""
        self._idle: list[Pass] = []

    def take(self) -> Pass:
        """A pass that is back in the pool when nothing refers to it."""
        kind, inputs, width = self._made
        return self._idle.pop() if self._idle else kind(inputs, width)

    def give(self, one: Pass) -> None:
        """Take it back."""
        self._idle.append(one)

    def __deepcopy__(self, memo: Any) -> Pool:
        kind, inputs, width = self._made
        return Pool(kind, inputs, width, half=self.half)

    def __reduce__(self) -> Any:
        return _new_pool, (*self._made, self.half)


def _new_pool(kind: type[Pass], inputs: int, width: int, half: bool) -> Pool:
    return Pool(kind, inputs, width, half=half)


class _Loan:
    """Holds a pass as long as the graph lives that may go back through it."""

    def __init__(self, pool: Pool) -> None:
        self.held, self._pool = pool.take(), pool
        self.spent = False

    def __del__(self) -> None:
        self._pool.give(self.held)


class _Node(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, memory: Tensor, first: Tensor, stop: Tensor | None, pool: Pool, *weights: Tensor
    ) -> tuple[Tensor, Tensor]:
        ctx.loan = _Loan(pool)
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(x, memory, first, stop, *weights)
        ctx.half = pool.half
        outs, last = ctx.loan.held.forward(_arrays(weights), x.numpy(), memory.numpy(), first.numpy(), half=pool.half)
        return torch.from_numpy(outs), torch.from_numpy(last)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, given: Tensor | None, last: Tensor | None) -> tuple[Any, ...]:
        x, memory, first, stop, *weights = ctx.saved_tensors
        one: Pass = ctx.loan.held
        if ctx.loan.spent:  # the way back overwrites what the way there has kept
            one.forward(_arrays(weights), x.numpy(), memory.numpy(), first.numpy(), half=ctx.half)
        ctx.loan.spent = True
        to_x, to_memory, grads = one.backward(*(None if leaf is None else leaf.numpy() for leaf in (given, last, stop)))
        back = torch.from_numpy(to_x) if ctx.needs_input_grad[0] else None
        earlier = torch.from_numpy(to_memory) if ctx.needs_input_grad[1] else None
        return (back, earlier, None, None, None, *(torch.from_numpy(grad) for grad in grads))


def _arrays(weights: Any) -> list[Array]:
    return [one.numpy() for one in weights]
