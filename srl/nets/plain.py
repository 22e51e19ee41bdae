"""Plain actor-critics without autograd: a `HandPass`, in memory that is used again at every pass."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from srl.api.neural import PolicyLoss, Recall, ValueLoss
from srl.core.tree import Array
from srl.nets.mlp import Mlp
from srl.nets.numpy_scores import make_score
from srl.nets.products import mm
from srl.nets.towers import activate_, unactivate_


class PlainPass:
    """The passes of one `ActorCritic` over vectors. Gradients are written, not added, into `.grad`."""

    def __init__(self, policy: Any, rows: int) -> None:
        self.policy = policy
        self.rows = rows
        memory = _Memory(rows, [len(layer.bias) for layer in policy.actor.layers])
        actor_heads = [policy.logits] if policy.critic is not None else [policy.logits, policy.value]
        self._actor = _Tower(policy.actor, actor_heads, memory)
        self._critic = _Tower(policy.critic, [policy.value], memory) if policy.critic is not None else None
        self._score = make_score(policy.spec.action)
        none = np.zeros(0, np.float32)
        self._log_std = none if policy.log_std is None else policy.log_std.detach().numpy()
        self._log_std_grad = none if policy.log_std is None else _grad(policy.log_std)

    def features(self, obs: Any, state: Any = None) -> Tensor:
        """What `forward` takes, of whole batches: inputs and a constant one. Weights do not enter it."""
        with torch.no_grad():
            inputs = self.policy.encode(obs)
            return torch.cat([inputs, inputs.new_ones((*inputs.shape[:-1], 1))], -1)

    def run(
        self, x: Array, action: Any, mask: Any, policy_loss: PolicyLoss, value_loss: ValueLoss, recall: Recall | None = None
    ) -> None:
        """One tower after the other, where there are two: what a tower needs stays in the cache."""
        if self._critic is not None:
            (value,) = self._critic.forward(x)
            self._critic.backward(x, [value_loss(value[0])[None]])
            (logits,) = self._actor.forward(x)
            self._actor.backward(x, [self._act(logits, action, mask, policy_loss)])
        else:
            logits, value = self._actor.forward(x)
            value_grad = value_loss(value[0])[None]
            self._actor.backward(x, [self._act(logits, action, mask, policy_loss), value_grad])

    def _act(self, logits: Array, action: Any, mask: Any, policy_loss: PolicyLoss) -> Array:
        """The gradient of the logits."""
        log_prob_grad, entropy_grad = policy_loss(*self._score.forward(logits, action, mask, self._log_std))
        grad = np.empty_like(logits)
        self._score.backward(log_prob_grad, entropy_grad, grad, self._log_std_grad)
        return grad


class _Memory:
    """Activations of one tower, and one more of the last size; those above are overwritten by gradients on the way back."""

    def __init__(self, rows: int, widths: list[int]) -> None:
        self.values = [torch.empty((rows, width)) for width in widths]
        self.last = torch.empty((rows, widths[-1]))
        # the gradient of a layer goes where the values of the one above stood, if they are as wide
        self.grads = [
            self.values[i + 1] if widths[i] == widths[i + 1] else torch.empty((rows, widths[i])) for i in range(len(widths) - 1)
        ]


class _Tower:
    """Hidden layers and heads. The first layer takes its bias from the constant input."""

    def __init__(self, body: Mlp, heads: list[nn.Linear], memory: _Memory) -> None:
        self._kind = body.activation
        layers: list[Any] = list(body.layers)
        self._layers = [(layer.weight.detach(), layer.bias.detach()) for layer in layers]
        self._layer_grads = [(layer.weight.grad.numpy(), layer.bias.grad.numpy()) for layer in layers]
        self._heads = [(head.weight.detach().numpy(), head.bias.detach().numpy()) for head in heads]
        self._head_grads = [(_grad(head.weight), _grad(head.bias)) for head in heads]
        widths = [len(bias) for _, bias in self._layers]
        self._values = memory.values
        self._grads = [*memory.grads, memory.last]
        self._first = np.empty((self._layers[0][0].shape[1] + 1, widths[0]), np.float32)
        self._ones = np.ones(len(memory.last), np.float32)

    def forward(self, x: Array) -> list[Array]:
        """Heads `[k, M]`."""
        number = len(x)
        weight, bias = self._layers[0]
        self._first[:-1], self._first[-1] = weight.numpy().T, bias.numpy()
        below = self._values[0][:number]
        np.matmul(x, self._first, out=below.numpy())
        activate_(below, self._kind)
        for (weight, bias), values in zip(self._layers[1:], self._values[1:], strict=True):
            below = mm(below, weight.t(), out=values[:number]).add_(bias)
            activate_(below, self._kind)
        outs = []
        for head, offset in self._heads:
            out = np.ascontiguousarray((below.numpy() @ head.T).T)
            out += offset[:, None]
            outs.append(out)
        return outs

    def backward(self, x: Array, given: list[Array]) -> None:
        """From the gradients of the heads to those of all parameters."""
        number = len(x)
        top, grad = self._values[-1][:number], self._grads[-1][:number]
        for i, out in enumerate(given):
            weight_grad, bias_grad = self._head_grads[i]
            np.matmul(out, top.numpy(), out=weight_grad)
            np.sum(out, axis=1, out=bias_grad)
            self._through(out, self._heads[i][0], grad.numpy(), add=i > 0)
        for depth in range(len(self._layers) - 1, 0, -1):
            unactivate_(grad, self._values[depth][:number], self._kind)
            weight_grad, bias_grad = self._layer_grads[depth]
            below = self._values[depth - 1][:number]
            np.matmul(grad.numpy().T, below.numpy(), out=weight_grad)
            np.matmul(self._ones[:number], grad.numpy(), out=bias_grad)
            grad = mm(grad, self._layers[depth][0], out=self._grads[depth - 1][:number])
        unactivate_(grad, self._values[0][:number], self._kind)
        both = grad.numpy().T @ x
        weight_grad, bias_grad = self._layer_grads[0]
        weight_grad[...], bias_grad[...] = both[:, :-1], both[:, -1]

    def _through(self, out: Array, weight: Array, grad: Array, *, add: bool) -> None:
        if add:
            grad += out.T @ weight
        elif len(out) == 1:
            np.multiply(out[0][:, None], weight, out=grad)
        else:
            np.matmul(out.T, weight, out=grad)


def _grad(parameter: Tensor) -> Array:
    assert parameter.grad is not None
    return parameter.grad.numpy()
