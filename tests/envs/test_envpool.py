"""EnvPool as an env: needs its extra."""

from __future__ import annotations

import importlib.util

import pytest

from srl.core.errors import UserError
from srl.core.seeds import Seeds
from srl.core.spec import Leaf
from srl.envs.check import check_env
from srl.envs.resolve import make_env

HERE = importlib.util.find_spec("envpool") is not None
needs_it = pytest.mark.skipif(not HERE, reason="needs the extra envpool")


@needs_it
@pytest.mark.filterwarnings("ignore:.*precision lowered")
@pytest.mark.parametrize("name", ["CartPole-v1", "Pendulum-v1", "Catch-v0"])
def test_its_tasks_pass_the_check_of_envs(name: str) -> None:
    assert check_env({"use": "envpool", "id": name}, ticks=60) is not None


@needs_it
def test_its_settings_are_named_as_there_and_stated() -> None:
    env = make_env({"use": "envpool", "id": "Pong-v5", "args": {"repeat_action_probability": 0.25}}, 2, Seeds(0))
    assert env.spec.teams["agent"].obs == Leaf((4, 84, 84), "uint8")
    assert "repeat_action_probability=0.25" in env.spec.about


@needs_it
@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"id": "Pong-v4"}, "EnvPool has no task 'Pong-v4'"),
        ({"id": "Pong-v5", "args": {"skip": 4}}, "unexpected keyword .*'skip'"),
    ],
)
def test_what_it_does_not_know_is_named(settings: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        make_env({"use": "envpool", **settings}, 1, Seeds(0))


@pytest.mark.skipif(HERE, reason="EnvPool is here")
def test_without_it_the_extra_is_named() -> None:
    with pytest.raises(UserError, match=r"really-scalable-rl\[envpool\]"):
        make_env({"use": "envpool", "id": "Pong-v5"}, 1, Seeds(0))
