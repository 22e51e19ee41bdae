"""Policies as torch modules for other programs: traced and exported."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from srl.api.batch import Batch
from srl.api.env import Box, Discrete
from srl.api.neural import Heads, NeuralPolicy
from srl.api.policy import Act, Ask, PolicySpec
from srl.core.load import load
from srl.core.spec import Leaf
from srl.nets.actor_critic import ActorCritic
from srl.nets.recurrent import Recurrent
from srl.plan.acting import zero_ask

ACTIONS: dict[str, Any] = {"discrete": Discrete(3), "box": Box((2,), (-1.0,) * 2, (1.0,) * 2)}


def made(policy: Any, config: dict[str, Any], action: str) -> Any:
    torch.manual_seed(0)
    return policy(load(policy.Config, config), PolicySpec(obs=Leaf((5,), "float32"), action=ACTIONS[action])).eval()


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::torch.jit.TracerWarning")
@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize("activation", ["tanh", "relu", "elu"])
def test_a_traced_policy_acts_as_its_original_on_any_number_of_rows(action: str, activation: str) -> None:
    policy = made(ActorCritic, {"activation": activation, "normalize_obs": True}, action)
    traced = torch.jit.trace(policy, torch.randn(3, 5))
    for rows in (1, 7):
        obs = torch.randn(rows, 5)
        torch.testing.assert_close(traced(obs).float(), policy(obs).float(), atol=1e-5, rtol=1e-4)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::torch.jit.TracerWarning")
@pytest.mark.parametrize("cell", ["gru", "lstm"])
@torch.no_grad()
def test_a_traced_policy_with_memory_takes_and_gives_it(cell: str) -> None:
    policy = made(Recurrent, {"cell": cell}, "discrete")
    obs = torch.randn(4, 3, 5)
    _, memory = policy(obs[0])
    traced = torch.jit.trace(policy, (obs[0], memory), strict=False)
    for row in obs[1:]:
        wanted, memory_of = policy(row, memory)
        action, after = traced(row, memory)
        assert torch.equal(action, wanted)
        torch.testing.assert_close(after["actor"], memory_of["actor"], atol=1e-5, rtol=1e-4)
        memory = memory_of


def test_an_exported_policy_acts_as_its_original() -> None:
    policy = made(ActorCritic, {}, "box")
    obs = torch.randn(6, 5)
    program = torch.export.export(policy, (obs,))
    torch.testing.assert_close(program.module()(obs), policy(obs), atol=1e-5, rtol=1e-4)


def test_a_copy_of_a_policy_runs_on_parameters_of_its_own() -> None:
    policy = made(ActorCritic, {}, "box")
    other, obs = copy.deepcopy(policy), torch.randn(6, 5)
    with torch.no_grad():
        for one in other.parameters():
            one.add_(0.1)
    assert not np.allclose(policy(obs).detach(), other(obs).detach())
    other(obs).sum().backward()
    assert all(one.grad is None for one in policy.parameters())


def test_a_policy_of_q_values_acts_by_its_heads() -> None:
    class Q(NeuralPolicy):
        def __init__(self, config: Any, spec: PolicySpec) -> None:
            super().__init__(config, spec)
            self.q = torch.nn.Linear(5, 3)

        def unroll(self, batch: Batch) -> Heads:
            return {"q": self.q(batch.obs)}

        def act(self, ask: Ask) -> Act:
            heads, mask = self.heads(ask)
            assert mask is None
            return self.answer(heads["q"].argmax(-1), heads, {"q": heads["q"].amax(-1)})

    spec = PolicySpec(obs=Leaf((5,), "float32"), action=Discrete(3))
    policy = Q(None, spec)
    obs = np.random.default_rng(0).standard_normal((4, 5)).astype(np.float32)
    act = policy.act(replace(zero_ask(spec, {}, 4), obs=obs))
    wanted = policy.q(torch.from_numpy(obs)).detach().numpy()
    np.testing.assert_array_equal(act.action, wanted.argmax(-1))
    np.testing.assert_allclose(act.extra["q"], wanted.max(-1), rtol=1e-6)
    assert act.memory == {} and policy.value_head is None
