"""The learner on one device: state, publishing, optimizer."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from srl.api.algorithm import Clock
from srl.api.policy import Ask
from srl.core.schedule import Schedule
from srl.core.seeds import Rng, row_keys
from srl.learners.flat import KINDS, FlatAdam
from srl.nets.numpy_mlp import MLPPolicy
from tests.algorithms.slabs import make, record, train
from tests.errors import raises

CONFIG = {"minibatch": 20, "normalize_value": True, "lr": {"from": 1e-3, "to": 0.0}}
POLICY = {"normalize_obs": True}


def _run(learner: Any, updates: range) -> None:
    for update in updates:
        learner.clock.updates = update
        learner.clock.env_steps = 100 * update
        learner.clock.progress = update / 10
        learner.update(record(learner, seed=update))


def test_a_restored_learner_goes_on_bit_for_bit() -> None:
    straight = make(config=CONFIG, policy_config=POLICY)
    _run(straight, range(6))
    first = make(config=CONFIG, policy_config=POLICY)
    _run(first, range(3))
    groups, state = first.state()
    _run(first, range(3, 5))  # what was saved is a copy
    torch.rand(7)
    second = make(config=CONFIG, policy_config=POLICY, seed=0)
    second.restore(groups, state)
    assert second.clock == Clock(env_steps=200, updates=2, progress=0.2)
    _run(second, range(3, 6))
    (wanted, _), (found, _) = straight.state(), second.state()
    assert wanted.keys() == found.keys() == {"policy", "optimizer", "algorithm"}
    for group in ("policy", "optimizer", "algorithm"):
        assert wanted[group].keys() == found[group].keys()
        for name, array in wanted[group].items():
            if name != "torch_rng":
                np.testing.assert_array_equal(found[group][name], array, err_msg=name)
    assert "scale.mean" in wanted["algorithm"] and "normalizer.count" in wanted["policy"]


def test_the_state_is_plain_arrays_and_json() -> None:
    import json

    learner = make(config=CONFIG)
    groups, state = learner.state()
    assert json.loads(json.dumps(state)) == state
    assert all(isinstance(array, np.ndarray) and array.flags.owndata for named in groups.values() for array in named.values())


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({"hidden": [64, 32]}, r"actor\.layers\.1\.weight' is \(64, 64\) there and \(32, 64\) here"),
        ({"hidden": [64]}, r"actor\.layers\.1\.weight' is \(64, 64\) there and absent here"),
        ({"normalize_obs": True}, r"normalizer\.mean' is absent there"),
    ],
)
def test_layers_that_do_not_fit_are_named_and_nothing_is_taken(other: dict[str, Any], message: str) -> None:
    groups, state = make().state()
    learner = make(policy_config=other, seed=4)
    before = {name: array.copy() for name, array in learner.params().items()}
    with raises("E09", match=message):
        learner.restore(groups, state)
    for name, array in learner.params().items():
        np.testing.assert_array_equal(array, before[name])


def test_published_arrays_are_live_views_that_the_twin_acts_by() -> None:
    learner = make(policy_config=POLICY)
    params = learner.params()
    assert all(learner.params()[name] is array for name, array in params.items())
    before = params["actor.layers.0.weight"].copy()
    learner.update(record(learner))
    assert (params["actor.layers.0.weight"] != before).any()
    assert params["normalizer.count"] > 0  # the policy saw the rows before they are published
    twin = MLPPolicy(POLICY, learner.policy.spec)
    twin.load(params, 1)
    obs = np.random.default_rng(0).normal(size=(9, 5)).astype(np.float32)
    asks = [Ask(obs, {}, np.zeros(9, bool), None, None, np.arange(9), Rng(row_keys(0, np.arange(9), 0))) for _ in range(2)]
    ours, theirs = twin.act(asks[0]), learner.policy.act(asks[1])
    np.testing.assert_array_equal(ours.action, theirs.action)
    np.testing.assert_allclose(ours.extra["value"], theirs.extra["value"], atol=1e-5)


def test_a_policy_that_loads_parameters_acts_like_their_owner() -> None:
    learner, other = make(), make(seed=9)
    params = {name: array.copy() for name, array in learner.params().items()}
    other.policy.load(params, 3)
    assert other.policy.version == 3
    params["value.bias"][...] = 7.0  # its memory may be overwritten
    assert (other.params()["value.bias"] == learner.params()["value.bias"]).all()
    with raises("E09", match=r"value\.bias' is absent there"):
        other.policy.load({name: array for name, array in params.items() if name != "value.bias"}, 4)


def test_rows_that_cannot_be_written_are_taken_too() -> None:
    one, two = make(), make()
    rows, frozen = record(one), record(two)
    for leaf in (frozen["obs"], frozen["reward"], frozen["valid"]):
        leaf.flags.writeable = False
    one.update(rows)
    two.update(frozen)
    np.testing.assert_array_equal(one.params()["value.weight"], two.params()["value.weight"])


def test_metrics_are_means_since_they_were_last_asked_for() -> None:
    learner = make(config={"lr": {"from": 1.0, "to": 0.0}, "epochs": 1})
    for update, progress in enumerate((0.0, 0.5)):
        learner.clock.updates, learner.clock.progress = update, progress
        learner.update(record(learner))
    assert learner.metrics()["lr"] == 0.75
    assert learner.metrics() == {}


def test_agents_of_one_policy_are_rows_of_its_batch() -> None:
    learner = make(agents=3)
    rows = record(learner)
    batch = learner.intake.batch(rows, 0)
    assert batch.lead == (16, 18)
    np.testing.assert_array_equal(batch.reward[4, 7], rows["reward"][4, 2, 1])
    assert train(learner, rows)["passes"] >= 1


@pytest.mark.parametrize("clip", [None, 0.1])
def test_flat_adam_is_adam_with_clipped_gradients(clip: float | None) -> None:
    torch.manual_seed(0)
    ours, theirs = (nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)) for _ in range(2))
    theirs.load_state_dict(ours.state_dict())
    clock = Clock()
    flat = FlatAdam(list(ours.parameters()), clock, lr=Schedule(1e-2, 0.0), clip=clip)
    adam = torch.optim.Adam(theirs.parameters(), lr=1e-2, eps=1e-5)
    for step in range(20):
        clock.progress = step / 40
        x = torch.randn(16, 3)
        flat.step(ours(x).square().mean())
        adam.param_groups[0]["lr"] = 1e-2 * (1 - step / 40)
        adam.zero_grad()
        theirs(x).square().mean().backward()
        norm = nn.utils.clip_grad_norm_(theirs.parameters(), clip or 1e9)
        adam.step()
        if clip is not None:
            torch.testing.assert_close(flat.norm, norm)
    for one, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(one, other, atol=1e-6, rtol=1e-5)


def test_gradients_that_were_set_free_are_not_lost() -> None:
    layer, x = nn.Linear(3, 1), torch.randn(8, 3)
    flat = FlatAdam(list(layer.parameters()), Clock(), lr=0.1)
    before = layer.weight.clone()
    layer.zero_grad()  # sets them to None
    flat.step(layer(x).sum())
    assert (layer.weight != before).any()
    assert layer.weight.grad is not None and layer.weight.grad.data_ptr() == flat.grads[0].data_ptr()


def test_a_second_optimizer_may_share_parameters_with_the_first() -> None:
    """The auxiliary phase of PPG has an optimizer of its own over the same network."""
    layer, clock = nn.Linear(3, 1), Clock()
    first = FlatAdam(list(layer.parameters()), clock, lr=0.1)
    second = FlatAdam(list(layer.parameters()), clock, lr=0.1)
    x = torch.randn(8, 3)
    losses = []
    for optimizer in (first, second) * 20:
        loss = (layer(x) - 1.0).square().mean()
        optimizer.step(loss)
        losses.append(loss.item())
    assert losses[-1] < 0.2 * losses[0]
    assert layer.weight.data_ptr() == first.values[0].data_ptr()


TORCH: dict[str, Any] = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW, "rmsprop": torch.optim.RMSprop}


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        ("adam", {"betas": (0.5, 0.9), "eps": 1e-3, "weight_decay": 0.1}),
        ("adamw", {"eps": 1e-3, "weight_decay": 0.1}),
        ("rmsprop", {"alpha": 0.9, "eps": 1e-3, "weight_decay": 0.1}),
        ("rmsprop", {"momentum": 0.8}),
    ],
)
def test_optimizers_step_as_those_of_torch(kind: str, settings: dict[str, Any]) -> None:
    torch.manual_seed(0)
    ours, theirs = (nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)) for _ in range(2))
    theirs.load_state_dict(ours.state_dict())
    cls, defaults = KINDS[kind]
    flat = cls(list(ours.parameters()), Clock(), **{**defaults, "lr": 1e-2, "clip": 0.05, **settings})
    reference = TORCH[kind](theirs.parameters(), lr=1e-2, **settings)
    for _ in range(20):
        x = torch.randn(16, 3)
        flat.step(ours(x).square().mean())
        reference.zero_grad()
        theirs(x).square().mean().backward()
        nn.utils.clip_grad_norm_(theirs.parameters(), 0.05)
        reference.step()
    for one, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-4)
