"""Soft actor-critic (Haarnoja et al. 2018), with a learned temperature, and CrossQ (Bhatt et al. 2024) as settings."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from srl.algorithms.critics import CriticConfig, Critics, least, squared_error
from srl.api.algorithm import Batch, Metrics, Needs, Replayed
from srl.api.parts import InParts, Part
from srl.api.policy import PolicySpec
from srl.core.load import option
from srl.core.schedule import Schedule
from srl.nets.continuous import SquashedGaussian


@dataclass(frozen=True, kw_only=True)
class SACConfig:
    """Settings of SAC. CrossQ: `critic: {norm: batch, tau: null}`, `betas: [0.5, 0.999]`, `actor_every: 3`."""

    lr: Schedule = option(Schedule(1e-3), "learning rate of actor and critics", low=0)
    gamma: float = option(0.99, "discount factor", low=0, high=1)
    n_step: int = option(1, "number of rewards summed before the bootstrap value", low=1)
    temperature: float | None = option(None, "weight of the entropy; null: learned", low=0)
    initial_temperature: float = option(1.0, "initial value of the learned temperature", above=0)
    temperature_lr: Schedule = option(Schedule(1e-3), "learning rate of the temperature", low=0)
    target_entropy: float | None = option(
        None, "entropy that the temperature aims for; null: minus the number of action components"
    )
    critics: int = option(2, "number of critics; the smallest value is used", low=1)
    critic: CriticConfig = field(default_factory=CriticConfig)
    """Sizes and targets of the critics."""
    actor_every: int = option(1, "updates of the critics for each update of actor and temperature", low=1)
    betas: tuple[float, float] = option((0.9, 0.999), "decay rates of Adam's moments", low=0, high=1)


class SAC(InParts):
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
        self.temperature_adam = self.optimizer(self.log_temperature, lr=config.temperature_lr, eps=1e-8, average=True)

    def parts(self) -> tuple[Part, Part]:
        critics = Part(
            name="critics", owns=(self.critics,), shows=(self.critics.net,), optimizer=self.critic_adam,
            asks=self.next_actions, loss=self.critic_loss, after=self.follow, is_still=self.critics.is_still,
        )  # fmt: skip
        actor = Part(
            name="actor", owns=(self.policy, self.log_temperature), shows=(self.policy, self.log_temperature),
            optimizer=self.actor_adam, offers=self.actions, asks=self.values, loss=self.actor_loss, after=self.temper,
            every=self.config.actor_every,
        )  # fmt: skip
        return critics, actor

    def begin(self, batch: Batch) -> Tensor:
        """Vectors `[2, B, inputs]`: rows i, and those behind the rewards."""
        self.policy.random.zero_()  # from now on the policy acts
        return self.policy.vector(batch.obs)

    def next_actions(self, batch: Batch, vector: Tensor) -> tuple[Tensor, Tensor]:
        """`a'` of the present policy, and `alpha log pi(a'|s')`."""
        action, log_prob = self.policy.draw(vector[1], batch.normal("next actions", self.policy.size))
        return action, self.temperature * log_prob

    def critic_loss(self, batch: Batch, vector: Tensor, action: Tensor, cost: Tensor) -> tuple[Tensor, Metrics]:
        """Against `r + gamma (min Q'(s', a') - alpha log pi(a'|s'))`."""
        values, beyond = self.critics.pair(vector, batch.action[0].flatten(1), action)
        target = batch.reward[0] + batch.discount[0] * (least(beyond) - cost)
        loss = squared_error(batch, values, target)
        return loss, {"critic_loss": loss.detach(), "q": target.mean()}

    def actions(self, batch: Batch, vector: Tensor) -> tuple[Tensor, Tensor]:
        """`a` of the policy, and `log pi(a|s)`."""
        return self.policy.draw(vector[0], batch.normal("actions", self.policy.size))

    def values(self, batch: Batch, vector: Tensor, action: Tensor, _: Tensor) -> tuple[Tensor]:
        """`min Q(s, a)`."""
        return (least(self.critics(vector[0], action)),)

    def actor_loss(self, batch: Batch, vector: Tensor, _: Tensor, log_prob: Tensor, value: Tensor) -> tuple[Tensor, Metrics]:
        """`alpha log pi(a|s) - min Q(s, a)`, and the entropy of the policy."""
        loss = batch.mean((self.temperature * log_prob - value)[None])
        return loss, {"actor_loss": loss.detach(), "entropy": -batch.estimate(log_prob.detach()[None])}

    def follow(self, shown: Metrics) -> Metrics:
        """The targets follow the critics."""
        self.critics.follow()
        return {"lr": self.config.lr.at(self.clock.progress)}

    def temper(self, shown: Metrics) -> Metrics:
        """The temperature follows the entropy."""
        if self.config.temperature is None:
            self.temperature_adam.step(self.temperature_loss(torch.as_tensor(shown["entropy"])))
        return {"temperature": self.temperature}

    def temperature_loss(self, entropy: Tensor) -> Tensor:
        """Rises while the entropy is below its target."""
        return self.log_temperature * (entropy - self.target_entropy)

    @property
    def temperature(self) -> Tensor:
        """The weight of the entropy."""
        fixed = self.config.temperature
        return self.log_temperature.detach().exp() if fixed is None else torch.tensor(fixed, device=self.device)
