"""Twin delayed deep deterministic policy gradient (Fujimoto et al. 2018)."""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import Tensor

from srl.algorithms.critics import CriticConfig, Critics, least, squared_error
from srl.algorithms.exploration import NoiseConfig, explore
from srl.api.algorithm import Batch, Metrics, Needs, Replayed
from srl.api.parts import InParts, Part
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


class TD3(InParts):
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

    def parts(self) -> tuple[Part, Part]:
        critics = Part(
            name="critics", owns=(self.critics,), shows=(self.critics.net,), optimizer=self.critic_adam,
            asks=self.next_actions, loss=self.critic_loss, after=self.follow, is_still=self.critics.is_still,
        )  # fmt: skip
        actor = Part(
            name="actor", owns=(self.policy, self.target), shows=(self.target.net,), optimizer=self.actor_adam,
            offers=self.actions, asks=self.values, loss=self.actor_loss, after=self.follow_actor, every=self.config.actor_every,
        )  # fmt: skip
        return critics, actor

    def begin(self, batch: Batch) -> Tensor:
        """Vectors `[2, B, inputs]`: rows i, and those behind the rewards."""
        explore(self.policy, self.config, self.clock.progress)
        return self.policy.vector(batch.obs)

    def next_actions(self, batch: Batch, vector: Tensor) -> tuple[Tensor]:
        """`pi'(s') + clipped noise`."""
        limit = self.config.target_noise_clip
        noise = batch.normal("next actions", self.policy.size)
        smooth = (noise * self.config.target_noise).clamp_(-limit, limit)
        return ((self.target.net.action(vector[1]) + smooth).clamp_(-1.0, 1.0),)

    def critic_loss(self, batch: Batch, vector: Tensor, action: Tensor) -> tuple[Tensor, Metrics]:
        """Against `r + gamma min Q'(s', a')`."""
        values, beyond = self.critics.pair(vector, batch.action[0].flatten(1), action)
        target = batch.reward[0] + batch.discount[0] * least(beyond)
        loss = squared_error(batch, values, target)
        return loss, {"critic_loss": loss.detach(), "q": target.mean()}

    def actions(self, batch: Batch, vector: Tensor) -> tuple[Tensor]:
        """`pi(s)`."""
        return (self.policy.action(vector[0]),)

    def values(self, batch: Batch, vector: Tensor, action: Tensor) -> tuple[Tensor]:
        """`Q_1(s, a)`."""
        return (self.critics(vector[0], action, only=1),)

    def actor_loss(self, batch: Batch, vector: Tensor, action: Tensor, value: Tensor) -> tuple[Tensor, Metrics]:
        """`-Q_1(s, pi(s))`."""
        loss = -batch.mean(value)
        return loss, {"actor_loss": loss.detach()}

    def follow(self, shown: Metrics) -> Metrics:
        """The targets follow the critics, as often as the actor moves."""
        if self.clock.updates % self.config.actor_every == 0:
            self.critics.follow()
        return {"lr": self.config.lr.at(self.clock.progress)}

    def follow_actor(self, shown: Metrics) -> Metrics:
        """The target follows the actor."""
        self.target.follow(self.config.critic.tau or 1.0)
        return {}
