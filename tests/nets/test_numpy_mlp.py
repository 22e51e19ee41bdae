"""The numpy twin against the torch module."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from srl.api.env import Box, Discrete, MultiBinary, MultiDiscrete, mask_leaves
from srl.api.policy import Ask, PolicySpec
from srl.core.seeds import Rng, row_keys
from srl.core.spec import Leaf, lead, zeros
from srl.core.tree import leaves, map_tree
from srl.nets.actor_critic import ActorCritic
from srl.nets.numpy_mlp import MLPPolicy

VECTOR = Leaf((5,), "float32")
UNBOUND = Box((2, 2), (-1.0,) * 4, (1.0,) * 4)
ACTIONS = {
    "discrete2": Discrete(2),
    "discrete6": Discrete(6),
    "multi_discrete": MultiDiscrete((3, 2, 4)),
    "multi_binary": MultiBinary(3),
    "box": UNBOUND,
    "dict": {"move": Discrete(3), "aim": UNBOUND, "deep": {"bits": MultiBinary(2), "b": Box((1,), (0.0,), (1.0,))}},
}
CONFIGS: dict[str, dict[str, Any]] = {
    "usual": {},
    "shared_relu": {"shared": True, "activation": "relu", "hidden": [32, 16, 24]},
    "elu_normalised": {"activation": "elu", "normalize_obs": True, "hidden": [48]},
    "linear": {"hidden": []},
}


def _ask(spec: PolicySpec, rows: int, noise: np.random.Generator, greedy: bool) -> Ask:
    obs = map_tree(lambda leaf: noise.standard_normal(leaf.shape).astype(leaf.dtype), zeros(lead(spec.obs, rows)))
    mask = None
    if spec.mask:
        mask = map_tree(lambda leaf: noise.random(leaf.shape) < 0.5, zeros(lead(mask_leaves(spec.action), rows)))
    ids = np.arange(rows, dtype=np.int64)
    return Ask(obs, {}, np.zeros(rows, bool), mask, None, ids, Rng(row_keys(7, ids, 3)), greedy)


def _pair(action: Any, config: dict[str, Any], mask: bool, obs: Any = VECTOR) -> tuple[ActorCritic, MLPPolicy, PolicySpec]:
    import torch

    from srl.core.load import load

    torch.manual_seed(1)
    spec = PolicySpec(obs=obs, action=action, mask=mask)
    module = ActorCritic(load(ActorCritic.Config, config), spec)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter += 0.3 * torch.randn(parameter.shape)
        if module.normalizer is not None:
            module.normalizer.observe(torch.randn(50, 5) * 3.0 + 1.0)
    twin = MLPPolicy(config, spec)
    twin.load({name: tensor.numpy() for name, tensor in module.state_dict().items()}, 1)
    return module, twin, spec


@pytest.mark.parametrize("greedy", [False, True])
@pytest.mark.parametrize("mask", [False, True])
@pytest.mark.parametrize("config", CONFIGS)
@pytest.mark.parametrize("action", ACTIONS)
def test_the_twin_acts_like_the_module(action: str, config: str, mask: bool, greedy: bool) -> None:
    module, twin, spec = _pair(ACTIONS[action], CONFIGS[config], mask)
    assert module.numpy_twin() == "srl.nets.numpy_mlp:MLPPolicy"
    assert twin.reads == module.reads
    ask = _ask(spec, 64, np.random.default_rng(0), greedy)
    theirs = module.act(ask)
    ask.rng = Rng(ask.rng.keys)
    ours = twin.act(ask)
    for (path, want), (_, have) in zip(leaves(theirs.action), leaves(ours.action), strict=True):
        assert want.dtype == have.dtype and want.shape == have.shape, path
        if want.dtype == np.float32:
            np.testing.assert_allclose(have, want, atol=1e-5, rtol=1e-5)
        else:
            np.testing.assert_array_equal(have, want)
    for name in ("log_prob", "value"):
        np.testing.assert_allclose(ours.extra[name], theirs.extra[name], atol=2e-5, rtol=1e-5)
        assert ours.extra[name].dtype == theirs.extra[name].dtype == np.float32


def test_dicts_of_observations_are_read_in_the_order_of_their_keys() -> None:
    module, twin, spec = _pair(Discrete(4), {}, False, {"b": Leaf((2, 2), "float32"), "a": Leaf((), "int64"), "c": VECTOR})
    ask = _ask(spec, 16, np.random.default_rng(2), True)
    np.testing.assert_allclose(twin.act(ask).extra["value"], module.act(ask).extra["value"], atol=1e-5)


def test_a_masked_choice_is_never_sampled() -> None:
    _, twin, spec = _pair(Discrete(6), {}, True)
    noise = np.random.default_rng(3)
    for _ in range(200):
        ask = _ask(spec, 64, noise, False)
        ask.rng = Rng(noise.integers(0, 2**63, 64).astype(np.uint64))
        action = twin.act(ask).action
        some = ask.mask.any(1)
        assert ask.mask[some, action[some]].all()


def test_samples_follow_the_probabilities() -> None:
    _, twin, spec = _pair(Discrete(4), {}, False)
    ask = _ask(spec, 1, np.random.default_rng(4), False)
    ask = Ask(
        np.repeat(ask.obs, 200_000, 0),
        {},
        np.zeros(200_000, bool),
        None,
        None,
        np.arange(200_000),
        Rng(row_keys(1, np.arange(200_000), 0)),
    )
    act = twin.act(ask)
    for choice in range(4):
        chosen = act.action == choice
        chance = np.exp(act.extra["log_prob"][chosen][0])
        assert abs(chosen.mean() - chance) < 5.0 * np.sqrt(chance * (1 - chance) / 200_000)


def test_blocks_of_any_size_may_alternate_and_answers_stay_the_callers() -> None:
    module, twin, spec = _pair(Discrete(4), {}, False)
    noise = np.random.default_rng(5)
    asks = [_ask(spec, rows, noise, True) for rows in (3, 64, 1, 3)]
    answers = [twin.act(ask) for ask in asks]
    for ask, answer in zip(asks, answers, strict=True):
        np.testing.assert_allclose(answer.extra["value"], module.act(ask).extra["value"], atol=1e-5)


def test_the_twin_needs_no_torch() -> None:
    code = "import sys, srl.nets.numpy_mlp; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
