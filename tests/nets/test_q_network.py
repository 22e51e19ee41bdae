"""Q-networks: the numpy twin, random actions, masks, and the fast path against plain layers in double precision."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import torch

from srl.api.batch import Batch
from srl.api.env import Box, Discrete
from srl.api.policy import Ask, PolicySpec
from srl.core.errors import UserError
from srl.core.load import load
from srl.core.seeds import Rng, row_keys
from srl.core.spec import Leaf, lead, zeros
from srl.core.tree import map_tree
from srl.nets.numpy_q import NumpyQ
from srl.nets.q_network import QNetwork, QTower
from srl.nets.recurrent_q import RecurrentQ

VECTOR = Leaf((5,), "float32")
DICT = {"b": Leaf((2, 2), "float32"), "a": Leaf((), "int64"), "bytes": Leaf((4,), "uint8"), "c": VECTOR}
CONFIGS: dict[str, dict[str, Any]] = {
    "usual": {"hidden": [32, 16]},
    "dueling": {"dueling": True, "hidden": [32, 16], "activation": "elu"},
    "dueling_one": {"dueling": True, "hidden": [16], "activation": "tanh"},
    "normed": {"layer_norm": True, "hidden": [32, 16]},
    "normed_dueling": {"layer_norm": True, "dueling": True, "hidden": [32, 16]},
    "linear": {"hidden": []},
    "atoms": {"atoms": 7, "returns": [-1.0, 3.0], "hidden": [16]},
    "all": {"atoms": 5, "dueling": True, "normalize_obs": True, "rungs": 4},
}


def a_pair(config: dict[str, Any], obs: Any = VECTOR, actions: int = 4, mask: bool = False) -> tuple[QNetwork, NumpyQ]:
    torch.manual_seed(3)
    spec = PolicySpec(obs=obs, action=Discrete(actions), mask=mask)
    module = QNetwork(load(QNetwork.Config, config), spec)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter += 0.1 * torch.randn(parameter.shape)
        if module.encoder.scale is not None:
            module.encoder.scale.observe(torch.randn(50, module.encoder.size) * 3.0 + 1.0)
    module.explore(0.4, 2.0)
    twin = NumpyQ(config, spec)
    twin.load({name: tensor.numpy() for name, tensor in module.state_dict().items()}, 1)
    return module, twin


def an_ask(spec: PolicySpec, rows: int = 256, *, greedy: bool = False, tick: int = 3) -> Ask:
    noise = np.random.default_rng(0)
    obs = map_tree(lambda leaf: (3 * noise.standard_normal(leaf.shape)).astype(leaf.dtype), zeros(lead(spec.obs, rows)))
    ids = np.arange(rows, dtype=np.int64)
    mask = noise.random((rows, spec.action.n)) < 0.4 if spec.mask else None  # type: ignore[union-attr]
    return Ask(obs, {}, np.zeros(rows, bool), mask, None, ids, Rng(row_keys(7, ids, tick)), greedy)


@pytest.mark.parametrize("greedy", [False, True])
@pytest.mark.parametrize("mask", [False, True])
@pytest.mark.parametrize("obs", [VECTOR, DICT], ids=["vector", "dict"])
@pytest.mark.parametrize("config", CONFIGS)
def test_the_twin_acts_like_the_module(config: str, obs: Any, mask: bool, greedy: bool) -> None:
    module, twin = a_pair(CONFIGS[config], obs, mask=mask)
    assert module.numpy_twin() == "srl.nets.numpy_q:NumpyQ"
    assert twin.reads == module.reads
    ask = an_ask(module.spec, greedy=greedy)
    theirs = module.act(ask)
    ask.rng = Rng(ask.rng.keys)
    ours = twin.act(ask)
    np.testing.assert_allclose(ours.extra["q"], theirs.extra["q"], atol=1e-4, rtol=1e-3)
    np.testing.assert_array_equal(ours.action, theirs.action)
    assert ours.action.dtype == theirs.action.dtype == np.int64


def test_masks_are_respected_and_greedy_actions_are_the_best_allowed_ones() -> None:
    module, _ = a_pair({}, mask=True)
    module.explore(0.5)
    for tick in range(20):
        for greedy in (False, True):
            ask = an_ask(module.spec, greedy=greedy, tick=tick)
            act = module.act(ask)
            some = ask.mask.any(1)  # type: ignore[union-attr]
            assert some.any() and not some.all()
            assert ask.mask[np.arange(len(some)), act.action][some].all()  # type: ignore[index]
            if greedy:
                for row, allowed in enumerate(ask.mask):  # type: ignore[arg-type]
                    places = np.flatnonzero(allowed) if allowed.any() else np.arange(4)
                    assert act.action[row] == places[np.argmax(act.extra["q"][row][places])]


@pytest.mark.parametrize("mask", [False, True])
def test_random_actions_are_as_frequent_as_the_rung_of_the_row_says(mask: bool) -> None:
    module, _ = a_pair({"rungs": 3}, mask=mask)
    module.explore(0.5, 2.0)
    np.testing.assert_allclose(module.epsilon.numpy(), [0.5, 0.5**2, 0.5**3])
    moved, counts = np.zeros(3), np.zeros((3, 4))
    for tick in range(400):
        ask = an_ask(module.spec, 300, tick=tick)
        if mask:
            ask.mask = np.tile([False, True, True, True], (300, 1))
        ask.greedy = True
        best = module.act(ask).action
        ask.greedy = False
        action = module.act(ask).action
        for rung in range(3):
            away = (action != best)[rung::3]
            moved[rung] += away.mean() / 400
            counts[rung] += np.bincount(action[rung::3][away], minlength=4)
    number = 3 if mask else 4
    np.testing.assert_allclose(moved, module.epsilon.numpy() * (1 - 1 / number), rtol=0.05)
    if mask:
        assert (counts[:, 0] == 0).all()


def test_a_fresh_policy_acts_at_random_and_is_greedy_when_evaluated() -> None:
    spec = PolicySpec(obs=VECTOR, action=Discrete(4))
    module = QNetwork(load(QNetwork.Config, {}), spec)
    action = module.act(an_ask(spec, 2000)).action
    assert (np.bincount(action, minlength=4) > 400).all()
    ask = an_ask(spec, greedy=True)
    np.testing.assert_array_equal(module.act(ask).action, module.act(ask).extra["q"].argmax(1))


@pytest.mark.parametrize("config", list(CONFIGS))
def test_values_and_gradients_of_the_fast_path_are_those_of_plain_layers(config: str) -> None:
    settings = load(QNetwork.Config, CONFIGS[config])
    sizes = (5, *settings.hidden)
    tower = QTower(sizes, 3, settings.activation, settings.dueling, settings.atoms, settings.layer_norm)
    plain = QTower(sizes, 3, settings.activation, settings.dueling, settings.atoms, settings.layer_norm).double()
    plain.load_state_dict({name: one.double() for name, one in tower.state_dict().items()})
    x = torch.randn(2, 6, 5)
    pull = torch.randn(2, 6, 3, settings.atoms)
    (tower(x) * pull).sum().backward()
    (plain(x.double()) * pull.double()).sum().backward()
    np.testing.assert_allclose(tower(x).detach().numpy(), plain(x.double()).detach().numpy(), atol=1e-5)
    for mine, theirs in zip(tower.parameters(), plain.parameters(), strict=True):
        np.testing.assert_allclose(mine.grad.numpy(), theirs.grad.numpy(), atol=1e-4, rtol=1e-4)  # type: ignore[union-attr]


def test_pictures_and_numbers_of_a_dict_are_read_together() -> None:
    obs = {"eye": Leaf((10, 8, 3), "uint8"), "speed": Leaf((2,), "float32")}
    module = QNetwork(
        load(QNetwork.Config, {"features": 16, "hidden": [8], "dueling": True}), PolicySpec(obs=obs, action=Discrete(3))
    )
    assert module.numpy_twin() is None
    rows = {"eye": torch.randint(0, 255, (2, 7, 10, 8, 3), dtype=torch.uint8), "speed": torch.randn(2, 7, 2)}
    first = torch.zeros(2, 7, dtype=torch.bool)
    q = module.unroll(Batch({"obs": rows, "first": first}))["q"]
    assert q.shape == (2, 7, 3)
    for leaf in rows.values():
        leaf[0, 0] += 40
    moved = module.unroll(Batch({"obs": rows, "first": first}))["q"]
    assert (moved[0, 0] != q[0, 0]).any() and torch.equal(moved[1], q[1])
    assert module(map_leaf(rows)).shape == (7,)


def map_leaf(rows: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: leaf[0] for name, leaf in rows.items()}


def test_real_actions_are_refused() -> None:
    with pytest.raises(UserError, match="must have one discrete action"):
        QNetwork(load(QNetwork.Config, {}), PolicySpec(obs=VECTOR, action=Box((2,), (-1.0,) * 2, (1.0,) * 2)))


def test_the_twin_needs_no_torch() -> None:
    code = "import sys, srl.nets.numpy_q; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::torch.jit.TracerWarning")
@pytest.mark.parametrize("config", ["usual", "all"])
def test_a_traced_network_gives_the_best_actions_of_any_number_of_rows(config: str) -> None:
    module, _ = a_pair(CONFIGS[config])
    traced = torch.jit.trace(module, torch.randn(3, 5))
    for rows in (1, 50):
        obs = torch.randn(rows, 5)
        assert torch.equal(traced(obs), module(obs))


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::torch.jit.TracerWarning")
@torch.no_grad()
def test_a_traced_recurrent_network_takes_and_gives_its_memory() -> None:
    module = RecurrentQ(load(RecurrentQ.Config, {"hidden": [8], "width": 8}), PolicySpec(obs=VECTOR, action=Discrete(3)))
    obs = torch.randn(4, 6, 5)
    _, memory = module(obs[0])
    traced = torch.jit.trace(module, (obs[0], memory), strict=False)
    for row in obs[1:]:
        wanted, expected = module(row, memory)
        action, after = traced(row, memory)
        assert torch.equal(action, wanted)
        torch.testing.assert_close(after["cell"], expected["cell"])
        memory = expected
