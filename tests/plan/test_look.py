"""The look at env and policies: whatever ends it is told in words."""

from pathlib import Path

import pytest

from srl.config.experiment import read_experiment
from srl.core.errors import UserError
from srl.core.machine import Machine
from srl.envs.check import check_env
from srl.graph.decide import decide
from srl.plan.child import derive_in_child

MINE = """
import os, signal, sys
import gymnasium as gym, numpy as np
from gymnasium import spaces

class Unlicensed(gym.Env):
    def __init__(self, **_):
        raise RuntimeError("no licence")

class Leaves(gym.Env):
    def __init__(self, **_):
        sys.exit("not today")

class Quits(gym.Env):
    def __init__(self, **_):
        os._exit(5)

class Crashes(gym.Env):
    def __init__(self, **_):
        os.kill(os.getpid(), signal.SIGSEGV)

class Silent:
    def __init__(self, config, spec):
        raise LookupError("no weights")
"""


@pytest.fixture
def mine(tmp_path: Path) -> str:
    (tmp_path / "mine.py").write_text(MINE)
    return str(tmp_path / "mine.py")


def refused(**settings: object) -> UserError:
    base = {"env": "CartPole-v1", "algorithm": "ppo", "sampling": {"envs": 2, "steps": 4}}
    with pytest.raises(UserError) as caught:
        derive_in_child(decide(read_experiment(base | settings), machine=Machine(cores=2, gpus=0, shared_free=1 << 34)).graph)
    return caught.value


def line_of(file: str, text: str) -> str:
    numbers = [number for number, line in enumerate(Path(file).read_text().splitlines(), 1) if text in line]
    return f"{file}:{numbers[0]}"


@pytest.mark.parametrize(
    ("name", "cause", "text"),
    [("Unlicensed", "RuntimeError: no licence", "no licence"), ("Leaves", "SystemExit: not today", "not today")],
)
def test_an_env_that_cannot_be_made_is_named_with_its_cause_and_its_line(mine: str, name: str, cause: str, text: str) -> None:
    env = f"{mine}:{name}"
    told = [("cause", cause), ("from", line_of(mine, text))]
    error = refused(env=env)
    assert error.headline == f"cannot make env '{env}'" and error.exit_code == 2
    assert error.facts == [*told, ("try", f"srl check env {env} --trace")]
    assert "Traceback" in error.__notes__[0] and f'File "{mine}"' in error.__notes__[0]
    with pytest.raises(UserError) as caught:
        check_env(env)
    assert caught.value.headline == error.headline and caught.value.facts[:2] == told


def test_a_policy_that_cannot_be_built_is_named_with_its_line(mine: str) -> None:
    error = refused(policy=f"{mine}:Silent")
    assert error.headline == f"cannot build policy 'main' ({mine}:Silent, ppo)"
    assert error.facts[:2] == [("cause", "LookupError: no weights"), ("from", line_of(mine, "no weights"))]


@pytest.mark.parametrize(
    ("name", "how", "likely"),
    [("Quits", "ended with exit code 5", "os._exit"), ("Crashes", "died of SIGSEGV", "native code that crashed")],
)
def test_a_look_that_dies_without_a_word_says_how(mine: str, name: str, how: str, likely: str) -> None:
    error = refused(env=f"{mine}:{name}")
    assert error.headline == f"the process that builds env and policies {how}"
    assert likely in dict(error.facts)["likely"] and f"{mine}:{name}" in dict(error.facts)["built"]
