"""Every policy passes the suite that `srl check policy` runs, and the suite catches what it is for."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from docs.examples.my_net import Normed, NormedConfig
from srl.api.batch import Batch
from srl.api.neural import Heads
from srl.api.policy import Act, Ask, PolicySpec
from srl.core.registry import REGISTRIES
from srl.core.types import Component
from srl.nets.actor_critic import ActorCritic
from srl.nets.numpy_mlp import MLPPolicy
from srl.nets.recurrent import Recurrent
from srl.suites.policy import CHECKS, check_policy

SMALL: dict[str, dict[str, Any]] = {
    "actor_critic": {"hidden": [8], "normalize_obs": True},
    "recurrent": {"hidden": [8], "width": 8, "cell": "lstm", "normalize_obs": True},
    "q_network": {"hidden": [8], "dueling": True, "normalize_obs": True},
    "recurrent_q": {"hidden": [8], "width": 8},
    "squashed_gaussian": {"hidden": [8]},
    "deterministic": {"hidden": [8]},
    "entity": {"env": "hide_and_seek"},
}


@pytest.mark.parametrize("name", SMALL)
def test_every_policy_passes_its_suite(name: str) -> None:
    settings = dict(SMALL[name])
    env = settings.pop("env", None)
    report = check_policy(Component(name, settings), None if env is None else Component(env))
    assert report.holds, "\n".join(report.lines())


def test_no_policy_is_left_out() -> None:
    assert set(SMALL) == set(REGISTRIES["policy"]._builtin)


def test_a_scripted_policy_is_asked_about_rows_of_its_env() -> None:
    report = check_policy(Component("docs/examples/pennies.py:Repeat"), Component("docs/examples/pennies.py:Pennies"))
    assert report.holds and sum(bool(finding.tried) for finding in report.findings) == 5


class WrongDtype(Normed):
    def act(self, ask: Ask) -> Act:
        act = super().act(ask)
        act.action = np.asarray(act.action).astype(np.int32)
        return act


class IgnoresMasks(Normed):
    def dist(self, heads: Heads, mask: Any = None) -> Any:
        return super().dist(heads, None)


class DrawsFromTorch(Normed):
    def act(self, ask: Ask) -> Act:
        ask.obs = ask.obs + 0.1 * torch.randn(ask.obs.shape).numpy()
        return super().act(ask)


class IsNeverGreedy(Normed):
    def act(self, ask: Ask) -> Act:
        ask.greedy = False
        return super().act(ask)


class NormalizesTheQuestion(Normed):
    def unroll(self, batch: Batch) -> Heads:
        return super().unroll(batch.add(obs=batch.obs - batch.obs.mean((0, 1))))


class MovesItsStatistics(Normed):
    def __init__(self, config: NormedConfig, spec: PolicySpec) -> None:
        super().__init__(config, spec)
        self.register_buffer("seen", torch.zeros(()))

    def unroll(self, batch: Batch) -> Heads:
        self.seen += 1.0
        return super().unroll(batch)


class SeesRowsThatAreNotValid(MovesItsStatistics):
    def unroll(self, batch: Batch) -> Heads:
        return Normed.unroll(self, batch)

    def observe(self, batch: Batch) -> None:
        self.seen.copy_(batch.obs.mean())


class KeepsAnArray(Normed):
    """What it acts by is no parameter."""

    def __init__(self, config: NormedConfig, spec: PolicySpec) -> None:
        super().__init__(config, spec)
        self.scale = float(torch.rand(())) + 0.5

    def unroll(self, batch: Batch) -> Heads:
        return super().unroll(batch.add(obs=batch.obs * self.scale))


class TrainsOtherwise(Normed):
    def act(self, ask: Ask) -> Act:
        ask.obs = ask.obs * 2.0
        return super().act(ask)


class RemembersTooLong(Recurrent):
    def unroll(self, batch: Batch) -> Heads:
        return super().unroll(Batch({**vars(batch), "first": torch.zeros_like(batch.first)}, batch.origin))


class ForgetsAtTheCut(Recurrent):
    def unroll(self, batch: Batch) -> Heads:
        heads = super().unroll(batch)
        return {**heads, "memory": {name: torch.zeros_like(one) for name, one in heads["memory"].items()}}


class OtherTwin(MLPPolicy):
    def act(self, ask: Ask) -> Act:
        ask.obs = ask.obs + 0.1
        return super().act(ask)


class HasAnotherTwin(ActorCritic):
    def numpy_twin(self) -> str | None:
        return f"{__name__}:OtherTwin"


class Fixed(Normed):
    """It has one seed for all."""

    def act(self, ask: Ask) -> Act:
        ask.rng.keys = ask.ids.astype(np.uint64)
        return super().act(ask)


BROKEN: dict[type[nn.Module], str] = {
    WrongDtype: "answer",
    IgnoresMasks: "masks",
    DrawsFromTorch: "noise",
    Fixed: "seeds",
    IsNeverGreedy: "greedy",
    NormalizesTheQuestion: "rows",
    MovesItsStatistics: "evaluation",
    SeesRowsThatAreNotValid: "statistics",
    KeepsAnArray: "checkpoint",
    TrainsOtherwise: "training",
    ForgetsAtTheCut: "recurrence",
    RemembersTooLong: "new episodes",
    HasAnotherTwin: "numpy twin",
}


@pytest.mark.parametrize("kind", BROKEN, ids=lambda kind: kind.__name__)
def test_a_broken_policy_is_caught(kind: type[nn.Module]) -> None:
    report = check_policy(Component(f"{__name__}:{kind.__name__}"), only=[BROKEN[kind]])
    assert report.failed == (BROKEN[kind],), "\n".join(report.lines())


def test_every_check_has_a_policy_that_breaks_it() -> None:
    assert set(BROKEN.values()) == set(CHECKS)
