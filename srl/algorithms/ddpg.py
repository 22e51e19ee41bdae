"""Deep deterministic policy gradient (Lillicrap et al. 2016)."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from srl.algorithms.critics import CriticConfig, Critics, squared_error
from srl.algorithms.exploration import NoiseConfig, explore
from srl.api.algorithm import Algorithm, Batch, Metrics, Needs, Replayed
from srl.api.policy import PolicySpec
from srl.core.load import option
from srl.core.schedule import Schedule
from srl.nets.continuous import Deterministic
from srl.nets.target import Target


@dataclass(frozen=True, kw_only=True)
class DDPGConfig(NoiseConfig):
    """Settings of DDPG."""

    lr: Schedule = option(Schedule(1e-3), "learning rate of actor and critic", low=0)
    gamma: float = option(0.99, "discount factor", low=0, high=1)
    n_step: int = option(1, "rewards before the bootstrap value", low=1)
    critic: CriticConfig = field(default_factory=CriticConfig)
    """Size and target of the critic."""


class DDPG(Algorithm):
    """A deterministic actor climbs one critic; both have targets that follow slowly."""

    Config = DDPGConfig
    Policy = Deterministic
    config: DDPGConfig
    policy: Deterministic

    @classmethod
    def needs(cls, config: DDPGConfig, spec: PolicySpec) -> Needs:
        return Needs(replay=Replayed(n_step=config.n_step, gamma=config.gamma))

    def setup(self) -> None:
        config, policy = self.config, self.policy
        self.critic = Critics(config.critic, policy.inputs + policy.size, 1).to(self.device)
        self.target = Target(policy)
        self.actor_adam = self.optimizer(policy, lr=config.lr, eps=1e-8)
        self.critic_adam = self.optimizer(self.critic, lr=config.lr, eps=1e-8)

    def update(self, batch: Batch) -> Metrics:
        explore(self.policy, self.config, self.clock.progress)
        vector = self.policy.vector(batch.obs)  # [2, B, inputs]: rows i, and those behind the rewards
        values, actions = self.together(
            lambda: self.learn_values(batch, vector),
            lambda: self.learn_actions(batch, vector[0]),
            at_once=self.critic.is_still,
        )
        self.critic_adam.apply()
        self.actor_adam.apply()
        self.critic.follow()
        self.target.follow(self.config.critic.tau or 1.0)
        return {**values, **actions, "lr": self.config.lr.at(self.clock.progress)}

    def learn_values(self, batch: Batch, vector: Tensor) -> dict[str, Tensor]:
        """The gradient of the critic."""
        loss, shown = self.critic_loss(batch, vector)
        self.critic_adam.backward(loss)
        return shown

    def learn_actions(self, batch: Batch, vector: Tensor) -> dict[str, Tensor]:
        """The gradient of the actor, by a critic that has not moved yet."""
        loss = self.actor_loss(batch, vector)
        self.actor_adam.backward(loss)
        return {"actor_loss": loss.detach()}

    def critic_loss(self, batch: Batch, vector: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """Against `r + gamma Q'(s', pi'(s'))`."""
        with torch.no_grad():
            action = self.target.net.action(vector[1])
        values, beyond = self.critic.pair(vector, batch.action[0].flatten(1), action)
        target = batch.reward[0] + batch.discount[0] * beyond[0]
        loss = squared_error(batch, values, target)
        return loss, {"critic_loss": loss.detach(), "q": target.mean()}

    def actor_loss(self, batch: Batch, vector: Tensor) -> Tensor:
        """`-Q(s, pi(s))`."""
        return -batch.mean(self.critic(vector, self.policy.action(vector)))
