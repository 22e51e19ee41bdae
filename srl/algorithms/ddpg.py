"""Deep deterministic policy gradient (Lillicrap et al. 2016)."""

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
class DDPGConfig(NoiseConfig):
    """Settings of DDPG."""

    lr: Schedule = option(Schedule(1e-3), "learning rate of actor and critics", low=0)
    gamma: float = option(0.99, "discount factor", low=0, high=1)
    n_step: int = option(1, "number of rewards summed before the bootstrap value", low=1)
    critic: CriticConfig = field(default_factory=CriticConfig)
    """Size of a critic, and how its target follows."""


class DDPG(InParts):
    """A deterministic actor climbs a critic; both have targets that follow slowly."""

    Config = DDPGConfig
    Policy = Deterministic
    config: DDPGConfig
    policy: Deterministic

    @classmethod
    def needs(cls, config: DDPGConfig, spec: PolicySpec) -> Needs:
        return Needs(replay=Replayed(n_step=config.n_step, gamma=config.gamma))

    @property
    def count(self) -> int:
        """Critics."""
        return 1

    @property
    def actor_every(self) -> int:
        """Updates of the critics for each of the actor and of the targets."""
        return 1

    def setup(self) -> None:
        config, policy = self.config, self.policy
        self.critics = Critics(config.critic, policy.inputs + policy.size, self.count).to(self.device)
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
            offers=self.actions, asks=self.values, loss=self.actor_loss, after=self.follow_actor, every=self.actor_every,
        )  # fmt: skip
        return critics, actor

    def begin(self, batch: Batch) -> Tensor:
        """Vectors `[2, B, inputs]`: rows i, and those behind the rewards."""
        explore(self.policy, self.config, self.clock.progress)
        return self.policy.vector(batch.obs)

    def next_actions(self, batch: Batch, vector: Tensor) -> tuple[Tensor]:
        """`pi'(s')`."""
        return (self.target.net.action(vector[1]),)

    def critic_loss(self, batch: Batch, vector: Tensor, action: Tensor) -> tuple[Tensor, Metrics]:
        """Against `r + gamma Q'(s', a')`, with the smallest of several values."""
        values, beyond = self.critics.pair(vector, batch.action[0].flatten(1), action)
        target = batch.reward[0] + batch.discount[0] * least(beyond)
        loss = squared_error(batch, values, target)
        return loss, {"critic_loss": loss.detach(), "q": target.mean()}

    def actions(self, batch: Batch, vector: Tensor) -> tuple[Tensor]:
        """`pi(s)`."""
        return (self.policy.action(vector[0]),)

    def values(self, batch: Batch, vector: Tensor, action: Tensor) -> tuple[Tensor]:
        """`Q(s, a)`, of the first critic."""
        return (self.critics(vector[0], action, only=1),)

    def actor_loss(self, batch: Batch, vector: Tensor, action: Tensor, value: Tensor) -> tuple[Tensor, Metrics]:
        """`-Q(s, pi(s))`."""
        loss = -batch.mean(value)
        return loss, {"actor_loss": loss.detach()}

    def follow(self, shown: Metrics) -> Metrics:
        """The targets of the critics follow, as often as the actor moves."""
        if self.clock.updates % self.actor_every == 0:
            self.critics.follow()
        return {"lr": self.config.lr.at(self.clock.progress)}

    def follow_actor(self, shown: Metrics) -> Metrics:
        """The target of the actor follows."""
        self.target.follow(self.config.critic.tau or 1.0)
        return {}
