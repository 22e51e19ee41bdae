"""Phasic policy gradient (Cobbe et al. 2021): PPO, and now and then a phase in which the policy's network learns from values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from srl.algorithms.ppo import PPO, PPOConfig
from srl.api.algorithm import Batch, Metrics
from srl.api.batch import Origin
from srl.core.errors import UserError
from srl.core.load import option
from srl.core.schedule import Schedule
from srl.core.tree import leaves
from srl.nets.actor_critic import ActorCritic
from srl.nets.mlp import value_layer

KEPT = "kept/"
"""The attributes that hold the rows of a phase, `[every, T, B, ...]`: tensors of fixed size, so that checkpoints have them."""


@dataclass(frozen=True, kw_only=True)
class PPGConfig(PPOConfig):
    """Settings of PPG: those of PPO and of the auxiliary phase."""

    epochs: int = option(1, "passes over a batch", low=1)
    every: int = option(32, "updates between two auxiliary phases; each trains on the rows of all these updates", low=1)
    auxiliary_epochs: int = option(6, "passes over these rows; 0: no auxiliary phase, plain PPO", low=0)
    auxiliary_minibatch: int = option(1024, "maximum rows per minibatch of the auxiliary phase", low=1)
    auxiliary_lr: Schedule = option(Schedule(5e-4), "learning rate of the auxiliary phase, which has its own Adam", low=0)
    clone: float = option(1.0, "weight of the KL divergence from the policy before the phase", low=0)


class PPG(PPO):
    """Actor and critic are separate networks. The auxiliary phase trains a second value head on the actor's, without changing how
    it acts."""

    Config = PPGConfig
    config: PPGConfig
    Policy = ActorCritic
    policy: ActorCritic

    def setup(self) -> None:
        if self.policy.critic is None:
            raise UserError("ppg must have a policy with separate networks", ("try", "policy.shared=false"), code="E10")
        super().setup()
        if self.config.auxiliary_epochs:
            self.auxiliary = value_layer(self.policy.value.in_features).to(self.device)
            self.steps = self.optimizer(self.policy, self.auxiliary, lr=self.config.auxiliary_lr, clip=self.config.max_grad_norm)

    def update(self, batch: Batch) -> Metrics:
        metrics = super().update(batch)
        if not self.config.auxiliary_epochs:
            return metrics
        place = self.clock.updates % self.config.every
        self.remember(batch, place)
        if place < self.config.every - 1:
            return metrics
        return {**metrics, **self.auxiliary_phase(batch.origin)}

    @torch.no_grad()
    def remember(self, batch: Batch, place: int) -> None:
        """Copy the rows of one update."""
        head = self.policy.value_head
        returns = batch.target if self.scale is None or head is None else head.returns(batch.target)
        tree = {"obs": batch.obs, "mask": batch.mask, "first": batch.first, "valid": batch.valid, "returns": returns}
        for path, leaf in leaves({name: one for name, one in tree.items() if one is not None}):
            held = vars(self).get(KEPT + path)
            if held is None:
                held = leaf.new_zeros((self.config.every, *leaf.shape))
                setattr(self, KEPT + path, held)
            held[place] = leaf

    def remembered(self, origin: Origin) -> Batch:
        """The rows of all updates of the phase, side by side."""
        rows: dict[str, Any] = {"mask": None, "state": None, "memories": {}, "memory": {}}
        for name, held in vars(self).items():
            if not name.startswith(KEPT):
                continue
            *above, last = name.removeprefix(KEPT).split("/")
            tree = rows
            for key in above:
                tree = tree.setdefault(key, {})
            tree[last] = held.transpose(0, 1).flatten(1, 2)
        rows["choice"] = rows["valid"]
        return Batch(rows, Origin(origin.seed, origin.update, ranks=origin.ranks, between=origin.between))

    def auxiliary_phase(self, origin: Origin) -> dict[str, Tensor]:
        """Train both networks on the returns of the phase; the policy stays close to the one that it was before."""
        config, batch = self.config, self.remembered(origin)
        target = batch.returns if self.scale is None else self.scale.down(batch.returns)
        with torch.no_grad():
            logits = self.policy.unroll(batch)["logits"][:-1].contiguous()
            log_std = None if self.policy.log_std is None else self.policy.log_std.clone()
        batch.add(target=target, old_logits=logits)
        passes: list[Tensor] = []
        for mini in batch.minibatches(config.auxiliary_minibatch, config.auxiliary_epochs):
            parts = self.auxiliary_loss(mini, log_std)
            self.steps.step(parts[0] + parts[1] + config.clone * parts[2])
            if mini.last_pass:
                passes.append(parts.detach())
        value, auxiliary, kl = torch.stack(passes).mean(0)
        return {"phase_value_loss": value, "phase_auxiliary_loss": auxiliary, "phase_kl": kl}

    def auxiliary_loss(self, batch: Batch, log_std: Tensor | None) -> Tensor:
        """`[3]`: errors of the critic and of the actor's value head, divergence from the policy before the phase."""
        policy = self.policy
        assert policy.critic is not None
        features = policy.encode(batch.obs)
        acting = policy.actor(features)
        value, auxiliary = policy.value(policy.critic(features)).squeeze(-1), self.auxiliary(acting).squeeze(-1)
        now, before = (
            {"logits": policy.logits(acting), "log_std": policy.log_std},
            {"logits": batch.old_logits, "log_std": log_std},
        )
        kl = policy.dist(before, batch.mask).kl(policy.dist(now, batch.mask))
        errors = [batch.mean(0.5 * (one - batch.target).square()) for one in (value, auxiliary)]
        return torch.stack([*errors, batch.mean(kl)])
