"""The batched MuJoCo tasks against gymnasium's own envs: same seeds, same actions, same rows."""

from __future__ import annotations

import ctypes.util
import os
import subprocess
import sys
from typing import Any

import gymnasium
import numpy as np
import pytest

from srl.api.env import TEAM, Box, new_block, renew
from srl.core.errors import UserError
from srl.core.seeds import Seeds
from srl.envs.gym import GymEnv
from srl.envs.mujoco import MujocoEnv
from srl.envs.mujoco_tasks import TASKS
from srl.envs.resolve import make_env

OTHER: dict[str, dict[str, Any]] = {
    "HalfCheetah-v5": {"ctrl_cost_weight": 0.3, "forward_reward_weight": 2.0, "reset_noise_scale": 0.05},
    "Hopper-v5": {"terminate_when_unhealthy": False, "healthy_reward": 3.0, "exclude_current_positions_from_observation": False},
    "Ant-v5": {"include_cfrc_ext_in_observation": False, "contact_cost_weight": 0.1},
    "Humanoid-v5": {"include_cinert_in_observation": False, "contact_cost_range": (-1.0, 2.0), "healthy_z_range": (1.2, 2.0)},
}


@pytest.mark.parametrize(("name", "args"), [(name, {}) for name in TASKS] + list(OTHER.items()))
def test_rows_equal_those_of_gymnasium_bit_for_bit(name: str, args: dict[str, Any]) -> None:
    pytest.importorskip("imageio")  # gymnasium's own envs import it
    seeds = Seeds(5, first=3)
    env = MujocoEnv(2, seeds, id=name, args=args, max_episode_steps=60)
    peers: list[Any] = [gymnasium.make(name, max_episode_steps=60, **args) for _ in range(2)]
    action = env.spec.teams[TEAM].action
    assert isinstance(action, Box)
    np.testing.assert_array_equal(np.array(action.low, np.float32), peers[0].action_space.low)
    np.testing.assert_array_equal(np.array(action.high, np.float32), peers[0].action_space.high)
    block = new_block(env.spec, 2)
    env.reset(block)
    rows = [peer.reset(seed=seeds.seed(i, 0))[0] for i, peer in enumerate(peers)]
    episode, ended = [0, 0], [False, False]
    team = block.teams[TEAM]
    rng = np.random.default_rng(0)
    for tick in range(130):
        for i, row in enumerate(rows):
            np.testing.assert_array_equal(team.obs[i, 0], row.astype(np.float32))
        scale = 0.0 if tick % 40 < 15 else 1.0
        actions = (scale * rng.uniform(action.low, action.high, (2, 1, *action.shape))).astype(np.float32)
        renew(block)
        env.step({TEAM: actions}, block)
        for i, peer in enumerate(peers):
            if ended[i]:
                episode[i] += 1
                rows[i], ended[i] = peer.reset(seed=seeds.seed(i, episode[i]))[0], False
                continue
            rows[i], reward, terminated, truncated, _ = peer.step(actions[i, 0])
            assert (team.terminated[i, 0], team.truncated[i, 0]) == (terminated, truncated)
            np.testing.assert_allclose(team.reward[i, 0], reward, rtol=2e-6, atol=2e-6)
            ended[i] = terminated or truncated
    assert min(episode) >= 2
    for peer in peers:
        peer.close()
    env.close()


def test_threads_change_nothing() -> None:
    envs = [MujocoEnv(5, Seeds(1), id="Walker2d-v5", threads=threads) for threads in (1, 2)]
    blocks = [new_block(env.spec, 5) for env in envs]
    rng = np.random.default_rng(0)
    for env, block in zip(envs, blocks, strict=True):
        env.reset(block)
    for _ in range(50):
        actions = rng.uniform(-1, 1, (5, 1, 6)).astype(np.float32)
        for env, block in zip(envs, blocks, strict=True):
            renew(block)
            env.step({TEAM: actions}, block)
        np.testing.assert_array_equal(blocks[0].teams[TEAM].obs, blocks[1].teams[TEAM].obs)


def test_stats_are_read_when_an_episode_ends() -> None:
    env = MujocoEnv(2, Seeds(1), id="HalfCheetah-v5", stats=["x_position"], max_episode_steps=3)
    block = new_block(env.spec, 2)
    env.reset(block)
    for _ in range(3):
        renew(block)
        env.step({TEAM: np.ones((2, 1, 6), np.float32)}, block)
    assert block.teams[TEAM].truncated.all()
    np.testing.assert_array_equal(block.stats[:, 0], env._task.qpos[:, 0])


def test_what_the_batch_cannot_do_goes_to_gymnasiums_env() -> None:
    pytest.importorskip("imageio")
    cases: list[tuple[Any, type]] = [
        ("Hopper-v5", MujocoEnv),
        ({"use": "Hopper-v5", "healthy_reward": 2.0, "stats": ["x_position"]}, MujocoEnv),
        ({"use": "gym", "id": "Hopper-v5"}, GymEnv),
        ({"use": "Hopper-v5", "frame_skip": 2}, GymEnv),
        ({"use": "Hopper-v5", "stats": ["x_velocity"]}, GymEnv),
    ]
    for component, kind in cases:
        env = make_env(component, 1, Seeds(0))
        assert type(env) is kind, component
        env.close()


@pytest.mark.parametrize("before", ["", "import mujoco\n"], ids=["mujoco not imported", "mujoco imported before"])
def test_pictures_need_no_display(before: str) -> None:
    if ctypes.util.find_library("EGL") is None and ctypes.util.find_library("OSMesa") is None:
        pytest.skip("neither EGL nor OSMesa is installed")
    code = before + (
        "from srl.envs.resolve import make_env\n"
        "from srl.api.env import new_block\n"
        "from srl.core.seeds import Seeds\n"
        "env = make_env({'use': 'Hopper-v5', 'render': True, 'width': 64, 'height': 48}, 2, Seeds(0))\n"
        "env.reset(new_block(env.spec, 2))\n"
        "picture = env.render(1)\n"
        "assert picture.shape == (48, 64, 3) and picture.std() > 5, picture.shape\n"
        "env.close()\n"
    )
    kept = {key: value for key, value in os.environ.items() if key not in ("DISPLAY", "WAYLAND_DISPLAY", "MUJOCO_GL")}
    done = subprocess.run([sys.executable, "-c", code], env=kept, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr


def test_films_have_the_speed_of_the_simulation() -> None:
    env = MujocoEnv(1, Seeds(0), id="HalfCheetah-v5")
    assert env.spec.fps == pytest.approx(20)  # 5 simulation steps of 0.01 s for each env step


def test_wrong_names_are_answered_with_the_nearest() -> None:
    with pytest.raises(UserError, match=r"did you mean: Walker2d-v5\?"):
        MujocoEnv(1, Seeds(0), id="Walker-v5")
    with pytest.raises(UserError, match=r"did you mean: ctrl_cost_weight"):
        MujocoEnv(1, Seeds(0), id="Walker2d-v5", args={"ctrl_cost": 1.0})
