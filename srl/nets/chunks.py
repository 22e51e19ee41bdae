"""Policies with memory over vectors without autograd: a `HandPass` over chunks, features before sequences."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from srl.api.neural import PolicyLoss, Recall, ValueLoss
from srl.core.tree import Array
from srl.nets.memory import Cell
from srl.nets.mlp import Mlp
from srl.nets.numpy_scores import make_score
from srl.nets.products import mm
from srl.nets.recurrence import Space, across, make_recurrence
from srl.nets.towers import activate_, unactivate_


class ChunkPass:
    """The passes of one `Recurrent`. Gradients are written, not added, into `.grad`."""

    def __init__(self, policy: Any, rows: int) -> None:
        self.policy = policy
        self.rows = rows
        space = Space()  # of both towers: one is done before the other begins
        heads = [policy.logits, policy.value]
        sets = {"actor": heads} if policy.shared else {"actor": heads[:1], "critic": heads[1:]}
        self._size = policy.encoder.size
        self._towers = {
            name: _Tower(policy.towers[name], policy.cells[name], own, self._size, space) for name, own in sets.items()
        }
        self._score = make_score(policy.spec.action)
        none = np.zeros(0, np.float32)
        self._log_std = none if policy.log_std is None else policy.log_std.detach().numpy()
        self._log_std_grad = none if policy.log_std is None else policy.log_std.grad.numpy()

    def features(self, obs: Any, state: Any = None) -> Tensor:
        """Inputs and a constant one, then what the critic alone reads."""
        with torch.no_grad():
            inputs = self.policy.encoder(obs)
            parts = [inputs, inputs.new_ones((*inputs.shape[:-1], 1))]
            if self.policy.state_encoder is not None:
                parts.append(self.policy.state_encoder(state))
            return torch.cat(parts, -1)

    def run(
        self, x: Array, action: Any, mask: Any, policy_loss: PolicyLoss, value_loss: ValueLoss, recall: Recall | None = None
    ) -> None:
        assert recall is not None
        if self.policy.shared:
            heads = self._towers["actor"].forward(x, recall.memory["actor"], recall.first)
            grads = np.empty_like(heads)
            grads[-1] = value_loss(heads[-1])
            self._act(heads[:-1], action, mask, policy_loss, grads[:-1])
            self._towers["actor"].backward(x, grads, recall.stop)
            return
        (value,) = self._towers["critic"].forward(x, recall.memory["critic"], recall.first)
        self._towers["critic"].backward(x, value_loss(value)[None], recall.stop)
        x = x[:, : self._size + 1]
        logits = self._towers["actor"].forward(x, recall.memory["actor"], recall.first)
        grads = np.empty_like(logits)
        self._act(logits, action, mask, policy_loss, grads)
        self._towers["actor"].backward(x, grads, recall.stop)

    def _act(self, logits: Array, action: Any, mask: Any, policy_loss: PolicyLoss, grad: Array) -> None:
        """Fill the gradient of the logits."""
        log_prob_grad, entropy_grad = policy_loss(*self._score.forward(logits, action, mask, self._log_std))
        self._score.backward(log_prob_grad, entropy_grad, grad, self._log_std_grad)


class _Tower:
    """Hidden layers, a cell, heads. Every layer finds its inputs with a constant one behind them; the first at column `one`."""

    def __init__(self, body: Mlp, cell: Cell, heads: list[nn.Linear], one: int, space: Space) -> None:
        self._kind, self._one, self._space = body.activation, one, space
        layers: list[Any] = list(body.layers)
        self._layers = [(layer.weight.detach().numpy(), layer.bias.detach().numpy()) for layer in layers]
        self._layer_grads = [(layer.weight.grad.numpy(), layer.bias.grad.numpy()) for layer in layers]
        self._cell = make_recurrence(cell, space)
        self._heads = [(head.weight.detach().numpy(), head.bias.detach().numpy()) for head in heads]
        self._head_grads: list[Any] = [(_grad(head.weight), _grad(head.bias)) for head in heads]

    def forward(self, x: Array, memory: Array, first: Array) -> Array:
        """Rows `[T * B, inputs and a one]` -> heads `[k, T * B]`."""
        time, number = first.shape
        self._cell.resize(time, number)
        below = x.reshape(time, number, -1).transpose(0, 2, 1)
        one = self._one
        self._values = []
        for depth, (weight, bias) in enumerate(self._layers):
            if depth == len(self._layers) - 1:
                values = self._cell.inputs
            else:
                values = self._space.take(f"layer {depth}", time, len(bias) + 1, number)
                values[:, -1] = 1.0
            np.matmul(np.concatenate([weight[:, :one], bias[:, None], weight[:, one:]], 1), below, out=values[:, :-1])
            activate_(torch.from_numpy(values[:, :-1]), self._kind)
            self._values.append(values)
            below, one = values, len(bias)
        if not self._layers:
            self._cell.inputs[:, :one], self._cell.inputs[:, one:-1] = below[:, :one], below[:, one + 1 :]
        self._outs = self._cell.forward(memory, first)
        weight = np.concatenate([weight for weight, _ in self._heads])
        heads = np.empty((len(weight), time, number), np.float32)
        np.matmul(weight, self._outs, out=heads.transpose(1, 0, 2))
        flat = heads.reshape(len(weight), -1)
        flat += np.concatenate([bias for _, bias in self._heads])[:, None]
        return flat

    def backward(self, x: Array, given: Array, stop: Array | None) -> None:
        """From the gradients of the heads to those of all parameters."""
        time, width, number = self._outs.shape
        self._write_heads(given)
        weight = np.concatenate([weight for weight, _ in self._heads])
        grad = self._space.take("to_outs", time, width, number)
        np.matmul(weight.T, given.reshape(-1, time, number).transpose(1, 0, 2), out=grad)
        grad = self._cell.backward(grad, stop)
        for depth in range(len(self._layers) - 1, -1, -1):
            unactivate_(torch.from_numpy(grad), torch.from_numpy(self._values[depth][:, :-1]), self._kind)
            to = across(grad, self._space, "to_across")
            found = across(self._values[depth - 1], self._space, "found_across").T if depth else x
            both = mm(torch.from_numpy(to), torch.from_numpy(found)).numpy()
            weight_grad, bias_grad = self._layer_grads[depth]
            weight = self._layers[depth][0]
            one = weight.shape[1] if depth else self._one
            weight_grad[:, :one], bias_grad[...], weight_grad[:, one:] = both[:, :one], both[:, one], both[:, one + 1 :]
            if depth:
                above, grad = grad, self._space.take(f"to layer {depth}", time, weight.shape[1], number)
                np.matmul(weight.T, above, out=grad)

    def _write_heads(self, given: Array) -> None:
        flat = across(self._outs, self._space, "found_across")
        low = 0
        for weight_grad, bias_grad in self._head_grads:
            own = given[low : low + len(bias_grad)]
            np.matmul(own, flat.T, out=weight_grad)
            np.sum(own, axis=1, out=bias_grad)
            low += len(bias_grad)


def _grad(parameter: Tensor) -> Array:
    assert parameter.grad is not None
    return parameter.grad.numpy()
