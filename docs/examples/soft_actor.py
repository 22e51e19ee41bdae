"""A plain off-policy actor-critic. Run it with `algorithm=docs/examples/soft_actor.py:SoftActor policy=squashed_gaussian`."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from srl.api.algorithm import Algorithm, Batch, Metrics, Needs, Replayed
from srl.api.policy import PolicySpec
from srl.core.load import option
from srl.nets.continuous import SquashedGaussian
from srl.nets.target import Target


@dataclass(frozen=True, kw_only=True)
class SoftActorConfig:
    """Settings: each can be given in a file or on the command line."""

    lr: float = option(1e-3, "learning rate", low=0)
    gamma: float = option(0.95, "discount factor", low=0, high=1)
    entropy: float = option(0.05, "weight of the entropy", low=0)


class SoftActor(Algorithm):
    """One critic with a slow copy of it, and a policy that climbs it."""

    Config, Policy = SoftActorConfig, SquashedGaussian
    policy: SquashedGaussian

    @classmethod
    def needs(cls, config: SoftActorConfig, spec: PolicySpec) -> Needs:
        return Needs(replay=Replayed(gamma=config.gamma))

    def setup(self) -> None:
        sizes = (self.policy.inputs + self.policy.size, 64)
        self.critic = nn.Sequential(nn.Linear(*sizes), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1)).to(self.device)
        self.target = Target(self.critic)
        self.critic_adam = self.optimizer(self.critic, lr=self.config.lr)
        self.actor_adam = self.optimizer(self.policy, lr=self.config.lr)

    def update(self, batch: Batch) -> Metrics:
        self.policy.random.zero_()  # from now on the policy acts, until now its actions were random
        now, beyond = self.policy.vector(batch.obs)  # of the rows drawn, and of those behind their rewards
        value = self.soft_value(self.target, beyond).detach()
        error = self.judge(self.critic, now, batch.action[0]) - (batch.reward[0] + batch.discount[0] * value)
        critic_loss = batch.mean(error.square()[None])
        self.critic_adam.step(critic_loss)
        actor_loss = -batch.mean(self.soft_value(self.critic, now)[None])
        self.actor_adam.step(actor_loss)
        self.target.follow(0.01)
        return {"critic_loss": critic_loss.detach(), "actor_loss": actor_loss.detach()}

    def soft_value(self, critic: nn.Module, vector: Tensor) -> Tensor:
        action, log_prob = self.policy.draw(vector, torch.randn(len(vector), self.policy.size, device=self.device))
        return self.judge(critic, vector, action) - self.config.entropy * log_prob

    def judge(self, critic: nn.Module, vector: Tensor, action: Tensor) -> Tensor:
        return critic(torch.cat((vector, action), -1))[:, 0]
