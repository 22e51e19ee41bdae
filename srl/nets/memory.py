"""LSTM and GRU over `[T, B]` rows with resets inside them. On CPU one autograd node, looping over the recurrence alone."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from srl.core.spec import Leaf
from srl.nets.gates import gru_node, lstm_node
from srl.nets.products import product


class Cell(nn.Module):
    """What both have in common: weights named and ordered as in `nn.LSTM` and `nn.GRU`, orthogonal at the start."""

    GATES = 0
    PARTS = 0
    """How many vectors of `width` a row remembers."""

    def __init__(self, inputs: int, width: int, *, half: bool = False) -> None:
        super().__init__()
        self.width, self.bf16 = width, half
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
        if stop is None or not torch.is_grad_enabled():
            return self._rows(x, memory, first)
        outs, low = [], 0
        for high in [*torch.nonzero(stop[1:].any(1))[:, 0].add(1).tolist(), len(x)]:
            memory = torch.where(stop[low].unsqueeze(-1), memory.detach(), memory)
            y, memory = self._rows(x[low:high], memory, first[low:high])
            outs.append(y)
            low = high
        return torch.cat(outs), memory

    def _rows(self, x: Tensor, memory: Tensor, first: Tensor) -> tuple[Tensor, Tensor]:
        """Without stops."""
        acting = len(x) == 1 and not torch.is_grad_enabled() and not self.bf16  # then preparing the weights is not worth it
        if x.device.type == "cpu" and x.dtype == torch.float32 and not acting and not torch.compiler.is_compiling():
            return self._node(x, memory, first)
        outs = []
        for row, restart in zip(x, first, strict=True):
            memory = self._step(row, memory.masked_fill(restart.unsqueeze(-1), 0.0))
            outs.append(memory[:, : self.width])
        return torch.stack(outs), memory

    def _node(self, x: Tensor, memory: Tensor, first: Tensor) -> tuple[Tensor, Tensor]:
        """In numpy."""
        raise NotImplementedError

    def _step(self, x: Tensor, memory: Tensor) -> Tensor:
        """One row each, in torch: the memory after it."""
        raise NotImplementedError

    def _weights(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        return self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh


class Lstm(Cell):
    """Hochreiter and Schmidhuber 1997; gates in the order i, f, g, o."""

    GATES = 4
    PARTS = 2

    def _node(self, x: Tensor, memory: Tensor, first: Tensor) -> tuple[Tensor, Tensor]:
        return lstm_node(x, memory, first, *self._weights(), self.bf16)

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

    def _node(self, x: Tensor, memory: Tensor, first: Tensor) -> tuple[Tensor, Tensor]:
        return gru_node(x, memory, first, *self._weights(), self.bf16)

    def _step(self, x: Tensor, memory: Tensor) -> Tensor:
        weight_ih, weight_hh, bias_ih, bias_hh = self._weights()
        given = torch.split(product(x, weight_ih, bias_ih), self.width, -1)
        moved = torch.split(product(memory, weight_hh, bias_hh), self.width, -1)
        r, z = (given[0] + moved[0]).sigmoid(), (given[1] + moved[1]).sigmoid()
        n = torch.tanh(given[2] + r * moved[2])
        return torch.lerp(n, memory, z)


class Forgetful(Cell):
    """No memory: a layer of the same width in the place of a cell, to see what a memory is worth."""

    GATES = 1
    PARTS = 0

    def __init__(self, inputs: int, width: int, *, half: bool = False) -> None:
        super().__init__(inputs, width, half=half)
        del self.weight_hh, self.bias_hh

    def forward(self, x: Tensor, memory: Any, first: Tensor, stop: Tensor | None = None) -> tuple[Tensor, Any]:
        return torch.relu(product(x, self.weight_ih, self.bias_ih, half=self.bf16)), memory


CELLS: dict[str, type[Cell]] = {"lstm": Lstm, "gru": Gru, "none": Forgetful}
