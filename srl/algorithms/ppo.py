"""Proximal policy optimization (Schulman et al. 2017), with common later extensions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from srl.algorithms.returns import gae
from srl.algorithms.value_scale import ValueScale
from srl.api.algorithm import Algorithm, Batch, Heads, Metrics, Needs
from srl.api.policy import PolicySpec
from srl.api.slab import Window
from srl.core.errors import UserError
from srl.core.load import option
from srl.core.schedule import Schedule


@dataclass(frozen=True, kw_only=True)
class PPOConfig:
    """Settings of PPO. The defaults suit small tasks; docs/tutorial.md suggests which to change first."""

    lr: Schedule = option(Schedule(5e-4), "learning rate of Adam", low=0)
    gamma: float = option(0.99, "discount factor", low=0, high=1)
    lam: float = option(0.95, "lambda of GAE", low=0, high=1)
    clip: Schedule = option(Schedule(0.2), "clip range of the probability ratio", above=0)
    value_clip: float | None = option(None, "clip range of value changes; null: no clipping", above=0)
    value_weight: float = option(0.5, "weight of the value loss", low=0)
    entropy: Schedule = option(Schedule(0.0), "weight of the entropy bonus", low=0)
    epochs: int = option(10, "passes over a batch", low=1)
    minibatch: int = option(128, "maximum rows per minibatch", low=1)
    window: Window = option(
        Window(), "rows per training sequence: 16, or {burn_in: 8, length: 16}; default: the whole slab if recurrent, else 1"
    )
    max_grad_norm: float | None = option(0.5, "maximum gradient norm; null: no clipping", above=0)
    normalize_advantage: Literal["batch", "minibatch", "no"] = option("batch", "rows over which advantages are normalized")
    normalize_value: bool = option(False, "normalize value targets by running statistics (PopArt)")
    target_kl: float | None = option(None, "stop the passes over a batch when the KL divergence exceeds 1.5 times this", above=0)


class PPO(Algorithm):
    """Proximal policy optimization with the clipped surrogate objective."""

    Config = PPOConfig
    config: PPOConfig

    @classmethod
    def needs(cls, config: PPOConfig, spec: PolicySpec) -> Needs:
        return Needs(extra=("log_prob", "value"), window=config.window)

    def setup(self) -> None:
        self.scale: ValueScale | None = None
        head = self.policy.value_head
        if self.config.normalize_value:
            if head is None:
                raise UserError("algorithm.normalize_value needs a policy whose layer `value` is a ValueHead")
            self.scale = ValueScale(head.moments)
        elif head is not None:
            head.rescale(0.0, 1.0)  # for a policy trained with normalized values
        self.adam = self.optimizer(self.policy, lr=self.config.lr, clip=self.config.max_grad_norm)

    def update(self, batch: Batch) -> Metrics:
        config = self.config
        self.prepare(batch)
        passes: list[dict[str, Tensor]] = []
        for mini in batch.minibatches(config.minibatch, config.epochs, config.window):
            loss, shown = self.loss(mini, self.policy.unroll(mini))
            if config.target_kl is not None and float(shown["kl"]) > 1.5 * config.target_kl:
                break
            self.adam.step(loss)
            if shown:
                passes.append(shown)
        means = {name: torch.stack([shown[name] for shown in passes]).mean() for name in (passes[0] if passes else {})}
        return {**means, "passes": float(len(passes)), "lr": config.lr.at(self.clock.progress), **self.explained(batch)}

    @torch.no_grad()
    def prepare(self, batch: Batch) -> None:
        """Add the columns `advantage` and `target` (on the scale of the value head)."""
        config = self.config
        values, advantage, target = self.judged(batch)
        recorded = values
        if self.scale is not None and self.policy.value_head is not None:
            self.scale.observe(target, batch.valid, self.policy.value_head, batch.origin.ranks)
            target, recorded = self.scale.down(target), self.scale.down(values)
        if config.normalize_advantage == "batch":
            advantage = normalized(batch, advantage)
        batch.add(advantage=advantage, target=target, old_value=recorded)

    def judged(self, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
        """Values `[T+1, B]`, advantages and targets `[T, B]`, on the scale of returns."""
        values = batch.extra["value"]
        advantage = gae(batch.reward, values, batch.terminated, batch.cut, self.config.gamma, self.config.lam)
        return values, advantage, advantage + values[:-1]

    def loss(self, batch: Batch, heads: Heads) -> tuple[Tensor, dict[str, Tensor]]:
        """The loss of one minibatch; and in the last pass (with `target_kl` in every one) its metrics."""
        config, clip = self.config, self.config.clip.at(self.clock.progress)
        dist = self.policy.dist(heads, batch.mask)
        advantage = batch.advantage
        if config.normalize_advantage == "minibatch":
            advantage = normalized(batch, advantage)
        log_ratio = batch.zeroed(dist.log_prob(batch.action) - batch.extra["log_prob"], batch.choice)
        ratio = log_ratio.exp()
        # min(ratio * advantage, clip(ratio, 1 - clip, 1 + clip) * advantage): the second is the smaller one only at its bound
        gain = (ratio * advantage).clamp(max=advantage.add(advantage.abs(), alpha=clip))
        policy_loss = -batch.mean(gain, batch.choice)
        value_loss = batch.mean(self.value_error(batch, heads["value"]))
        loss = policy_loss.add(value_loss, alpha=config.value_weight)
        if bonus := config.entropy.at(self.clock.progress):
            loss = loss - bonus * batch.mean(dist.entropy(), batch.choice)
        if not batch.last_pass and config.target_kl is None:
            return loss, {}
        with torch.no_grad():
            away = ratio - 1.0
            shown = {
                "policy_loss": policy_loss.detach(),
                "value_loss": value_loss.detach(),
                "entropy": batch.estimate(dist.entropy(), batch.choice),
                "kl": (batch.estimate if config.target_kl is None else batch.mean)(away - log_ratio, batch.choice),
                "clip_fraction": batch.estimate((away.abs() > clip).float(), batch.choice),
            }
        return loss, shown

    def value_error(self, batch: Batch, value: Tensor) -> Tensor:
        """Squared error of the value; with clipping, the larger of the clipped and unclipped errors."""
        error: Tensor = (value - batch.target).square()
        width = self.config.value_clip
        if width is None:
            return error
        old = batch.old_value
        near = old + (value - old).clamp(-width, width)
        return torch.maximum(error, (near - batch.target).square())

    @torch.no_grad()
    def explained(self, batch: Batch) -> dict[str, Tensor]:
        """Explained variance of the targets by the old values: 1 all, 0 none."""
        target, value = batch.target, batch.old_value[:-1]
        spread = batch.mean((target - batch.mean(target)).square())
        left = target - value
        rest = batch.mean((left - batch.mean(left)).square())
        return {"explained_variance": 1.0 - rest / spread.clamp(min=1e-8)}


def normalized(batch: Batch, advantage: Tensor) -> Tensor:
    """Mean 0 and deviation 1 over the rows that enter the policy loss."""
    away = advantage - batch.mean(advantage, batch.choice)
    spread = batch.mean(away.square(), batch.choice).sqrt()
    return away / (spread + 1e-8)
