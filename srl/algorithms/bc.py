"""Behaviour cloning: the policy learns to choose the recorded actions. With actions of an expert in their place it is DAgger."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from srl.api.algorithm import Algorithm, Batch, Metrics, Needs, Replayed, Window
from srl.api.policy import PolicySpec
from srl.core.errors import UserError
from srl.core.load import option
from srl.core.schedule import Schedule


@dataclass(frozen=True, kw_only=True)
class BCConfig:
    """Settings of behaviour cloning."""

    lr: Schedule = option(Schedule(1e-3), "learning rate of Adam", low=0)
    entropy: Schedule = option(Schedule(0.0), "weight of the entropy bonus", low=0)
    max_grad_norm: float | None = option(1.0, "maximum gradient norm; null: no clipping", above=0)


class BC(Algorithm):
    """Cloning of the rows of a replay.

    `replay.data` with `replay.share=1` clones recorded episodes. A buffer between actors and replay whose transform `expert`
    replaces the actions makes it DAgger (Ross et al. 2011): the policy acts, the expert says what it should have done, and all
    rows so far are trained on.
    """

    Config = BCConfig
    config: BCConfig

    @classmethod
    def needs(cls, config: BCConfig, spec: PolicySpec) -> Needs:
        return Needs(window=Window(length=1), replay=Replayed())

    def setup(self) -> None:
        if self.policy.memory != {}:
            raise UserError("bc must have a policy without memory", ("try", "policy=actor_critic"), code="E10")
        self.adam = self.optimizer(self.policy, lr=self.config.lr, clip=self.config.max_grad_norm)

    def update(self, batch: Batch) -> Metrics:
        config, progress = self.config, self.clock.progress
        loss, entropy = self.loss(batch)
        self.adam.step(loss - config.entropy.at(progress) * entropy)
        return {"loss": loss.detach(), "entropy": entropy.detach(), "lr": config.lr.at(progress)}

    def loss(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Cross-entropy of the recorded actions, and the entropy of the policy."""
        asked = batch.asked(0, 1)
        dist = self.policy.dist(self.policy.unroll(asked), asked.mask)
        return -batch.mean(dist.log_prob(batch.action)), batch.mean(dist.entropy())
