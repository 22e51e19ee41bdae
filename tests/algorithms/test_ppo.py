"""PPO against slow references: its loss, its networks as nodes, its order of updates."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from srl.algorithms.ppo import PPO, normalized
from srl.algorithms.returns import gae
from srl.api.algorithm import Batch
from srl.api.env import Box, Discrete, MultiBinary, MultiDiscrete
from srl.api.neural import Heads, NeuralPolicy
from srl.api.slab import Window
from srl.core.spec import Leaf
from srl.nets.dists import make_dist
from srl.nets.numpy_mlp import ActorCriticConfig, MLPPolicy
from srl.plan.acting import zero_ask
from tests.algorithms.slabs import make, record, train

UNIT = Box((2,), (-1.0,) * 2, (1.0,) * 2)
ACTIONS: dict[str, Any] = {
    "discrete": Discrete(3),
    "multi_discrete": MultiDiscrete((3, 2)),
    "multi_binary": MultiBinary(4),
    "box": UNIT,
    "dict": {"move": Discrete(3), "aim": UNIT},
}
OPTIONS: dict[str, dict[str, Any]] = {
    "usual": {"minibatch": 20},
    "entropy": {"minibatch": 33, "entropy": 0.03},
    "clips": {"minibatch": 20, "value_clip": 0.05, "clip": 0.02},
    "minibatch": {"minibatch": 20, "normalize_advantage": "minibatch", "entropy": 0.01},
    "popart": {"minibatch": 20, "normalize_value": True},
}


def _surrogate(log_ratio: float, advantage: float, clip: float) -> float:
    """As in the paper."""
    ratio = float(np.exp(log_ratio))
    return -min(ratio * advantage, min(max(ratio, 1 - clip), 1 + clip) * advantage)


@pytest.mark.parametrize("mask", [False, True])
def test_the_loss_is_that_of_a_loop_over_rows(mask: bool) -> None:
    learner = make(Discrete(3), mask=mask, config={"value_clip": 0.1, "entropy": 0.02, "normalize_advantage": "no"})
    rows = record(learner)
    noise = np.random.default_rng(1)
    rows["extra"]["log_prob"] += 0.3 * noise.normal(size=rows["extra"]["log_prob"].shape).astype(np.float32)
    rows["extra"]["value"] += 0.2 * noise.normal(size=rows["extra"]["value"].shape).astype(np.float32)
    algorithm: PPO = learner.algorithm  # type: ignore[assignment]
    batch = learner.intake.batch(rows, 0)
    algorithm.prepare(batch)
    (mini,) = batch.minibatches(10_000)
    found, shown = algorithm.loss(mini, learner.policy.unroll(mini))

    with torch.no_grad():
        heads = learner.policy.unroll(batch)
    policy, value, entropy, valid, choices = 0.0, 0.0, 0.0, 0, 0
    for t in range(16):
        for b in range(6):
            if not rows["valid"][t, b, 0]:
                continue
            valid += 1
            logits = heads["logits"][t, b].double()
            if mask:
                allowed = torch.from_numpy(rows["mask"][t, b, 0])
                logits = logits.masked_fill(~allowed, -np.inf) if allowed.any() else logits
            log = torch.log_softmax(logits, 0)
            target, old = float(batch.target[t, b]), float(rows["extra"]["value"][t, b, 0])
            new = float(heads["value"][t, b])
            value += max((new - target) ** 2, (old + min(max(new - old, -0.1), 0.1) - target) ** 2)
            if not mask or rows["choice"][t, b, 0]:
                choices += 1
                ratio = float(log[int(rows["action"][t, b, 0])]) - float(rows["extra"]["log_prob"][t, b, 0])
                policy += _surrogate(ratio, float(batch.advantage[t, b]), 0.2)
                entropy -= sum(float(one.exp() * one) for one in log if torch.isfinite(one))
    assert shown["policy_loss"].item() == pytest.approx(policy / choices, abs=1e-5)
    assert shown["value_loss"].item() == pytest.approx(value / valid, abs=1e-5)
    assert shown["entropy"].item() == pytest.approx(entropy / choices, abs=1e-5)
    assert found.item() == pytest.approx(policy / choices + 0.5 * value / valid - 0.02 * entropy / choices, abs=1e-5)


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("mask", [False, True])
@pytest.mark.parametrize("action", ACTIONS)
def test_towers_as_one_node_learn_what_their_layers_learn(
    action: str, mask: bool, options: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if mask and action == "box":
        pytest.skip("boxes have no mask")
    results = []
    for node in (True, False):
        monkeypatch.setattr("srl.nets.actor_critic.runs_in_numpy", lambda features, node=node: node)
        learner = make(
            ACTIONS[action],
            mask=mask,
            config={**OPTIONS[options], "lr": 1e-3, "epochs": 4},
            policy_config={"normalize_obs": True, "hidden": [16, 32]},
        )
        for update in range(3):
            learner.clock.updates = update
            learner.update(record(learner, seed=update))
        results.append((learner.metrics(), {name: array.copy() for name, array in learner.params().items()}))
    (metrics, params), (wanted_metrics, wanted) = results
    for name in wanted:
        np.testing.assert_allclose(params[name], wanted[name], atol=2e-4, rtol=1e-3, err_msg=name)
    assert metrics.keys() == wanted_metrics.keys()
    for name, number in wanted_metrics.items():
        assert metrics[name] == pytest.approx(number, abs=2e-3, rel=2e-3), name


def test_the_first_ratio_is_one_although_the_normaliser_moves() -> None:
    learner = make(config={"epochs": 1, "minibatch": 10_000}, policy_config={"normalize_obs": True})
    for update in range(3):
        learner.clock.updates = update
        metrics = train(learner, record(learner, seed=update))
        assert float(metrics["kl"]) < 1e-6
        assert float(metrics["clip_fraction"]) == 0.0
    assert learner.policy.normalizer.count > 0  # type: ignore[union-attr]


def test_two_runs_are_equal_bit_for_bit_and_rows_may_be_reused() -> None:
    results = []
    for spoil in (False, True):
        learner = make(config={"minibatch": 20})
        for update in range(3):
            learner.clock.updates = update
            rows = record(learner, seed=update)
            learner.update(rows)
            if spoil:
                for name in ("obs", "reward"):
                    rows[name][...] = np.nan
        results.append({name: array.copy() for name, array in learner.params().items()})
    for name in results[0]:
        np.testing.assert_array_equal(results[0][name], results[1][name])


@pytest.mark.parametrize("log_prob", [50.0, -500.0])
def test_rows_that_are_not_valid_change_nothing(log_prob: float) -> None:
    results = []
    for spoil in (False, True):
        learner = make(mask=True, config={"minibatch": 20})
        rows = record(learner)
        if spoil:
            off = ~rows["valid"]
            rows["reward"][off] = 1e6
            rows["action"][off] = 2
            rows["extra"]["log_prob"][:-1][off | ~rows["choice"]] = log_prob
        learner.update(rows)
        results.append({name: array.copy() for name, array in learner.params().items()})
    for name in results[0]:
        np.testing.assert_array_equal(results[0][name], results[1][name])


def test_target_kl_leaves_out_the_rest_of_the_passes() -> None:
    learner = make(config={"minibatch": 20, "lr": 0.05, "target_kl": 1e-4, "epochs": 10})
    metrics = train(learner, record(learner))
    assert 1 <= metrics["passes"] < 50


def test_schedules_follow_the_progress_of_the_run() -> None:
    learner = make(config={"lr": {"from": 1e-3, "to": 0.0}})
    before = {name: array.copy() for name, array in learner.params().items()}
    learner.clock.progress = 1.0
    assert train(learner, record(learner))["lr"] == 0.0
    for name, array in learner.params().items():
        np.testing.assert_array_equal(array, before[name])


def test_popart_keeps_what_the_values_say_when_the_scale_moves() -> None:
    learner = make(config={"normalize_value": True})
    algorithm: PPO = learner.algorithm  # type: ignore[assignment]
    scale = algorithm.scale
    assert scale is not None
    twin = MLPPolicy({}, learner.policy.spec)
    ask = replace(zero_ask(learner.policy.spec, {}, 50), obs=np.random.default_rng(0).standard_normal((50, 5)).astype(np.float32))
    said = learner.policy.act(ask).extra["value"]
    for shift in (0.0, 100.0, -3.0):
        scale.observe(torch.randn(8, 8) * 30.0 + shift, torch.ones(8, 8, dtype=torch.bool), learner.policy.value)
        twin.load(learner.params(), 0)
        for policy in (learner.policy, twin):
            np.testing.assert_allclose(policy.act(ask).extra["value"], said, atol=1e-3, rtol=1e-4)


def test_values_that_an_older_version_recorded_are_read_as_it_meant_them() -> None:
    learner = make(config={"normalize_value": True})
    rows = record(learner)
    rows["reward"][...] += 20.0
    meant = learner.intake.batch(rows, 0).extra["value"].clone()
    for _ in range(3):  # of staleness
        learner.update(rows)
        batch = learner.intake.batch(rows, 0)
        learner.algorithm.prepare(batch)  # type: ignore[operator]
        advantage = gae(batch.reward, meant, batch.terminated, batch.cut, 0.99, 0.95)
        torch.testing.assert_close(batch.advantage, normalized(batch, advantage))
    assert learner.policy.value.moments[0] > 1.0


@pytest.mark.parametrize("normalize", [True, False])
def test_a_policy_whose_values_were_normalised_goes_on_with_them(normalize: bool) -> None:
    first = make(config={"normalize_value": True})
    for seed in range(3):
        rows = record(first, seed=seed)
        rows["reward"][...] += 20.0
        first.update(rows)
    ask = replace(zero_ask(first.policy.spec, {}, 50), obs=np.random.default_rng(0).standard_normal((50, 5)).astype(np.float32))
    said = first.policy.act(ask).extra["value"]
    second = make(config={"normalize_value": normalize}, weights=first.params())
    np.testing.assert_allclose(second.policy.act(ask).extra["value"], said, atol=1e-3, rtol=1e-4)
    assert (second.policy.value.moments.tolist() != [0.0, 1.0]) is normalize
    if normalize:
        assert second.algorithm.scale.moments() == pytest.approx(second.policy.value.moments.tolist(), rel=1e-4)  # type: ignore[union-attr, operator]


class Recurrent(NeuralPolicy):
    """A GRU, as short as can be."""

    Config: ClassVar[type] = ActorCriticConfig
    memory: ClassVar[Any] = {"h": Leaf((8,), "float32")}
    reads: ClassVar[Any] = ("obs",)

    def __init__(self, config: Any, spec: Any) -> None:
        super().__init__(config, spec)
        self.cell = nn.GRUCell(5, 8)
        self.logits, self.value = nn.Linear(8, 3), nn.Linear(8, 1)

    def unroll(self, batch: Batch) -> Heads:
        hidden, outs = batch.memory["h"], []
        for t in range(len(batch.obs)):
            hidden = hidden * ~batch.first[t][:, None]
            hidden = self.cell(batch.obs[t], hidden)
            outs.append(hidden)
        top = torch.stack(outs)
        return {"logits": self.logits(top), "value": self.value(top).squeeze(-1), "memory": {"h": hidden}}

    def dist(self, heads: Heads, mask: Any = None) -> Any:
        return make_dist(self.spec.action, heads["logits"], mask)


@pytest.mark.parametrize(("every", "chunk", "burn_in"), [(4, 4, 0), (2, 4, 4), (4, 8, 4), (2, 8, 6)])
def test_chunks_of_a_policy_with_memory_repeat_what_was_recorded(every: int, chunk: int, burn_in: int) -> None:
    learner = make(
        policy=Recurrent, memory_every=every, config={"window": {"length": chunk, "burn_in": burn_in}, "minibatch": 32}
    )
    rows = record(learner)
    batch = learner.intake.batch(rows, 0).add(place=torch.arange(16 * 6).view(16, 6))
    seen: list[Tensor] = []
    for mini in batch.minibatches(32, 1, Window(burn_in, chunk)):
        heads = learner.policy.unroll(mini)
        new = learner.policy.dist(heads).log_prob(mini.action)
        trained = mini.valid
        torch.testing.assert_close(new[trained], mini.extra["log_prob"][trained], atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(heads["value"][trained], mini.extra["value"][trained], atol=1e-5, rtol=1e-5)
        seen.append(mini.place[trained])
    places = torch.cat(seen).sort().values
    torch.testing.assert_close(places, torch.from_numpy(rows["valid"][..., 0]).flatten().nonzero()[:, 0])
    assert float(train(learner, rows)["kl"]) < 0.1
    learner = make(
        policy=Recurrent,
        memory_every=every,
        config={"window": {"length": chunk, "burn_in": burn_in}, "minibatch": 999, "epochs": 1},
    )
    assert float(train(learner, record(learner))["kl"]) < 1e-6


def test_whole_slabs_are_the_sequences_of_policies_with_memory_where_no_window_is_set() -> None:
    learner = make(policy=Recurrent, config={"minibatch": 48, "epochs": 1})
    assert train(learner, record(learner))["passes"] == 2  # 6 slabs of 16 rows, 3 in each


def test_single_rows_need_memory_at_every_row() -> None:
    learner = make(policy=Recurrent, memory_every=4, config={"window": 1})
    with pytest.raises(ValueError, match="memory at every row"):
        learner.update(record(learner))
    learner = make(policy=Recurrent, memory_every=1, config={"window": 1, "epochs": 1, "minibatch": 999})
    assert train(learner, record(learner))["kl"] < 1e-6


def test_it_learns_which_action_pays() -> None:
    learner = make(Discrete(3), config={"minibatch": 64, "lr": 3e-3, "gamma": 0.0}, envs=16, steps=32)
    for update in range(40):
        learner.clock.updates = update
        rows = record(learner, seed=update)
        best = (rows["obs"][:-1, :, :, 0] > 0).astype(np.int64) * 2
        rows["reward"][...] = rows["action"] == best
        learner.update(rows)
    rows = record(learner, seed=99)
    best = (rows["obs"][:-1, :, :, 0] > 0).astype(np.int64) * 2
    assert (rows["action"] == best).mean() > 0.9
