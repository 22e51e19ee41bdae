"""Twin delayed deep deterministic policy gradient (Fujimoto et al. 2018)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from srl.algorithms.critics import CriticConfig, Critics, least, squared_error
from srl.algorithms.exploration import NoiseConfig, explore
from srl.api.algorithm import Algorithm, Batch, Metrics, Needs, Replayed
from srl.api.policy import PolicySpec
from srl.core.load import option
from srl.core.schedule import Schedule
from srl.nets.continuous import Deterministic
from srl.nets.target import Target


@dataclass(frozen=True, kw_only=True)
class TD3Config(NoiseConfig):
    """Settings of TD3."""

    lr: Schedule = option(Schedule(3e-4), "learning rate of actor and critics", low=0)
    gamma: float = option(0.99, "discount factor", low=0, high=1)
    n_step: int = option(1, "rewards before the bootstrap value", low=1)
    critics: int = option(2, "number of critics; the smallest value counts", low=1)
    critic: CriticConfig = field(default_factory=CriticConfig)
    """Sizes and targets of the critics."""
    actor_every: int = option(2, "updates of the critics for each of actor and targets", low=1)
    target_noise: float = option(0.2, "deviation of the noise on the target's actions", low=0)
    target_noise_clip: float = option(0.5, "bound of this noise", low=0)


class TD3(Algorithm):
    """A deterministic actor climbs the first of two critics, whose targets are smoothed by noise."""

    Config = TD3Config
    Policy = Deterministic
    config: TD3Config
    policy: Deterministic

    @classmethod
    def needs(cls, config: TD3Config, spec: PolicySpec) -> Needs:
        return Needs(replay=Replayed(n_step=config.n_step, gamma=config.gamma))

    def setup(self) -> None:
        config, policy = self.config, self.policy
        self.critics = Critics(config.critic, policy.inputs + policy.size, config.critics).to(self.device)
        self.target = Target(policy)
        self.actor_adam = self.optimizer(policy, lr=config.lr, eps=1e-8)
        self.critic_adam = self.optimizer(self.critics, lr=config.lr, eps=1e-8)

    def update(self, batch: Batch) -> Metrics:
        explore(self.policy, self.config, self.clock.progress)
        vector = self.policy.vector(batch.obs)  # [2, B, inputs]: rows i, and those behind the rewards
        noise = torch.randn(*batch.lead[1:], self.policy.size, device=self.device)
        parts: list[Callable[[], dict[str, Tensor]]] = [lambda: self.learn_values(batch, vector, noise)]
        if acts := self.clock.updates % self.config.actor_every == 0:
            parts.append(lambda: self.learn_actions(batch, vector[0]))
        shown = self.together(*parts, at_once=self.critics.is_still)
        self.critic_adam.apply()
        if acts:
            self.actor_adam.apply()
            self.critics.follow()
            self.target.follow(self.config.critic.tau or 1.0)
        return {**{name: value for one in shown for name, value in one.items()}, "lr": self.config.lr.at(self.clock.progress)}

    def learn_values(self, batch: Batch, vector: Tensor, noise: Tensor) -> dict[str, Tensor]:
        """The gradient of the critics."""
        loss, shown = self.critic_loss(batch, vector, noise)
        self.critic_adam.backward(loss)
        return shown

    def learn_actions(self, batch: Batch, vector: Tensor) -> dict[str, Tensor]:
        """The gradient of the actor, by critics that have not moved yet."""
        loss = self.actor_loss(batch, vector)
        self.actor_adam.backward(loss)
        return {"actor_loss": loss.detach()}

    def critic_loss(self, batch: Batch, vector: Tensor, noise: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """Against `r + gamma min Q'(s', pi'(s') + clipped noise)`."""
        limit = self.config.target_noise_clip
        with torch.no_grad():
            smooth = (noise * self.config.target_noise).clamp_(-limit, limit)
            action = (self.target.net.action(vector[1]) + smooth).clamp_(-1.0, 1.0)
        values, beyond = self.critics.pair(vector, batch.action[0].flatten(1), action)
        target = batch.reward[0] + batch.discount[0] * least(beyond)
        loss = squared_error(batch, values, target)
        return loss, {"critic_loss": loss.detach(), "q": target.mean()}

    def actor_loss(self, batch: Batch, vector: Tensor) -> Tensor:
        """`-Q_1(s, pi(s))`."""
        return -batch.mean(self.critics(vector, self.policy.action(vector), only=1))
