"""Advantage actor-critic (Mnih et al. 2016): a whole algorithm. Run it with `algorithm=docs/examples/a2c.py:A2C`."""

from __future__ import annotations

from dataclasses import dataclass

from srl.algorithms.returns import n_step
from srl.api.algorithm import Algorithm, Batch, Metrics, Needs
from srl.api.policy import PolicySpec
from srl.core.load import option
from srl.core.registry import register_algorithm
from srl.core.schedule import Schedule


@dataclass(frozen=True, kw_only=True)
class A2CConfig:
    """Settings: each can be given in a file or on the command line."""

    lr: Schedule = option(Schedule(7e-4), "learning rate", low=0)
    gamma: float = option(0.99, "discount of a step", low=0, high=1)
    steps: int = option(5, "rewards before the bootstrap value", low=1)
    value_weight: float = option(0.5, "weight of the value loss", low=0)
    entropy: float = option(0.01, "weight of the entropy bonus", low=0)


@register_algorithm("a2c")
class A2C(Algorithm):
    """One optimizer step per batch, on n-step returns."""

    Config = A2CConfig

    @classmethod
    def needs(cls, config: A2CConfig, spec: PolicySpec) -> Needs:
        return Needs(extra=("value",))

    def setup(self) -> None:
        self.adam = self.optimizer(self.policy, lr=self.config.lr, clip=0.5)

    def update(self, batch: Batch) -> Metrics:
        config, values = self.config, batch.extra["value"]
        target = n_step(batch.reward, values, batch.terminated, batch.cut, config.gamma, config.steps)

        heads = self.policy.unroll(batch)  # [T + 1, B]: the last row is for the bootstrap
        now = {name: head[:-1] if name in ("logits", "value") else head for name, head in heads.items()}
        dist = self.policy.dist(now, None if batch.mask is None else batch.mask[:-1])

        policy_loss = -batch.mean(dist.log_prob(batch.action) * (target - values[:-1]), batch.choice)
        value_loss = batch.mean((target - now["value"]).square())
        entropy = batch.mean(dist.entropy(), batch.choice)
        self.adam.step(policy_loss + config.value_weight * value_loss - config.entropy * entropy)
        return {"policy_loss": policy_loss.detach(), "value_loss": value_loss.detach(), "entropy": entropy.detach()}
