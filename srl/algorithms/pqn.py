"""PQN (Gallici et al. 2024): Q-learning on the newest rows, with layer normalization instead of a replay and a target."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from srl.algorithms.returns import gae
from srl.api.algorithm import Algorithm, Batch, Metrics, Needs
from srl.api.policy import PolicySpec
from srl.api.slab import Window
from srl.core.load import option
from srl.core.schedule import Schedule
from srl.nets.q_policy import QPolicy, best_action, of_action


@dataclass(frozen=True, kw_only=True)
class PQNConfig:
    """Settings of PQN. What keeps it stable is a setting of the policy: `policy.layer_norm`, on unless `policy.use` is given."""

    lr: Schedule = option(Schedule(2.5e-4), "learning rate of Adam", low=0)
    gamma: float = option(0.99, "discount factor", low=0, high=1)
    lam: float = option(0.65, "lambda of Q(lambda); 0: one-step targets, 1: as many steps as there are", low=0, high=1)
    epsilon: Schedule = option(Schedule(1.0, 0.05, until=0.2), "share of random actions, from the first update on", low=0, high=1)
    ladder: float = option(7.0, "with policy.rungs: the last rung explores with epsilon ** (1 + ladder)", low=0)
    epochs: int = option(4, "passes over a batch", low=1)
    minibatch: int = option(128, "maximum rows per minibatch", low=1)
    window: Window = option(
        Window(), "rows per training sequence: 16, or {burn_in: 8, length: 16}; default: the whole slab if recurrent, else 1"
    )
    max_grad_norm: float | None = option(10.0, "maximum gradient norm; null: no clipping", above=0)


class PQN(Algorithm):
    """Q(lambda) without a replay and without a target network."""

    Config = PQNConfig
    config: PQNConfig
    Policy = QPolicy
    policy: QPolicy

    @classmethod
    def needs(cls, config: PQNConfig, spec: PolicySpec) -> Needs:
        return Needs(window=config.window)

    def setup(self) -> None:
        self.adam = self.optimizer(self.policy, lr=self.config.lr, clip=self.config.max_grad_norm)

    def update(self, batch: Batch) -> Metrics:
        config, progress = self.config, self.clock.progress
        batch.add(target=self.targets(batch))
        shown: list[Tensor] = []
        for mini in batch.minibatches(config.minibatch, config.epochs, config.window):
            q = of_action(self.policy.unroll(mini)["q"], mini.action)
            loss = mini.mean(0.5 * (q - mini.target).square())
            self.adam.step(loss)
            if mini.last_pass:
                shown.append(torch.stack([loss.detach(), mini.mean(q.detach())]))
        loss, mean = torch.stack(shown).mean(0)
        epsilon = config.epsilon.at(progress)
        self.policy.explore(epsilon, config.ladder)
        return {"loss": loss, "q": mean, "target": batch.mean(batch.target), "epsilon": epsilon, "lr": config.lr.at(progress)}

    @torch.no_grad()
    def targets(self, batch: Batch) -> Tensor:
        """Q(lambda) of Peng, `[T, B]`: lambda-returns over the values of the best actions, which GAE gives less these values."""
        q = self.policy.unroll(batch)["q"]
        best = of_action(q, best_action(q, batch.mask))
        return best[:-1] + gae(batch.reward, best, batch.terminated, batch.cut, self.config.gamma, self.config.lam)
