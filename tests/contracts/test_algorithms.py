"""Every algorithm passes the suite that `srl check algorithm` runs, and the suite catches what it is for."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch

from docs.examples.a2c import A2C
from srl.algorithms.bc import BC
from srl.algorithms.dqn import DQN
from srl.algorithms.ppo import PPO
from srl.api.algorithm import Batch, Metrics
from srl.config.shorthand import spelled_out
from srl.core.registry import REGISTRIES
from srl.core.types import Component
from srl.suites.algorithm import CHECKS, check_algorithm

SMALL = {"hidden": [8]}
SETTINGS: dict[str, dict[str, Any]] = {
    "ppo": {"epochs": 2, "normalize_value": True},
    "ppg": {"every": 3, "auxiliary_epochs": 1},
    "appo": {"epochs": 2, "objective": "decoupled"},
    "pqn": {"epochs": 2},
    "r2d2": {"burn_in": 2, "length": 4, "n_step": 2},
}
NEVER = {
    "bc": {"valid rows", "truncation", "recurrence", "ranks on halves"},
    "dqn": {"valid rows", "recurrence", "ranks on halves"},
    "r2d2": {"ranks on halves"},
    "ppg": {"recurrence"},
} | {name: {"valid rows", "masks", "recurrence", "ranks on halves"} for name in ("sac", "td3", "ddpg")}
"""What cannot be tried: off-policy rows are all valid and their noise is by rank, real actions have no mask."""


def checked(algorithm: str, **settings: Any) -> Any:
    used = spelled_out({"algorithm": algorithm}).get("policy", "actor_critic")
    policy = Component.from_plain(used)
    size = {"hidden": [8], "width": 8} if policy.use == "recurrent_q" else SMALL
    return check_algorithm(Component(algorithm, settings), Component(policy.use, {**policy.args, **size}))


@pytest.mark.parametrize(
    "name", sorted(set(REGISTRIES["algorithm"]._builtin) - {"distill"})
)  # which needs a run: test_distill.py
def test_every_algorithm_passes_its_suite(name: str) -> None:
    report = checked(name, **SETTINGS.get(name, {}))
    assert report.holds, "\n".join(report.lines())
    assert {finding.name for finding in report.findings if not finding.tried} == NEVER.get(name, set())


def test_the_example_passes() -> None:
    report = checked("docs/examples/a2c.py:A2C")
    assert report.holds and all(finding.tried for finding in report.findings), "\n".join(report.lines())


class CountsAllRows(A2C):
    def update(self, batch: Batch) -> Metrics:
        batch.valid = torch.ones_like(batch.valid)
        batch.choice = batch.valid
        return super().update(batch)


class BootstrapsBeyondTheEnd(A2C):
    def update(self, batch: Batch) -> Metrics:
        batch.terminated = torch.zeros_like(batch.terminated)
        return super().update(batch)


class TakesTruncationForTermination(A2C):
    def update(self, batch: Batch) -> Metrics:
        batch.terminated = batch.terminated | batch.truncated
        return super().update(batch)


class QTakesTruncationForTermination(DQN):
    def update(self, batch: Batch) -> Metrics:
        batch.discount = batch.discount * ~batch.truncated
        return super().update(batch)


class QNeverStops(DQN):
    def update(self, batch: Batch) -> Metrics:
        batch.discount = torch.full_like(batch.discount, 0.99)
        return super().update(batch)


class HasNoMask(A2C):
    def update(self, batch: Batch) -> Metrics:
        batch.mask = None
        return super().update(batch)


class BeginsWithoutMemory(A2C):
    def update(self, batch: Batch) -> Metrics:
        batch.memory = {name: torch.zeros_like(one) for name, one in batch.memory.items()}
        return super().update(batch)


class DrawsFromNumpy(A2C):
    def update(self, batch: Batch) -> Metrics:
        batch.reward = batch.reward + float(np.random.normal())
        return super().update(batch)


class IsAlwaysSeedZero(A2C):
    def setup(self) -> None:
        with torch.no_grad():
            for parameter in self.policy.parameters():
                parameter.fill_(0.1)
        super().setup()


class KeepsViews(A2C):
    last: Any = None

    def update(self, batch: Batch) -> Metrics:
        before, self.__dict__["last"] = self.last, batch.reward
        if before is not None:
            batch.reward = batch.reward + before
        return super().update(batch)


class ForgetsItsCount(A2C):
    def setup(self) -> None:
        super().setup()
        self.counter = itertools.count()

    def update(self, batch: Batch) -> Metrics:
        batch.reward = batch.reward * next(self.counter)
        return super().update(batch)


class HasOwnStatistics(A2C):
    def update(self, batch: Batch) -> Metrics:
        with torch.no_grad():
            self.policy.value.bias += batch.reward.mean()
        return super().update(batch)


class DecidesAlone(PPO):
    def update(self, batch: Batch) -> Metrics:
        metrics = super().update(batch)
        if batch.valid.float().mean() > 0.5:
            self.adam.step(batch.mean(self.policy.unroll(batch)["value"][:-1].square()))
        return metrics


class MeansOverOwnRows(BC):
    """Not seen by equal weights: the mean of a rank is not its part of the mean of all."""

    @classmethod
    def needs(cls, config: Any, spec: Any) -> Any:
        return A2C.needs(None, spec)  # type: ignore[arg-type]

    def loss(self, batch: Batch) -> Any:
        dist = self.policy.dist({"logits": self.policy.unroll(batch)["logits"][:-1]}, None)
        return -(dist.log_prob(batch.action) * batch.valid).sum() / batch.valid.sum(), dist.entropy().mean() * 0.0


class IsNotFinite(A2C):
    def update(self, batch: Batch) -> Metrics:
        return {**super().update(batch), "ratio": float("nan")}


BROKEN = {
    CountsAllRows: "valid rows",
    BootstrapsBeyondTheEnd: "termination",
    TakesTruncationForTermination: "truncation",
    QTakesTruncationForTermination: "truncation",
    QNeverStops: "termination",
    HasNoMask: "masks",
    BeginsWithoutMemory: "recurrence",
    DrawsFromNumpy: "seeds",
    IsAlwaysSeedZero: "seeds",
    KeepsViews: "memory of batches",
    ForgetsItsCount: "checkpoint",
    HasOwnStatistics: "ranks",
    DecidesAlone: "ranks",
    MeansOverOwnRows: "ranks on halves",
    IsNotFinite: "updates",
}


@pytest.mark.parametrize("kind", BROKEN, ids=lambda kind: kind.__name__)
def test_a_broken_algorithm_is_caught(kind: Any) -> None:
    policy = Component("q_network" if issubclass(kind, DQN) else "actor_critic", SMALL)
    report = check_algorithm(Component(f"{__name__}:{kind.__name__}"), policy, only=[BROKEN[kind]])
    assert report.failed == (BROKEN[kind],), "\n".join(report.lines())
    lines = report.lines()
    at = lines.index(next(line for line in lines if line.startswith("FAILED")))
    assert "with a discrete action" in lines[at + 1] and "likely: " in lines[at + 2]


def test_every_check_has_an_algorithm_that_breaks_it() -> None:
    assert set(BROKEN.values()) == set(CHECKS)
