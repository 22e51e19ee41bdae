"""R2D2 (Kapturowski et al. 2019): Q-learning with memory, on sequences that start from the recurrent state as recorded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from srl.algorithms.returns import n_step, squash, unsquash
from srl.api.algorithm import Algorithm, Batch, Metrics, Needs, Replayed, Window
from srl.api.policy import PolicySpec
from srl.core.load import option
from srl.core.schedule import Schedule
from srl.nets.q_policy import QPolicy, best_action, of_action
from srl.nets.target import Target


@dataclass(frozen=True, kw_only=True)
class R2D2Config:
    """Settings of R2D2. The defaults suit small tasks; the paper has sequences of 80 rows after a burn-in of 40."""

    lr: Schedule = option(Schedule(5e-4), "learning rate of Adam", low=0)
    gamma: float = option(0.99, "discount factor", low=0, high=1)
    burn_in: int = option(8, "rows before a sequence that only warm up the memory", low=0)
    length: int = option(32, "trained rows of a sequence", low=1)
    n_step: int = option(5, "number of rewards summed before the bootstrap value", low=1)
    double: bool = option(True, "double Q-learning: the network chooses the next action, its target network evaluates it")
    rescale: bool = option(True, "learn values on a scale that grows like a square root, so that returns need no clipping")
    prioritised: bool = option(True, "draw sequences by their errors")
    eta: float = option(
        0.9, "weight of the largest error in the priority of a sequence; the mean error has the rest", low=0, high=1
    )
    refresh: bool = option(False, "write the recurrent state after the burn-in back into the replay")
    epsilon: Schedule = option(Schedule(1.0, 0.05, until=0.1), "share of random actions, from the first update on", low=0, high=1)
    ladder: float = option(7.0, "with policy.rungs: the last rung explores with epsilon ** (1 + ladder)", low=0)
    target_every: int = option(1, "updates between two steps of the target network", low=1)
    tau: float = option(
        0.005, "how far it moves towards the network; 1: copy the network, for example with target_every=500", above=0, high=1
    )
    max_grad_norm: float | None = option(10.0, "maximum gradient norm; null: no clipping", above=0)


class R2D2(Algorithm):
    """n-step double Q-learning on sequences `[burn_in + length + n_step - 1, B]` of a replay."""

    Config = R2D2Config
    config: R2D2Config
    Policy = QPolicy
    policy: QPolicy

    @classmethod
    def needs(cls, config: R2D2Config, spec: PolicySpec) -> Needs:
        window = Window(burn_in=config.burn_in, length=config.length, after=config.n_step - 1)
        refreshed = config.refresh and config.burn_in > 0
        return Needs(window=window, replay=Replayed(gamma=config.gamma, prioritised=config.prioritised, refreshed=refreshed))

    def setup(self) -> None:
        self.adam = self.optimizer(self.policy, lr=self.config.lr, clip=self.config.max_grad_norm)
        self.target = Target(self.policy)

    def update(self, batch: Batch) -> Metrics:
        config, progress = self.config, self.clock.progress
        memory = self.warmed(self.policy, batch)
        q, target = self.values(batch, memory)
        rows = Batch({"valid": batch.valid[config.burn_in : config.burn_in + config.length]}, batch.origin)
        error = target - q  # [length, B]
        square = 0.5 * error.square()
        self.adam.step(rows.mean(square * batch.weight if config.prioritised else square))
        given: dict[str, Any] = {"memory": memory} if config.refresh and config.burn_in and memory != {} else {}
        if config.prioritised:
            given["priority"] = self.priority(error.detach().abs(), rows.valid)
        if given:
            batch.give_back(**given)
        if self.clock.updates % config.target_every == 0:
            self.target.follow(config.tau)
        epsilon = config.epsilon.at(progress)
        self.policy.explore(epsilon, config.ladder)
        shown = {"loss": rows.mean(square), "q": rows.mean(q), "error": rows.mean(error.abs())}
        return {**{name: one.detach() for name, one in shown.items()}, "epsilon": epsilon, "lr": config.lr.at(progress)}

    @torch.no_grad()
    def warmed(self, net: QPolicy, batch: Batch) -> Any:
        """The memory before the first trained row: the recorded one, carried through the burn-in."""
        start = self.config.burn_in
        return net.unroll(batch.asked(0, start)).get("memory", {}) if start else batch.memory

    def values(self, batch: Batch, memory: Any) -> tuple[Tensor, Tensor]:
        """Values of the actions taken and their targets, `[length, B]` each."""
        config, start = self.config, self.config.burn_in
        trained = slice(start, start + config.length)
        mine = self.policy.unroll(batch.asked(start, None, memory))["q"]
        with torch.no_grad():
            asked = batch.asked(start, None, self.warmed(self.target.net, batch))
            beyond = self.target.net.unroll(asked)["q"]
            value = of_action(beyond, best_action(mine if config.double else beyond, asked.mask))
            if config.rescale:
                value = unsquash(value)
            rewards, terminated, cut = batch.reward[start:], batch.terminated[start:], batch.cut[start:]
            target = n_step(rewards, value, terminated, cut, config.gamma, config.n_step)[: config.length]
            if config.rescale:
                target = squash(target)
        return of_action(mine[: config.length], batch.action[trained]), target

    def priority(self, error: Tensor, valid: Tensor) -> Tensor:
        """`[B]`: the largest error of a sequence, mixed with its mean."""
        error = error * valid
        mean = error.sum(0) / valid.sum(0).clamp(min=1)
        return self.config.eta * error.amax(0) + (1.0 - self.config.eta) * mean
