"""What an algorithm holds is in its checkpoints, or they are refused by its name."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from srl.algorithms.ppo import PPO
from srl.api.algorithm import Algorithm, Batch, Metrics
from srl.core.errors import UserError
from tests.algorithms.slabs import make, record


class Twins(PPO):
    """All that a checkpoint keeps, each changed by every update."""

    def setup(self) -> None:
        super().setup()
        self.critics: Any = [nn.Linear(2, 1), nn.Linear(2, 1)]
        self.targets: Any = {"a": nn.Linear(2, 2), "b": [nn.Linear(1, 1)]}
        self.alias = self.policy.value
        self.seen = torch.zeros(3)
        self.temperature = torch.zeros((), requires_grad=True)
        self.bounds = {"low": torch.zeros(1), "high": [np.zeros(2)]}
        self.adams = [self.optimizer(*self.critics, lr=0.1, kind="rmsprop"), self.optimizer(self.temperature, lr=0.1)]
        self.sgd = [torch.optim.SGD(self.targets.parameters(), lr=0.1, momentum=0.9)]
        self.count = 0
        self.gamma = self.config.gamma

    def update(self, batch: Batch) -> Metrics:
        self.adams[0].step(sum(critic(torch.ones(2)).square().sum() for critic in self.critics))
        self.adams[1].step((self.temperature - 1.0).square())
        self.sgd[0].zero_grad()
        sum(one.square().sum() for one in self.targets.parameters()).backward()
        self.sgd[0].step()
        self.sgd[0].param_groups[0]["lr"] *= 0.9
        self.seen += 1.0
        self.bounds["low"] -= 1.0
        self.bounds["high"][0] += 2.0  # type: ignore[index]
        self.count += 1
        self.made_late = torch.full((2,), float(self.count))
        return super().update(batch)


def test_what_an_algorithm_holds_goes_on_as_it_was() -> None:
    straight, first = make(algorithm=Twins), make(algorithm=Twins)
    for seed in range(4):
        straight.update(record(straight, seed=seed))
    for seed in range(2):
        first.update(record(first, seed=seed))
    groups, state = first.state()
    state = json.loads(json.dumps(state))
    second = make(algorithm=Twins, seed=7, config={"gamma": 0.5})
    second.restore(groups, state)
    assert (second.algorithm.count, second.algorithm.gamma) == (2, 0.5)  # a setting is the new one's
    second = make(algorithm=Twins)
    second.update(record(second, seed=9))
    second.restore(groups, state)
    for seed in range(2, 4):
        second.update(record(second, seed=seed))
    (wanted, numbers), (found, theirs) = straight.state(), second.state()
    assert numbers["numbers"] == theirs["numbers"] == {"count": 4}
    for group, arrays in wanted.items():
        assert arrays.keys() == found[group].keys()
        for name, array in arrays.items():
            if name != "torch_rng":
                np.testing.assert_array_equal(found[group][name], array, err_msg=name)
    names = {"critics.1.weight", "targets.b.0.bias", "seen", "temperature", "bounds.low", "bounds.high.0", "made_late"}
    assert names <= wanted["algorithm"].keys()
    assert not any("value" in name or "policy" in name for name in wanted["algorithm"])


def test_an_algorithm_without_settings_needs_no_config() -> None:
    class Short(Algorithm):
        def update(self, batch: Batch) -> Metrics:
            return {"rows": batch.count()}

    learner = make(algorithm=Short)
    learner.update(record(learner))
    assert learner.metrics()["rows"] > 1
    with pytest.raises(UserError) as caught:
        make(algorithm=Short, config={"lr": 1.0})
    assert caught.value.code == "E02"


def test_networks_among_other_things_are_refused_at_once() -> None:
    class Mixed(PPO):
        def setup(self) -> None:
            self.parts = [nn.Linear(1, 1), "a name"]

    with pytest.raises(UserError, match=r"self\.parts\.0 .*network"):
        make(algorithm=Mixed)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("late", lambda one: setattr(one, "late", nn.Linear(1, 1))),
        ("history", lambda one: one.history.append(1.0)),
        ("grows", lambda one: setattr(one, "grows", torch.cat([one.grows, one.grows]))),
        ("more.b", lambda one: one.more.update(b=torch.zeros(1))),
    ],
)
def test_what_a_resume_would_lose_is_refused_by_name_at_the_first_save(name: str, change: Any) -> None:
    class Losing(PPO):
        def setup(self) -> None:
            super().setup()
            self.history: list[float] = []
            self.grows = torch.zeros(2)
            self.more = {"a": torch.zeros(1)}

    learner = make(algorithm=Losing)
    learner.state()
    change(learner.algorithm)
    with pytest.raises(UserError, match=rf"self\.{name} "):
        learner.state()
