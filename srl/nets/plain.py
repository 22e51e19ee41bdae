"""Plain actor-critics without autograd: forward and backward by hand, in memory that is used again at every pass."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from srl.core.tree import Array
from srl.nets.actor_critic import ActorCritic
from srl.nets.mlp import Mlp
from srl.nets.numpy_scores import make_score
from srl.nets.towers import activate_, unactivate_


class PlainPass:
    """The passes of one `ActorCritic` over vectors on CPU. Gradients are written, not added, into `.grad`."""

    def __init__(self, policy: ActorCritic, rows: int) -> None:
        self.policy = policy
        self.rows = rows
        actor_heads = [policy.logits] if policy.critic is not None else [policy.logits, policy.value]
        self._actor = _Tower(policy.actor, actor_heads, rows)
        self._critic = _Tower(policy.critic, [policy.value], rows) if policy.critic is not None else None
        self._score = make_score(policy.spec.action)
        self._none = np.zeros(0, np.float32)
        self._log_std = policy.log_std

    @staticmethod
    def fits(policy: nn.Module) -> bool:
        """Whether the policy is one that this can do: no pictures, no subclass that changed the forward, on CPU."""
        return (
            type(policy) is ActorCritic
            and not policy.pictures
            and len(policy.actor.layers) > 0
            and policy.device.type == "cpu"
            and all(one.dtype == torch.float32 for one in policy.parameters())
        )

    def features(self, obs: Any) -> Tensor:
        """What `forward` takes, of whole batches: inputs and a constant one. Weights do not enter it."""
        with torch.no_grad():
            inputs = self.policy.encode(obs)
            return torch.cat([inputs, inputs.new_ones((*inputs.shape[:-1], 1))], -1)

    def forward(self, x: Array, action: Any, mask: Any) -> tuple[Array, Array, Array]:
        """(log-probability, entropy, value), `[M]` each, of the rows `x` `[M, inputs + 1]`."""
        self._x = x
        outs = self._actor.forward(x)
        if self._critic is not None:
            outs += self._critic.forward(x)
        log_std = self._none if self._log_std is None else self._log_std.detach().numpy()
        log_prob, entropy = self._score.forward(outs[0], action, mask, log_std)
        return log_prob, entropy, outs[1][0]

    def backward(self, log_prob: Array, entropy: Array | None, value: Array) -> None:
        """Fill `.grad` of every parameter from the gradients of what `forward` gave."""
        heads = np.empty((self._actor.width(0), len(value)), np.float32)
        log_std = self._none
        if self._log_std is not None:
            assert self._log_std.grad is not None
            log_std = self._log_std.grad.numpy()
        self._score.backward(log_prob, entropy, heads, log_std)
        if self._critic is None:
            self._actor.backward(self._x, [heads, value[None]])
        else:
            self._actor.backward(self._x, [heads])
            self._critic.backward(self._x, [value[None]])


class _Tower:
    """Hidden layers and heads. The first layer takes its bias from the constant input."""

    def __init__(self, body: Mlp, heads: list[nn.Linear], rows: int) -> None:
        self._kind = body.activation
        layers: list[Any] = list(body.layers)
        self._layers = [(layer.weight.detach(), layer.bias.detach()) for layer in layers]
        self._layer_grads = [(layer.weight.grad.numpy(), layer.bias.grad.numpy()) for layer in layers]
        self._heads = [(head.weight.detach().numpy(), head.bias.detach().numpy()) for head in heads]
        self._head_grads = [(_grad(head.weight), _grad(head.bias)) for head in heads]
        widths = [len(bias) for _, bias in self._layers]
        self._values = [torch.empty((rows, width)) for width in widths]
        self._grads = [torch.empty((rows, width)) for width in widths]
        self._first = np.empty((self._layers[0][0].shape[1] + 1, widths[0]), np.float32)
        self._ones = np.ones(rows, np.float32)

    def width(self, head: int) -> int:
        return len(self._heads[head][1])

    def forward(self, x: Array) -> list[Array]:
        """Heads `[k, M]`."""
        number = len(x)
        weight, bias = self._layers[0]
        self._first[:-1], self._first[-1] = weight.numpy().T, bias.numpy()
        below = self._values[0][:number]
        np.matmul(x, self._first, out=below.numpy())
        activate_(below, self._kind)
        for (weight, bias), values in zip(self._layers[1:], self._values[1:], strict=True):
            below = torch.addmm(bias, below, weight.t(), out=values[:number])
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
            grad = torch.mm(grad, self._layers[depth][0], out=self._grads[depth - 1][:number])
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
