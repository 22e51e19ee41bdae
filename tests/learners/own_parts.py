"""An algorithm of one's own with two parts: no targets, and a critic that reads the policy itself."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from srl.api.algorithm import Batch, Metrics, Needs, NoConfig, Replayed
from srl.api.parts import InParts, Part
from srl.api.policy import PolicySpec
from srl.nets.continuous import Deterministic


class OwnParts(InParts):
    """An actor and a value of its actions."""

    Config = NoConfig
    Policy = Deterministic
    policy: Deterministic

    @classmethod
    def needs(cls, config: Any, spec: PolicySpec) -> Needs:
        return Needs(replay=Replayed())

    def setup(self) -> None:
        self.value = nn.Sequential(nn.Linear(self.policy.inputs + self.policy.size, 8), nn.Tanh(), nn.Linear(8, 1))
        self.value_adam = self.optimizer(self.value, lr=1e-3)
        self.actor_adam = self.optimizer(self.policy, lr=1e-3)

    def parts(self) -> tuple[Part, Part]:
        value = Part(
            name="value", owns=(self.value,), shows=(self.value,), optimizer=self.value_adam, asks=self.next_actions,
            loss=self.value_loss,
        )  # fmt: skip
        actor = Part(
            name="actor", owns=(self.policy,), shows=(self.policy,), optimizer=self.actor_adam, offers=self.actions,
            asks=self.judged, loss=self.actor_loss, every=3,
        )  # fmt: skip
        return value, actor

    def next_actions(self, batch: Batch, _: Any) -> tuple[torch.Tensor]:
        return (self.policy.action(self.policy.vector(batch.obs)[1]),)

    def value_loss(self, batch: Batch, _: Any, action: torch.Tensor) -> tuple[torch.Tensor, Metrics]:
        now, beyond = self.policy.vector(batch.obs)
        target = batch.reward[0] + batch.discount[0] * self.value(torch.cat((beyond, action), -1))[:, 0].detach()
        error = self.value(torch.cat((now, batch.action[0].flatten(1)), -1))[:, 0] - target
        return batch.mean(error.square()[None]), {"value_loss": error.detach().square().mean()}

    def actions(self, batch: Batch, _: Any) -> tuple[torch.Tensor]:
        return (self.policy.action(self.policy.vector(batch.obs)[0]),)

    def judged(self, batch: Batch, _: Any, action: torch.Tensor) -> tuple[torch.Tensor]:
        value: torch.Tensor = self.value(torch.cat((self.policy.vector(batch.obs)[0], action), -1))[:, 0]
        return (value,)

    def actor_loss(self, batch: Batch, _: Any, action: torch.Tensor, value: torch.Tensor) -> tuple[torch.Tensor, Metrics]:
        return -batch.mean((value - 0.1 * action.square().sum(-1))[None]), {"actor_loss": -value.detach().mean()}
