"""Deep Q-learning (Mnih et al. 2015) with its usual extensions: double, dueling, n-step, prioritised, distributional."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import huber_loss, mse_loss

from srl.algorithms.returns import project
from srl.api.algorithm import Algorithm, Batch, Heads, Metrics, Needs, Replayed, Window
from srl.api.policy import PolicySpec
from srl.core.errors import UserError
from srl.core.load import option
from srl.core.schedule import Schedule
from srl.nets.q_policy import QPolicy, best_action, of_action
from srl.nets.target import Target


@dataclass(frozen=True, kw_only=True)
class DQNConfig:
    """Settings of DQN. Dueling and distributional networks are settings of the policy: `policy.dueling`, `policy.atoms`."""

    lr: Schedule = option(Schedule(5e-4), "learning rate of Adam", low=0)
    gamma: float = option(0.99, "discount factor", low=0, high=1)
    n_step: int = option(3, "number of rewards summed before the bootstrap value", low=1)
    double: bool = option(True, "double Q-learning: the network chooses the next action, its target network evaluates it")
    prioritised: bool = option(False, "draw transitions by their errors")
    loss: Literal["huber", "mse"] = option("huber", "loss for each error; distributions always use cross-entropy")
    epsilon: Schedule = option(Schedule(1.0, 0.05, until=0.1), "share of random actions, from the first update on", low=0, high=1)
    ladder: float = option(7.0, "with policy.rungs: the last rung explores with epsilon ** (1 + ladder)", low=0)
    target_every: int = option(1, "updates between two steps of the target network", low=1)
    tau: float = option(
        0.005, "how far it moves towards the network; 1: copy the network, for example with target_every=500", above=0, high=1
    )
    max_grad_norm: float | None = option(10.0, "maximum gradient norm; null: no clipping", above=0)


class DQN(Algorithm):
    """Q-learning on single transitions of a replay."""

    Config = DQNConfig
    config: DQNConfig
    Policy = QPolicy
    policy: QPolicy

    @classmethod
    def needs(cls, config: DQNConfig, spec: PolicySpec) -> Needs:
        return Needs(
            window=Window(length=1),
            replay=Replayed(n_step=config.n_step, gamma=config.gamma, prioritised=config.prioritised),
        )

    def setup(self) -> None:
        if self.policy.memory != {}:
            raise UserError("dqn must have a policy without memory", ("try", "policy=q_network, or algorithm=r2d2"), code="E10")
        self.adam = self.optimizer(self.policy, lr=self.config.lr, clip=self.config.max_grad_norm)
        self.target = Target(self.policy)

    def update(self, batch: Batch) -> Metrics:
        config, progress = self.config, self.clock.progress
        heads = self.policy.unroll(batch.asked(0, 1))
        loss, error = self.loss(batch, heads)
        self.adam.step(batch.mean(loss * batch.weight if config.prioritised else loss))
        if config.prioritised:
            batch.give_back(priority=error[0])
        if self.clock.updates % config.target_every == 0:
            self.target.follow(config.tau)
        epsilon = config.epsilon.at(progress)
        self.policy.explore(epsilon, config.ladder)
        shown = {
            "loss": batch.mean(loss),
            "q": batch.estimate(of_action(heads["q"], batch.action)),
            "error": batch.estimate(error),
        }
        return {**{name: one.detach() for name, one in shown.items()}, "epsilon": epsilon, "lr": config.lr.at(progress)}

    def loss(self, batch: Batch, heads: Heads) -> tuple[Tensor, Tensor]:
        """The loss of every row `[1, B]`, and the size of its error (of distributions their divergence): its priority."""
        with torch.no_grad():
            later = batch.asked(1, 2)
            beyond = self.target.net.unroll(later)
            best = best_action(self.policy.unroll(later)["q"] if self.config.double else beyond["q"], later.mask)
            if "logits" in heads:
                chance = torch.softmax(of_action(beyond["logits"], best), -1)
                target = project(heads["points"], chance, batch.reward, batch.discount)
            else:
                target = batch.reward + batch.discount * of_action(beyond["q"], best)
        if "logits" in heads:
            loss = -(target * torch.log_softmax(of_action(heads["logits"], batch.action), -1)).sum(-1)
            return loss, (loss.detach() - torch.special.entr(target).sum(-1)).clamp(min=0.0)
        q = of_action(heads["q"], batch.action)
        loss = (huber_loss if self.config.loss == "huber" else mse_loss)(q, target, reduction="none")
        return loss, (target - q.detach()).abs()
