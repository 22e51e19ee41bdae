"""APPO (Luo et al. 2020, Hilton et al. 2022): PPO on rows of older policies, by V-trace and a proximal policy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from srl.algorithms.ppo import PPO, PPOConfig
from srl.algorithms.returns import vtrace
from srl.api.algorithm import Batch, Metrics, Needs
from srl.api.policy import PolicySpec
from srl.core.load import option
from srl.nets.target import Target


@dataclass(frozen=True, kw_only=True)
class APPOConfig(PPOConfig):
    """Settings of APPO: those of PPO and of its corrections."""

    lam: float = option(0.95, "lambda of the V-trace targets", low=0, high=1)
    epochs: int = option(4, "passes over a batch", low=1)
    objective: Literal["coupled", "decoupled"] = option(
        "coupled",
        "clip: clip the ratio to the actors' policy; decoupled: that to the proximal policy, with importance weights",
    )
    clip_rho: float = option(1.0, "upper bound of the importance weights rho of temporal differences and advantages", above=0)
    clip_c: float = option(1.0, "upper bound of the trace weights c", above=0)
    target_every: int = option(4, "updates between two steps of the proximal policy, whose values are used in the targets", low=1)
    tau: float = option(1.0, "how far it moves towards the policy at each step; 1: copy the policy", above=0, high=1)


class APPO(PPO):
    """Asynchronous PPO. Recurrent policies start each slab from the recorded recurrent state."""

    Config = APPOConfig
    config: APPOConfig

    @classmethod
    def needs(cls, config: PPOConfig, spec: PolicySpec) -> Needs:
        return Needs(extra=("log_prob",), window=config.window)

    def setup(self) -> None:
        super().setup()
        self.proximal = Target(self.policy)

    def update(self, batch: Batch) -> Metrics:
        if self.clock.updates % self.config.target_every == 0:
            self.proximal.follow(self.config.tau)
        metrics = super().update(batch)
        return {**metrics, "rho": batch.mean(batch.rho, batch.choice)}

    def judged(self, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
        """Values and targets of the proximal policy; `extra` has the log-probability that the ratio is clipped around."""
        config, net = self.config, self.proximal.net
        heads = net.unroll(batch)
        now = {name: head[:-1] if name in ("logits", "value") else head for name, head in heads.items()}
        values = heads["value"] if net.value_head is None else net.value_head.returns(heads["value"])
        dist = net.dist(now, None if batch.mask is None else batch.mask[:-1])
        near, acted = dist.log_prob(batch.action), batch.extra["log_prob"]
        log_ratio = torch.where(batch.choice & batch.valid, near - acted[:-1], 0.0)
        decoupled = config.objective == "decoupled"
        target, advantage = vtrace(
            batch.reward, values, batch.terminated, batch.cut, log_ratio, config.gamma, lam=config.lam,
            clip_rho=config.clip_rho, clip_c=config.clip_c, clip_advantage=config.clip_rho if decoupled else None,
        )  # fmt: skip
        batch.add(rho=log_ratio.exp().clamp(max=config.clip_rho))
        if decoupled:  # the advantage has the weight rho, so the ratio is that to the proximal policy
            batch.add(extra={**batch.extra, "log_prob": torch.cat([near, acted[-1:]])})
        return values, advantage, target
