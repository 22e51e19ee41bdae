"""Pictures through the actor-critic."""

from __future__ import annotations

import pickle
from copy import deepcopy
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from srl.api.batch import Batch
from srl.api.env import Box, Discrete
from srl.api.flat import flatten
from srl.api.inputs import encoders, kind_of
from srl.api.neural import NeuralPolicy
from srl.api.policy import PictureConfig, PolicySpec
from srl.core.seeds import Rng
from srl.core.spec import Leaf
from srl.core.tree import map_tree
from srl.nets import vision
from srl.nets.actor_critic import ActorCritic
from srl.nets.numpy_mlp import MLPPolicy
from srl.nets.q_network import QNetwork
from srl.nets.recurrent import Recurrent
from srl.nets.vision import PictureEncoder
from srl.plan.acting import zero_ask


@pytest.mark.parametrize("shape", [(4, 84, 84), (84, 84, 3)])
def test_pictures_and_vectors_are_encoded_together_and_both_learn(shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    spec = PolicySpec(obs={"eye": Leaf(shape, "uint8"), "body": Leaf((3,), "float32")}, action=Discrete(4))
    policy = ActorCritic(ActorCritic.Config(features=32, shared=True), spec)
    assert policy.numpy_twin() is None
    obs = {"eye": torch.randint(0, 255, (3, 2, *shape), dtype=torch.uint8), "body": torch.randn(3, 2, 3)}
    heads = policy.unroll(Batch.of(obs=obs, reward=torch.zeros(2, 2)))
    assert heads["logits"].shape == (3, 2, 4) and heads["value"].shape == (3, 2)
    heads["value"].sum().backward()
    assert all(one.grad is not None and one.grad.abs().sum() > 0 for one in policy.encoders.parameters())


@pytest.mark.long
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_compiled_networks_give_the_same_numbers() -> None:
    torch.manual_seed(0)
    spec = PolicySpec(obs=Leaf((4, 36, 36), "uint8"), action=Discrete(4))
    plain, compiled = (ActorCritic(ActorCritic.Config(features=16, compile=on, encoder_half=False), spec) for on in (False, True))
    compiled.load_state_dict(plain.state_dict())
    batch = Batch.of(obs=torch.randint(0, 255, (3, 2, 4, 36, 36), dtype=torch.uint8), reward=torch.zeros(2, 2))
    for one in (plain, compiled):
        one.unroll(batch)["value"].sum().backward()
    torch.testing.assert_close(plain.unroll(batch)["logits"], compiled.unroll(batch)["logits"], atol=1e-4, rtol=1e-4)
    ours, theirs = (one.encoders[0].out.weight.grad for one in (plain, compiled))
    torch.testing.assert_close(theirs, ours, atol=1e-3, rtol=1e-3)


def test_a_subclass_has_no_twin_of_its_parent() -> None:
    class Other(ActorCritic):
        """May have another forward."""

    other = Other(Other.Config(), PolicySpec(obs=Leaf((3,), "float32"), action=Discrete(4)))
    assert other.numpy_twin() is None


@pytest.mark.parametrize(
    ("shape", "kind", "channels"),
    [
        ((84, 84, 3), "nature", 3), ((4, 36, 36), "nature", 4), ((84, 84, 12), "nature", 12),
        ((7, 7, 3), "small", 3), ((3, 8, 8), "small", 3),
        ((17, 8, 8), "small", 17), ((10, 5, 2), "small", 2), ((3, 3, 3), "small", 3),
        ((2, 2, 3), "bytes", None), ((128,), "bytes", None), ((10, 5), "bytes", None),
    ],
)  # fmt: skip
@pytest.mark.parametrize("policy", [ActorCritic, Recurrent])
def test_pictures_of_every_size_are_encoded_and_learn(
    policy: Any, shape: tuple[int, ...], kind: str, channels: int | None
) -> None:
    torch.manual_seed(0)
    leaf = Leaf(shape, "uint8")
    made = policy(policy.Config(features=16), PolicySpec(obs=leaf, action=Discrete(4)))
    assert kind_of(leaf) == kind
    convolutions = [one for one in made.modules() if isinstance(one, torch.nn.Conv2d)]
    assert (convolutions[0].in_channels if convolutions else None) == channels
    obs = torch.randint(0, 255, (3, 2, *shape), dtype=torch.uint8)
    memory = {name: torch.zeros(2, *one.shape) for name, one in made.memory.items()}
    heads = made.unroll(Batch.of(obs=obs, memory=memory, reward=torch.zeros(3, 2), first=torch.zeros(3, 2, dtype=torch.bool)))
    (heads["value"].sum() + heads["logits"].sum()).backward()
    assert heads["logits"].shape == (3, 2, 4)
    assert all(one.grad is not None for one in made.parameters())


@pytest.mark.parametrize("normalize", [False, True])
def test_bytes_are_divided_by_255_in_torch_and_in_the_twin(normalize: bool) -> None:
    spec = PolicySpec(obs={"ram": Leaf((128,), "uint8"), "body": Leaf((3,), "float32")}, action=Discrete(4))
    policy = ActorCritic(ActorCritic.Config(normalize_obs=normalize), spec)
    twin = MLPPolicy({"normalize_obs": normalize}, spec)
    twin.load({name: one.numpy() for name, one in policy.state_dict().items()}, 0)
    noise = np.random.default_rng(0)
    obs = {"ram": noise.integers(0, 255, (9, 128)).astype(np.uint8), "body": noise.standard_normal((9, 3)).astype(np.float32)}
    ask = replace(zero_ask(spec, {}, 9), obs=obs)
    np.testing.assert_allclose(policy.act(ask).extra["value"], twin.act(ask).extra["value"], atol=1e-5)
    inputs = policy.encode({name: torch.from_numpy(leaf) for name, leaf in obs.items()})
    assert float(inputs.max()) < 5.0


def test_the_plan_says_how_pictures_and_bytes_are_read() -> None:
    obs = {
        "eye": Leaf((84, 84, 3), "uint8"),
        "map": Leaf((7, 7, 3), "uint8"),
        "ram": Leaf((128,), "uint8"),
        "x": Leaf((3,), "float32"),
    }
    assert encoders(obs, {"encoder_half": False}) == [
        "eye 84x84x3: uint8 image, Nature CNN",
        "map 7x7x3: small uint8 image, small CNN",
        "ram 128: uint8, flattened and divided by 255",
    ]


@pytest.mark.parametrize("policy", [ActorCritic, Recurrent, QNetwork])
def test_without_an_encoder_a_picture_is_a_vector_that_can_be_normalized(policy: Any) -> None:
    torch.manual_seed(0)
    spec = PolicySpec(obs={"eye": Leaf((3, 3, 21), "uint8"), "body": Leaf((4,), "float32")}, action=Discrete(4))
    made = policy(policy.Config(encoder="none", normalize_obs=True), spec)
    assert not any(isinstance(one, torch.nn.Conv2d) for one in made.modules())
    dim = torch.randint(0, 9, (6, 2, 3, 3, 21), dtype=torch.uint8)  # on the scale of bytes it is almost black
    batch = Batch.of(obs={"eye": dim, "body": torch.randn(6, 2, 4)}, reward=torch.zeros(5, 2))
    batch.memory = {name: torch.zeros(2, *leaf.shape) for name, leaf in made.memory.items()}
    made.observe(batch)
    heads = made.unroll(batch)
    assert heads["logits" if "logits" in heads else "q"].shape == (6, 2, 4)
    assert [line.split(": ")[1] for line in encoders(spec.obs, {"encoder": "none"})] == ["uint8, flattened and divided by 255"]


@pytest.mark.parametrize("kind", ["nature", "impala", "small"])
def test_the_scale_in_the_first_layer_is_that_of_the_picture(kind: str) -> None:
    torch.manual_seed(0)
    encoder = PictureEncoder(Leaf((3, 36, 40), "uint8"), PictureConfig(features=8, encoder=kind, encoder_half=False))
    pictures = torch.randint(0, 255, (2, 3, 3, 36, 40), dtype=torch.uint8)
    first = encoder.convolutions[0]
    x = torch.nn.functional.conv2d(pictures.flatten(0, 1).float() / 255.0, first.weight, first.bias, first.stride, first.padding)
    dense = encoder._dense(pictures.flatten(0, 1))
    got = vision._convolution(first, dense, 1 / 255.0)(dense, False)
    torch.testing.assert_close(got, x, atol=1e-5, rtol=1e-5)
    assert encoder(pictures).shape == (2, 3, 8)


@pytest.mark.parametrize("kind", ["nature", "impala", "small"])
@pytest.mark.parametrize("half", [False, True])
def test_acting_sees_weights_that_were_loaded_or_trained_meanwhile(half: bool, kind: Any) -> None:
    encoder = PictureEncoder(Leaf((4, 42, 42), "uint8"), PictureConfig(features=8, encoder=kind, encoder_half=half))
    flat, _ = flatten(encoder.parameters()) or pytest.fail()
    pictures = torch.randint(0, 255, (2, 4, 42, 42), dtype=torch.uint8)

    def acts_as_it_trains() -> torch.Tensor:
        with torch.inference_mode():
            acted = encoder(pictures)
        trained = encoder(pictures)
        torch.testing.assert_close(acted.clone(), trained.detach(), rtol=1e-5, atol=1e-5)
        return trained

    first = acts_as_it_trains()
    with torch.no_grad():
        flat.mul_(0.5)  # as an optimizer does after it, not by way of the parameters
    assert not torch.equal(acts_as_it_trains(), first)
    with torch.inference_mode():
        encoder(pictures)
    with torch.no_grad():
        for one in encoder.parameters():
            one.copy_(torch.ones_like(one))  # as load does
    acts_as_it_trains()
    with torch.inference_mode():
        encoder(pictures)
    encoder = pickle.loads(pickle.dumps(deepcopy(encoder)))
    with torch.no_grad():
        encoder.out.weight.zero_()
    acts_as_it_trains()


EYE = Leaf((4, 36, 36), "uint8")


@pytest.mark.parametrize("greedy", [False, True])
@pytest.mark.parametrize(
    ("obs", "action", "mask", "config"),
    [
        (EYE, Discrete(6), False, {}),
        (EYE, Discrete(6), True, {"hidden": (16,), "shared": True, "activation": "relu"}),
        (
            {"eye": EYE, "body": Leaf((3,), "float32")},
            Box((2,), (-1.0, -1.0), (1.0, 1.0)),
            False,
            {"normalize_obs": True, "log_std": 0.5},
        ),
    ],
)
def test_behind_the_encoders_numpy_acts_as_torch(
    obs: Any, action: Any, mask: bool, config: Any, greedy: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    in_numpy: list[Any] = []
    act_of_twin = MLPPolicy.act
    monkeypatch.setattr(MLPPolicy, "act", lambda twin, ask: in_numpy.append(twin) or act_of_twin(twin, ask))
    spec = PolicySpec(obs=obs, action=action, mask=mask)
    policy = ActorCritic(ActorCritic.Config(features=16, **config), spec)
    noise = np.random.default_rng(0)
    keys = np.arange(9, dtype=np.uint64)

    def drawn(leaf: Any) -> Any:
        return noise.integers(0, 255, leaf.shape, np.uint8) if leaf.dtype == np.uint8 else noise.random(leaf.shape, np.float32)

    ask = replace(zero_ask(spec, {}, 9), greedy=greedy)
    ask.obs = map_tree(drawn, ask.obs)
    if mask:
        ask.mask = noise.random((9, 6)) < 0.5

    def acts_as_torch() -> Any:
        theirs, ours = (act(policy, replace(ask, rng=Rng(keys))) for act in (NeuralPolicy.act, ActorCritic.act))
        assert ours.action.dtype == theirs.action.dtype
        np.testing.assert_allclose(ours.action, theirs.action, rtol=1e-5, atol=1e-5)
        for name in ("log_prob", "value"):
            np.testing.assert_allclose(ours.extra[name], theirs.extra[name], rtol=1e-5, atol=1e-5)
        return ours.extra["value"]

    values, _ = flatten(policy.parameters()) or pytest.fail()
    first = acts_as_torch()
    with torch.no_grad():
        for one in policy.parameters():
            one.mul_(1.5)  # as load does
    second = acts_as_torch()
    assert not np.allclose(first, second)
    assert len(in_numpy) == 2
    batch = Batch.of(obs=map_tree(lambda leaf: torch.from_numpy(leaf)[None], ask.obs), reward=torch.zeros(0, 9))
    policy.unroll(batch)
    with torch.no_grad():
        values.mul_(0.5)  # as an optimizer does after it, not by way of the parameters
    assert not np.allclose(second, acts_as_torch())


@pytest.mark.parametrize("kind", ["nature", "impala"])
def test_pictures_in_half_are_nearly_those_in_float32_and_teach_nearly_the_same(kind: str) -> None:
    torch.manual_seed(0)
    plain, half = (
        PictureEncoder(Leaf((4, 42, 42), "uint8"), PictureConfig(features=32, encoder=kind, encoder_half=on))
        for on in (False, True)
    )
    half.load_state_dict(plain.state_dict())
    pictures, weights = torch.randint(0, 255, (16, 4, 42, 42), dtype=torch.uint8), torch.randn(16, 32)
    outs = [one(pictures) for one in (plain, half)]
    assert all(out.dtype == torch.float32 for out in outs)
    assert _apart(*outs) < 0.02
    for out in outs:
        (out * weights).sum().backward()
    for one, two in zip(plain.parameters(), half.parameters(), strict=True):
        assert _apart(one.grad, two.grad) < (0.1 if kind == "nature" else 0.5)  # of 15 layers: relus near zero flip


def test_nothing_stands_between_a_picture_and_the_heads() -> None:
    spec = PolicySpec(obs=Leaf((4, 84, 84), "uint8"), action=Discrete(6))
    policy = ActorCritic(ActorCritic.Config(), spec)
    assert policy.logits.in_features == policy.value.in_features == 512
    assert policy.critic is None
    assert sum(one.numel() for one in policy.parameters()) == 1_687_719, "Mnih et al. 2015, with a value and 6 actions"


def _apart(one: Any, two: Any) -> float:
    """The distance, relative to the length of the first."""
    return float(torch.linalg.vector_norm((one - two).detach()) / torch.linalg.vector_norm(one.detach()))
