"""Policies for bounded real actions, and their numpy twins."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import torch

from srl.api.actions import action_map
from srl.api.env import Box, Discrete
from srl.api.policy import Ask, PolicySpec
from srl.core.errors import UserError
from srl.core.load import load
from srl.core.registry import REGISTRIES
from srl.core.seeds import Rng, row_keys
from srl.core.spec import Leaf, lead, zeros
from srl.core.tree import map_tree
from srl.nets.continuous import Continuous, Deterministic, SquashedGaussian
from srl.nets.numpy_continuous import deviations

UNIT = Box((2, 2), (-2.0,) * 4, (4.0,) * 4)
OBS: dict[str, Any] = {
    "vector": Leaf((5,), "float32"),
    "dict": {"b": Leaf((2, 2), "float32"), "a": Leaf((), "int64"), "bytes": Leaf((7,), "uint8")},
}
CONFIGS: dict[str, dict[str, Any]] = {
    "usual": {},
    "tanh_normalised": {"hidden": [32, 16], "activation": "tanh", "normalize_obs": True},
    "elu_linear": {"hidden": [24], "activation": "elu"},
    "linear": {"hidden": []},
}


def _pair(kind: type[Continuous], config: str, obs: str, random: float = 0.0) -> tuple[Any, Any, PolicySpec]:
    torch.manual_seed(1)
    spec = PolicySpec(obs=OBS[obs], action=UNIT)
    module = kind(load(kind.Config, CONFIGS[config]), spec)
    with torch.no_grad():
        for one in module.parameters():
            one += 0.2 * torch.randn(one.shape)
        module.random.fill_(random)
        if isinstance(module, Deterministic):
            module.noise.copy_(torch.tensor([0.05, 0.5]))
        if module.normalizer is not None:
            module.normalizer.observe(torch.randn(50, module.inputs) * 3.0 + 1.0)
    path = module.numpy_twin()
    assert path is not None
    twin = REGISTRIES["policy"].resolve(path)(CONFIGS[config], spec)
    twin.load({name: tensor.numpy() for name, tensor in module.state_dict().items()}, 1)
    return module, twin, spec


def _ask(spec: PolicySpec, rows: int, greedy: bool) -> Ask:
    noise = np.random.default_rng(0)
    obs = map_tree(lambda leaf: (noise.random(leaf.shape) * 5.0).astype(leaf.dtype), zeros(lead(spec.obs, rows)))
    ids = np.arange(rows, dtype=np.int64)
    return Ask(obs, {}, np.zeros(rows, bool), None, None, ids, Rng(row_keys(7, ids, 3)), greedy)


@pytest.mark.parametrize("greedy", [False, True])
@pytest.mark.parametrize("random", [0.0, 1.0])
@pytest.mark.parametrize("obs", OBS)
@pytest.mark.parametrize("config", CONFIGS)
@pytest.mark.parametrize("kind", [SquashedGaussian, Deterministic])
def test_the_twin_acts_like_the_module(kind: type[Continuous], config: str, obs: str, random: float, greedy: bool) -> None:
    module, twin, spec = _pair(kind, config, obs, random)
    for rows in (1, 9):
        ask = _ask(spec, rows, greedy)
        theirs = module.act(ask)
        ask.rng = Rng(ask.rng.keys)
        ours = twin.act(ask)
        assert ours.action.shape == theirs.action.shape == (rows, 2, 2)
        assert ours.action.dtype == theirs.action.dtype == np.float32
        np.testing.assert_allclose(ours.action, theirs.action, atol=1e-5)
        assert np.abs(ours.action).max() <= 1.0


@pytest.mark.parametrize("kind", [SquashedGaussian, Deterministic])
def test_actions_are_mapped_onto_the_bounds_of_the_env(kind: type[Continuous]) -> None:
    module, _, spec = _pair(kind, "usual", "vector", 1.0)
    onto = action_map(spec.action, module.bounds)
    played = onto(module.act(_ask(spec, 2000, False)).action)
    assert -2.0 <= played.min() < -1.9 and 3.9 < played.max() <= 4.0
    assert abs(float(played.mean()) - 1.0) < 0.1


def test_a_noise_ladder_spreads_over_the_envs_and_begins_at_the_largest() -> None:
    spread = deviations(0.01, 0.5, np.arange(64))
    assert spread.dtype == np.float32 and spread[0] == np.float32(0.5)
    assert spread.min() < 0.011 and (np.diff(np.sort(np.log(spread))) < 3.0 * np.log(50.0) / 64).all()
    np.testing.assert_array_equal(deviations(0.2, 0.2, np.arange(3)), np.full(3, 0.2, np.float32))
    np.testing.assert_array_equal(deviations(0.0, 0.0, np.arange(3)), np.zeros(3, np.float32))
    module, _, spec = _pair(Deterministic, "usual", "vector")
    away: Any = 0.0
    for tick in range(200):
        ask = _ask(spec, 8, False)
        ask.rng = Rng(row_keys(1, ask.ids, tick))
        away = away + np.abs(module.act(ask).action - module.act(_ask(spec, 8, True)).action).mean((1, 2)) / 200
    order = np.argsort(deviations(0.05, 0.5, np.arange(8)))
    assert (np.diff(away[order]) > 0.0).sum() >= 6


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        (PolicySpec(obs=OBS["vector"], action=Discrete(3)), "needs real actions"),
        (PolicySpec(obs=OBS["vector"], action=Box((1,), (-np.inf,), (1.0,))), "finite bounds"),
        (PolicySpec(obs=Leaf((8, 8, 3), "uint8"), action=UNIT), "cannot read images"),
    ],
)
def test_what_they_cannot_do_is_said(spec: PolicySpec, words: str) -> None:
    with pytest.raises(UserError, match=words):
        SquashedGaussian(load(SquashedGaussian.Config, {}), spec)


def test_the_twins_need_no_torch() -> None:
    code = "import sys, srl.nets.numpy_continuous; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
