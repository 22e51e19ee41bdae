"""Soft actor-critic (Haarnoja et al. 2018), with a learned temperature, and CrossQ (Bhatt et al. 2024) as settings."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from srl.algorithms.critics import CriticConfig, Critics, least, squared_error
from srl.api.algorithm import Algorithm, Batch, Metrics, Needs, Replayed
from srl.api.policy import PolicySpec
from srl.core.load import option
from srl.core.schedule import Schedule
from srl.nets.continuous import SquashedGaussian


@dataclass(frozen=True, kw_only=True)
class SACConfig:
    """Settings of SAC. CrossQ: `critic: {norm: batch, tau: null}`, `betas: [0.5, 0.999]`, `actor_every: 3`."""

    lr: Schedule = option(Schedule(1e-3), "learning rate of actor and critics", low=0)
    gamma: float = option(0.99, "discount factor", low=0, high=1)
    n_step: int = option(1, "rewards before the bootstrap value", low=1)
    temperature: float | None = option(None, "weight of the entropy; null: learned", low=0)
    initial_temperature: float = option(1.0, "the learned temperature at the start", above=0)
    temperature_lr: Schedule = option(Schedule(1e-3), "learning rate of the temperature", low=0)
    target_entropy: float | None = option(None, "entropy that the temperature aims at; null: minus the size of an action")
    critics: int = option(2, "number of critics; the smallest value counts", low=1)
    critic: CriticConfig = field(default_factory=CriticConfig)
    """Sizes and targets of the critics."""
    actor_every: int = option(1, "updates of the critics for each of actor and temperature", low=1)
    betas: tuple[float, float] = option((0.9, 0.999), "decay rates of Adam's moments", low=0, high=1)


class SAC(Algorithm):
    """Soft actor-critic: a squashed Gaussian climbs the smaller of two critics, and is paid for entropy."""

    Config = SACConfig
    Policy = SquashedGaussian
    config: SACConfig
    policy: SquashedGaussian

    @classmethod
    def needs(cls, config: SACConfig, spec: PolicySpec) -> Needs:
        return Needs(replay=Replayed(n_step=config.n_step, gamma=config.gamma))

    def setup(self) -> None:
        config, policy = self.config, self.policy
        self.critics = Critics(config.critic, policy.inputs + policy.size, config.critics).to(self.device)
        self.log_temperature = nn.Parameter(torch.tensor(math.log(config.initial_temperature), device=self.device))
        self.target_entropy = -float(policy.size) if config.target_entropy is None else config.target_entropy
        self.actor_adam = self.optimizer(policy, lr=config.lr, betas=config.betas, eps=1e-8)
        self.critic_adam = self.optimizer(self.critics, lr=config.lr, betas=config.betas, eps=1e-8)
        self.temperature_adam = self.optimizer(self.log_temperature, lr=config.temperature_lr, eps=1e-8)

    def update(self, batch: Batch) -> Metrics:
        self.policy.random.zero_()  # from now on the policy acts
        vector = self.policy.vector(batch.obs)  # [2, B, inputs]: rows i, and those behind the rewards
        noise = torch.randn(2, *batch.lead[1:], self.policy.size, device=self.device)
        parts: list[Callable[[], dict[str, Tensor]]] = [lambda: self.learn_values(batch, vector, noise[1])]
        if acts := self.clock.updates % self.config.actor_every == 0:
            parts.append(lambda: self.learn_actions(batch, vector[0], noise[0]))
        shown = self.together(*parts, at_once=self.critics.is_still)
        self.critic_adam.apply()
        self.critics.follow()
        if acts:
            self.actor_adam.apply()
            if self.config.temperature is None:
                self.temperature_adam.step(self.temperature_loss(shown[1]["entropy"]))
        metrics = {name: value for one in shown for name, value in one.items()}
        return {**metrics, "temperature": self.temperature, "lr": self.config.lr.at(self.clock.progress)}

    def learn_values(self, batch: Batch, vector: Tensor, noise: Tensor) -> dict[str, Tensor]:
        """The gradient of the critics."""
        loss, shown = self.critic_loss(batch, vector, noise)
        self.critic_adam.backward(loss)
        return shown

    def learn_actions(self, batch: Batch, vector: Tensor, noise: Tensor) -> dict[str, Tensor]:
        """The gradient of the actor, by critics that have not moved yet."""
        loss, entropy = self.actor_loss(batch, vector, noise)
        self.actor_adam.backward(loss)
        return {"actor_loss": loss.detach(), "entropy": entropy}

    def critic_loss(self, batch: Batch, vector: Tensor, noise: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """Against `r + gamma (min Q'(s', a') - alpha log pi(a'|s'))` with `a'` of the present policy."""
        with torch.no_grad():
            action, log_prob = self.policy.draw(vector[1], noise)
        values, beyond = self.critics.pair(vector, batch.action[0].flatten(1), action)
        target = batch.reward[0] + batch.discount[0] * (least(beyond) - self.temperature * log_prob)
        loss = squared_error(batch, values, target)
        return loss, {"critic_loss": loss.detach(), "q": target.mean()}

    def actor_loss(self, batch: Batch, vector: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """`alpha log pi(a|s) - min Q(s, a)`, and the entropy of the policy."""
        action, log_prob = self.policy.draw(vector, noise)
        value = least(self.critics(vector, action))
        return batch.mean((self.temperature * log_prob - value)[None]), -batch.mean(log_prob.detach()[None])

    def temperature_loss(self, entropy: Tensor) -> Tensor:
        """Rises while the entropy is below its target."""
        return self.log_temperature * (entropy - self.target_entropy)

    @property
    def temperature(self) -> Tensor:
        """The weight of the entropy."""
        fixed = self.config.temperature
        return self.log_temperature.detach().exp() if fixed is None else torch.tensor(fixed, device=self.device)
