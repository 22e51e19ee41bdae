"""An off-policy algorithm that checks every row it is given: those of the fake env say who they are (srl/envs/fake.py)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from srl.api.algorithm import Algorithm, Batch, Metrics, Needs, Replayed, Window
from srl.core.option import option

ENV, EPISODE, STEP, AGENT, ACTION = range(5)


@dataclass(frozen=True, kw_only=True)
class WitnessConfig:
    n_step: int = option(1, "rewards in a sum")
    gamma: float = option(0.9, "discount")
    prioritised: bool = option(False, "hand priorities back")


class Witness(Algorithm):
    """Learns to predict rewards, so that its weights depend on every row that was drawn."""

    Config = WitnessConfig

    @classmethod
    def needs(cls, config: Any, spec: Any) -> Needs:
        replay = Replayed(n_step=config.n_step, gamma=config.gamma, prioritised=config.prioritised)
        return Needs(window=Window(length=1), replay=replay)

    def setup(self) -> None:
        self.adam = self.optimizer(self.policy, lr=1e-3)
        self.truncations = self.terminations = 0

    def update(self, batch: Batch) -> Metrics:
        now, later = batch.obs
        moved = (later - now)[:, STEP]
        ended = batch.terminated[0] | batch.truncated[0]
        assert batch.valid.all() and (batch.discount.shape == batch.reward.shape)
        assert (later[:, (ENV, EPISODE, AGENT)] == now[:, (ENV, EPISODE, AGENT)]).all()
        short = (moved < self.config.n_step) & ~ended  # at the newest rows: what follows is not known yet
        assert (moved >= 1).all() and (moved <= self.config.n_step).all() and short.float().mean() < 0.2
        if self.config.n_step == 1:
            taken = batch.action[0].flatten(1).clamp(-1, 1) if batch.action.is_floating_point() else batch.action[0][:, None]
            torch.testing.assert_close(later[:, ACTION], taken.sum(1).float())
        powers = self.config.gamma ** moved
        torch.testing.assert_close(batch.discount[0], torch.where(batch.terminated[0], 0.0, powers))
        assert batch.ids.unique().numel() > 1 and (batch.weight <= 1).all()
        self.terminations += int(batch.terminated.sum())
        self.truncations += int(batch.truncated.sum())
        loss = batch.mean((self.policy.unroll(batch)["value"][0] - batch.reward).square())
        self.adam.step(loss)
        if self.config.prioritised:
            batch.give_back(priority=torch.ones(batch.ids.shape))
        return {"loss": loss}


class Shares(Witness):
    """Counts the rows of an env that no actor has."""

    def update(self, batch: Batch) -> Metrics:
        self.given = int((batch.obs[0][:, ENV] == 99).sum())
        return super().update(batch)


class Silent(Algorithm):
    """The same of any env: learns, and checks nothing."""

    @classmethod
    def needs(cls, config: Any, spec: Any) -> Needs:
        return Needs(window=Window(length=1), replay=Replayed())

    def setup(self) -> None:
        self.adam = self.optimizer(self.policy, lr=1e-3)

    def update(self, batch: Batch) -> Metrics:
        loss = batch.mean((self.policy.unroll(batch)["value"][0] - batch.reward).square())
        self.adam.step(loss)
        return {"loss": loss}
