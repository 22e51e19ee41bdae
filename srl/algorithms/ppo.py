"""Proximal policy optimization (Schulman et al. 2017), with the options that later work found useful."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from srl.algorithms.ppo_plain import Weights, plain_pass
from srl.algorithms.returns import gae
from srl.algorithms.value_scale import ValueScale, read_by
from srl.api.algorithm import Algorithm, Batch, Heads, Metrics, Needs
from srl.api.neural import HandPass
from srl.api.policy import PolicySpec
from srl.api.slab import Window
from srl.core.load import option
from srl.core.schedule import Schedule


@dataclass(frozen=True, kw_only=True)
class PPOConfig:
    """Settings of PPO; defaults are those of Stable-Baselines3 where minibatches of this size allow it."""

    lr: Schedule = option(Schedule(5e-4), "learning rate of Adam", low=0)
    gamma: float = option(0.99, "discount of a step", low=0, high=1)
    lam: float = option(0.95, "lambda of the advantage estimate", low=0, high=1)
    clip: Schedule = option(Schedule(0.2), "half width of the trusted ratio interval", above=0)
    dual_clip: float | None = option(None, "bound of the loss of bad actions that became likely, such as 3", above=1)
    value_clip: float | None = option(None, "half width of the trusted change of a value", above=0)
    value_weight: float = option(0.5, "weight of the value loss", low=0)
    entropy: Schedule = option(Schedule(0.0), "weight of the entropy bonus", low=0)
    epochs: int = option(10, "passes over a batch", low=1)
    minibatch: int = option(128, "rows of a minibatch, at most", low=1)
    window: Window = option(
        Window(), "rows trained as one sequence: 16, or {burn_in: 8, length: 16}; default: the whole slab with memory, else 1"
    )
    max_grad_norm: float | None = option(0.5, "gradients are clipped to this norm", above=0)
    normalize_advantage: Literal["batch", "minibatch", "no"] = option("batch", "over these rows, or not at all")
    normalize_value: bool = option(False, "learn values on a running scale of the returns")
    target_kl: float | None = option(None, "leave out the rest of the passes beyond 1.5 of this divergence", above=0)
    plain: bool = option(
        True, "train towers and cells over vectors on CPU by hand, without autograd: the same numbers in less than half the time"
    )


class PPO(Algorithm):
    """Clipped surrogate on-policy learning."""

    Config = PPOConfig
    config: PPOConfig

    @classmethod
    def needs(cls, config: PPOConfig, spec: PolicySpec) -> Needs:
        return Needs(extra=("log_prob", "value"), window=config.window)

    def setup(self) -> None:
        self.scale = ValueScale(self.policy.value_moments) if self.config.normalize_value else None
        if self.scale is None and not torch.equal(self.policy.value_moments.cpu(), torch.tensor([0.0, 1.0])):
            read_by(self.policy, 0.0, 1.0)  # of a policy whose values were normalised before
        self._plain: HandPass | None = None
        self.adam = self.optimizer(self.policy, lr=self.config.lr, clip=self.config.max_grad_norm)

    def update(self, batch: Batch) -> Metrics:
        config = self.config
        self.prepare(batch)
        sums: dict[str, Any] = {}
        passes = 0
        train = self._train_plain if self._use_plain(batch) else self._train
        for mini in batch.minibatches(config.minibatch, config.epochs, config.window):
            metrics = train(mini)
            if metrics is None:
                break
            passes += 1
            for name, value in metrics.items():
                sums[name] = sums[name] + value if passes > 1 else value
        means: dict[str, Any] = {name: value / max(passes, 1) for name, value in sums.items()}
        return {**means, "passes": float(passes), "lr": config.lr.at(self.clock.progress), **self.explained(batch)}

    @torch.no_grad()
    def prepare(self, batch: Batch) -> None:
        """Add the columns `advantage` and `target` (on the scale of the value head)."""
        config = self.config
        values = recorded = batch.extra["value"]
        advantage = gae(batch.reward, values, batch.terminated, batch.cut, config.gamma, config.lam)
        target = advantage + values[:-1]
        if self.scale is not None:
            self.scale.observe(target, batch.valid, self.policy, batch.origin.ranks)
            target, recorded = self.scale.down(target), self.scale.down(values)
        if config.normalize_advantage == "batch":
            advantage = normalized(batch, advantage)
        batch.add(advantage=advantage, target=target, old_value=recorded)

    def loss(self, batch: Batch, heads: Heads) -> tuple[Tensor, Mapping[str, Tensor]]:
        """The loss of one minibatch, and what to show of it."""
        config, progress = self.config, self.clock.progress
        dist = self.policy.dist(heads, batch.mask)
        advantage = batch.advantage
        if config.normalize_advantage == "minibatch":
            advantage = normalized(batch, advantage)
        log_ratio = dist.log_prob(batch.action) - batch.extra["log_prob"]
        log_ratio = torch.where(batch.choice & batch.valid, log_ratio, 0.0)  # rows that are not trained must not overflow
        clip = config.clip.at(progress)
        policy_loss = batch.mean(surrogate(log_ratio, advantage, clip, config.dual_clip), batch.choice)
        value_loss = batch.mean(self.value_error(batch, heads["value"]))
        entropy = batch.mean(dist.entropy(), batch.choice)
        loss = policy_loss + config.value_weight * value_loss - config.entropy.at(progress) * entropy
        with torch.no_grad():
            ratio = log_ratio.exp()
            kl = batch.mean(ratio - 1.0 - log_ratio, batch.choice)
            clipped = batch.mean(((ratio - 1.0).abs() > clip).float(), batch.choice)
        shown = {"policy_loss": policy_loss, "value_loss": value_loss, "entropy": entropy, "kl": kl, "clip_fraction": clipped}
        return loss, {name: value.detach() for name, value in shown.items()}

    def value_error(self, batch: Batch, value: Tensor) -> Tensor:
        """Squared error of the value, pessimistic where it left its trusted interval."""
        error: Tensor = (value - batch.target).square()
        width = self.config.value_clip
        if width is None:
            return error
        old = batch.old_value
        near = old + (value - old).clamp(-width, width)
        return torch.maximum(error, (near - batch.target).square())

    def _train(self, batch: Batch) -> Mapping[str, Any] | None:
        """One step; None when the policy has moved too far."""
        loss, metrics = self.loss(batch, self.policy.unroll(batch))
        if self._too_far(metrics["kl"]):
            return None
        self.adam.step(loss)
        return metrics

    def _train_plain(self, batch: Batch) -> Mapping[str, Any] | None:
        config, progress = self.config, self.clock.progress
        weights = Weights(
            clip=config.clip.at(progress),
            dual_clip=config.dual_clip,
            value_clip=config.value_clip,
            value_weight=config.value_weight,
            entropy=config.entropy.at(progress),
            normalize=config.normalize_advantage == "minibatch",
        )
        assert self._plain is not None
        metrics = plain_pass(self._plain, batch, weights)
        if self._too_far(metrics["kl"]):
            return None
        self.adam.apply()
        return metrics

    def _too_far(self, kl: Any) -> bool:
        return self.config.target_kl is not None and float(kl) > 1.5 * self.config.target_kl

    def _use_plain(self, batch: Batch) -> bool:
        """Whether this batch trains by hand; then it gets the column `features`."""
        config = self.config
        usual = type(self).loss is PPO.loss and type(self).value_error is PPO.value_error and len(batch.lead) == 2
        if not (config.plain and usual and batch.origin.ranks is None):
            return False
        window = config.window.within(batch.lead[0] if batch.memories != {} else 1)
        length = window.length or 1
        rows = min(max(config.minibatch // length, 1), -(-batch.lead.numel() // length)) * window.rows
        if self._plain is None or self._plain.rows < rows:
            self._plain = self.policy.hand_pass(rows)
        if self._plain is None:
            return False
        batch.add(features=self._plain.features(batch.obs, batch.state))
        return True

    @torch.no_grad()
    def explained(self, batch: Batch) -> dict[str, Tensor]:
        """How much of the variance of the targets the old values explain: 1 all, 0 none."""
        target, value = batch.target, batch.old_value[:-1]
        spread = batch.mean((target - batch.mean(target)).square())
        left = target - value
        rest = batch.mean((left - batch.mean(left)).square())
        return {"explained_variance": 1.0 - rest / spread.clamp(min=1e-8)}


def surrogate(log_ratio: Tensor, advantage: Tensor, clip: float, dual_clip: float | None = None) -> Tensor:
    """The pessimistic loss of every row."""
    ratio = log_ratio.exp()
    gain = torch.minimum(ratio * advantage, ratio.clamp(1.0 - clip, 1.0 + clip) * advantage)
    if dual_clip is not None:  # Ye et al. 2020: the loss of a bad action that became likely is bounded
        gain = torch.where(advantage < 0, torch.maximum(gain, dual_clip * advantage), gain)
    return -gain


def normalized(batch: Batch, advantage: Tensor) -> Tensor:
    """Mean 0 and deviation 1 over the rows that enter the policy loss."""
    away = advantage - batch.mean(advantage, batch.choice)
    spread = batch.mean(away.square(), batch.choice).sqrt()
    return away / (spread + 1e-8)
