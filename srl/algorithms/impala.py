"""IMPALA (Espeholt et al. 2018): an actor-critic whose V-trace targets correct for rows recorded by an older policy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch

from srl.algorithms.returns import vtrace
from srl.api.algorithm import Algorithm, Batch, Metrics, Needs
from srl.api.policy import PolicySpec
from srl.core.load import option
from srl.core.schedule import Schedule


@dataclass(frozen=True, kw_only=True)
class ImpalaConfig:
    """Settings of IMPALA; one gradient step per batch."""

    lr: Schedule = option(Schedule(6e-4), "learning rate", low=0)
    optimizer: Literal["rmsprop", "adam"] = option("rmsprop", "type of optimizer")
    eps: float = option(0.01, "epsilon of the optimizer", above=0)
    gamma: float = option(0.99, "discount factor", low=0, high=1)
    lam: float = option(1.0, "lambda of the V-trace targets; 1: full n-step targets", low=0, high=1)
    correct: bool = option(True, "apply the importance-sampling correction; false: plain actor-critic")
    clip_rho: float = option(1.0, "upper bound of the importance weight rho of a temporal difference", above=0)
    clip_c: float = option(1.0, "upper bound of the trace weights c", above=0)
    value_weight: float = option(0.5, "weight of the value loss", low=0)
    entropy: Schedule = option(Schedule(0.01), "weight of the entropy bonus", low=0)
    max_grad_norm: float | None = option(1.0, "maximum gradient norm; null: no clipping", above=0)


class Impala(Algorithm):
    """V-trace actor-critic. Recurrent policies start each slab from the recorded recurrent state."""

    Config = ImpalaConfig
    config: ImpalaConfig

    @classmethod
    def needs(cls, config: ImpalaConfig, spec: PolicySpec) -> Needs:
        return Needs(extra=("log_prob",))

    def setup(self) -> None:
        config = self.config
        self.steps = self.optimizer(self.policy, lr=config.lr, clip=config.max_grad_norm, kind=config.optimizer, eps=config.eps)

    def update(self, batch: Batch) -> Metrics:
        config, progress = self.config, self.clock.progress
        heads = self.policy.unroll(batch)  # [T+1, B]: the last row only bootstraps
        value = heads["value"]
        now = {name: head[:-1] if name in ("logits", "value") else head for name, head in heads.items()}
        dist = self.policy.dist(now, None if batch.mask is None else batch.mask[:-1])
        log_prob = dist.log_prob(batch.action)

        with torch.no_grad():
            log_ratio = torch.where(batch.choice & batch.valid, log_prob - batch.extra["log_prob"][:-1], 0.0)
            target, advantage = vtrace(
                batch.reward, value, batch.terminated, batch.cut, log_ratio if config.correct else torch.zeros_like(log_ratio),
                config.gamma, lam=config.lam, clip_rho=config.clip_rho, clip_c=config.clip_c, clip_advantage=config.clip_rho,
            )  # fmt: skip
        policy_loss = -batch.mean(log_prob * advantage, batch.choice)
        value_loss = batch.mean((target - value[:-1]).square())
        entropy = batch.mean(dist.entropy(), batch.choice)
        self.steps.step(policy_loss + config.value_weight * value_loss - config.entropy.at(progress) * entropy)

        shown = {"policy_loss": policy_loss, "value_loss": value_loss, "entropy": entropy}
        ratio = batch.estimate(log_ratio.exp().clamp(max=config.clip_rho), batch.choice)
        return {**{name: one.detach() for name, one in shown.items()}, "rho": ratio, "lr": config.lr.at(progress)}
