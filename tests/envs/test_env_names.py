"""What `env:` in a file may say, and what is answered when it means nothing."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from srl.api.env import Discrete
from srl.core.errors import UserError
from srl.core.seeds import Seeds
from srl.envs.fake import FakeEnv
from srl.envs.gym import GymEnv
from srl.envs.gym_vector import GymVectorEnv
from srl.envs.resolve import make_env


class Mine(gymnasium.Env[Any, Any]):
    """A user's own env."""

    observation_space = spaces.Box(0, 1, (1,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, size: int = 1, render_mode: str | None = None) -> None:
        self.size = size
        self.render_mode = render_mode

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return np.zeros(1, np.float32), {}


class Placed(FakeEnv):
    """Has attributes that an adapter has too."""

    place = ("here", 3)


def make_mine(size: int = 2) -> gymnasium.Env[Any, Any]:
    return Mine(size)


@dataclass
class Named:
    """As the graph has it."""

    use: str = ""
    args: Any = ()


@pytest.mark.parametrize(
    ("component", "kind"),
    [
        ("CartPole-v1", GymEnv),
        ({"use": "CartPole-v1", "sutton_barto_reward": True}, GymEnv),
        ({"id": "CartPole-v1"}, GymEnv),
        ({"use": "gym", "id": "CartPole-v1", "args": {"sutton_barto_reward": True}}, GymEnv),
        ({"use": "gym_vector", "id": "CartPole-v1"}, GymVectorEnv),
        (Named("gym_vector", {"id": "CartPole-v1"}), GymVectorEnv),
        ({"use": "fake", "length": [3, 4]}, FakeEnv),
        (FakeEnv, FakeEnv),
        ("srl.envs.fake:FakeEnv", FakeEnv),
        (Mine, GymEnv),
        ({"use": "gym", "id": Mine}, GymEnv),
        ({"use": "gym", "id": f"{__file__}:Mine"}, GymEnv),
        (make_mine, GymEnv),
        (f"{__file__}:Mine", GymEnv),
        (f"{__file__}:make_mine", GymEnv),
    ],
)
def test_names_paths_classes_and_functions_become_envs(component: Any, kind: type) -> None:
    env = make_env(component, 2, Seeds(0))
    assert type(env) is kind and env.count == 2
    env.close()


def test_keys_beside_use_go_to_the_env_and_those_of_the_adapter_to_the_adapter() -> None:
    env: Any = make_env({"use": Mine, "size": 7, "stats": ["won"]}, 1, Seeds(0))
    assert env._envs[0].size == 7 and env.spec.stats == ("won",)


@pytest.mark.parametrize(
    ("component", "message"),
    [
        ("CartPol-v1", r"no env is called 'CartPol-v1'[^$]*did you mean: CartPole-v1\?"),
        ("gim", r"no env is called 'gim'[^$]*did you mean: gym\?"),
        ("CartPole-v9", "cannot make env 'CartPole-v9'"),
        ({"use": "fake", "lenght": [1, 2]}, "did you mean: length"),
        ({"use": "CartPole-v1", "gravity": 3}, "cannot make env 'CartPole-v1'"),
        ({"args": {}}, "'env' must name an env"),
        ("nowhere.mod:Make", "cannot import env 'nowhere.mod:Make'"),
        (f"{__file__}:Named", "made a Named"),
        (f"{__file__}:Mime", r"did you mean: Mine\?\n  classes there: Mine, Placed, Named"),
        ("highway/fast-v0", "pip install highway-env"),
        ("mpe2.simple_spread_v3", r"env='\{use: pettingzoo, id: mpe2.simple_spread_v3\}'"),
    ],
)
def test_what_means_nothing_is_answered(component: Any, message: str) -> None:
    with pytest.raises(UserError, match=message):
        make_env(component, 1, Seeds(0))


def test_an_atari_id_needs_no_import() -> None:
    env = make_env("ALE/Pong-v5", 1, Seeds(0))
    assert env.spec.teams["agent"].action == Discrete(6)
    env.close()


def test_the_same_id_without_preprocessing_needs_no_import_either() -> None:
    lines = (
        "from srl.core.seeds import Seeds",
        "from srl.envs.resolve import make_env",
        "print(make_env({'use': 'gym', 'id': 'ALE/Pong-v5'}, 1, Seeds(0)).spec.teams['agent'].action)",
    )
    words = [sys.executable, "-c", "\n".join(lines)]  # a process in which nothing has imported ale_py
    said = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert "Discrete(n=6)" in said.stdout, said.stderr


@pytest.mark.parametrize("component", ["ALE/Pong-v5", {"use": "gym", "id": "ALE/Pong-v5"}, "MinAtar/Breakout-v1"])
def test_a_missing_package_is_named_with_our_extra(component: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in gymnasium.registry if name.startswith(("ALE/", "MinAtar/"))]:
        monkeypatch.delitem(gymnasium.registry, name)

    def absent(name: str) -> None:
        if "." in name:  # as it does for a module of a package that is not there
            raise ModuleNotFoundError(name)

    monkeypatch.setattr("importlib.util.find_spec", absent)
    with pytest.raises(UserError, match=r"pip install 'really-scalable-rl\[(atari|minatar)\]'"):
        make_env(component, 1, Seeds(0))


def test_an_env_named_by_file_is_called_by_what_can_be_typed(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(Path(__file__).read_text())
    env: Any = make_env(f"{tmp_path}/mine.py:Mine", 1, Seeds(0))
    assert env.name == f"{tmp_path}/mine.py:Mine"


def test_an_env_keeps_its_own_attributes() -> None:
    env: Any = make_env(Placed, 1, Seeds(0), place="actor/3")
    assert env.place == ("here", 3)


def test_no_env_imports_torch() -> None:
    modules = "srl.envs.check srl.envs.fake srl.envs.gym srl.envs.gym_vector srl.envs.mujoco srl.envs.pettingzoo srl.envs.resolve"
    code = f"import sys\nfor name in '{modules}'.split(): __import__(name)\nsys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0
