"""Policies that act by the values of actions: what DQN and R2D2 train."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor

from srl.api.actions import choose
from srl.api.env import Discrete
from srl.api.neural import Heads, NeuralPolicy
from srl.api.policy import Act, Ask, Bounds, PolicySpec
from srl.core.errors import UserError


class QPolicy(NeuralPolicy):
    """Acts by the head `q`, the values `[T, B, n]` of all actions, and now and then at random.

    A distributional one has the heads `logits` `[T, B, n, atoms]` and `points` `[atoms]` too.
    """

    bounds: ClassVar[Bounds] = "clip"
    epsilon: Tensor
    """The share of random actions on each rung: all of them until the first update."""

    def __init__(self, config: Any, spec: PolicySpec) -> None:
        super().__init__(config, spec)
        if not isinstance(spec.action, Discrete):
            raise UserError(
                "a Q-network must have one discrete action", ("found", type(spec.action).__name__),
                ("try", "algorithm=ppo with policy=actor_critic, which have no such limit"), code="E10",
            )  # fmt: skip
        self.reads = ("obs", "mask") if spec.mask else ("obs",)
        self.actions = spec.action.n
        self.register_buffer("epsilon", torch.ones(getattr(config, "rungs", 1)))

    @torch.no_grad()
    def explore(self, rate: float, ladder: float = 0.0) -> None:
        """Set the shares of the rungs: `rate` on the first, `rate ** (1 + ladder)` on the last (Horgan et al. 2018)."""
        way = torch.linspace(0.0, 1.0, len(self.epsilon))
        self.epsilon.copy_(torch.full_like(way, rate) ** (1.0 + ladder * way))

    def dist(self, heads: Heads, mask: Any = None) -> Any:
        """The best action, for export: nothing is drawn from it."""
        return Best(heads["q"], mask)

    @torch.inference_mode()
    def act(self, ask: Ask) -> Act:
        heads, _ = self.heads(ask)
        action = choose(heads["q"][0].cpu().numpy(), self.epsilon.cpu().numpy(), ask)
        return self.answer(torch.from_numpy(action)[None], heads, {"q": heads["q"]})


class Best:
    """The best action of each row."""

    def __init__(self, values: Tensor, mask: Tensor | None) -> None:
        self._action = best_action(values, mask)

    def mode(self) -> Tensor:
        return self._action


def best_action(values: Tensor, mask: Tensor | None) -> Tensor:
    """The best allowed action `[T, B]` by values `[T, B, n]`; of a row without any allowed one, the best of all."""
    if mask is not None:
        values = values.masked_fill(~(mask | ~mask.any(-1, keepdim=True)), -torch.inf)
    return values.argmax(-1)


def of_action(values: Tensor, action: Tensor) -> Tensor:
    """What `[T, B, n, ...]` has for actions `[T, B]`."""
    index = action.view(*action.shape, *[1] * (values.ndim - action.ndim)).expand(*action.shape, 1, *values.shape[3:])
    return values.gather(2, index).squeeze(2)
