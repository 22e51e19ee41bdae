"""Pictures through the actor-critic."""

from __future__ import annotations

import pytest
import torch

from srl.api.batch import Batch
from srl.api.env import Discrete
from srl.api.policy import PolicySpec
from srl.core.spec import Leaf
from srl.nets.actor_critic import ActorCritic


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
    plain, compiled = (ActorCritic(ActorCritic.Config(features=16, compile=on), spec) for on in (False, True))
    compiled.load_state_dict(plain.state_dict())
    batch = Batch.of(obs=torch.randint(0, 255, (3, 2, 4, 36, 36), dtype=torch.uint8), reward=torch.zeros(2, 2))
    for one in (plain, compiled):
        one.unroll(batch)["value"].sum().backward()
    torch.testing.assert_close(plain.unroll(batch)["logits"], compiled.unroll(batch)["logits"], atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(plain.critic.layers[0].weight.grad, compiled.critic.layers[0].weight.grad, atol=1e-3, rtol=1e-3)


def test_a_subclass_has_no_twin_of_its_parent() -> None:
    class Other(ActorCritic):
        """May have another forward."""

    other = Other(Other.Config(), PolicySpec(obs=Leaf((3,), "float32"), action=Discrete(4)))
    assert other.numpy_twin() is None


def test_pictures_that_are_too_small_are_refused_with_their_size() -> None:
    with pytest.raises(ValueError, match="16 x 16"):
        ActorCritic(ActorCritic.Config(), PolicySpec(obs=Leaf((3, 16, 16), "uint8"), action=Discrete(2)))
