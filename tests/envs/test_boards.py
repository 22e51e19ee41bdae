"""MinAtar and MiniGrid: planes instead of numbers that are only labels."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest

from srl.api.env import new_block
from srl.api.inputs import channels_last, is_picture, picture_shape
from srl.core.seeds import Seeds
from srl.core.spec import Leaf
from srl.envs.check import check_env
from srl.envs.resolve import make_env


@pytest.mark.parametrize("game", ["Breakout", "Seaquest"])
def test_games_of_minatar_are_small_pictures_with_channels_first(game: str) -> None:
    pytest.importorskip("minatar")
    env = make_env({"use": f"MinAtar/{game}-v1", "render": True}, 2, Seeds(0))
    leaf = env.spec.teams["agent"].obs
    assert isinstance(leaf, Leaf) and is_picture(leaf)
    assert not channels_last(leaf.shape) and picture_shape(leaf.shape) == leaf.shape
    block = new_block(env.spec, 2)
    env.reset(block)
    obs: Any = block.teams["agent"].obs
    assert set(np.unique(obs)) == {0, 255}
    picture = env.render(0)
    assert picture.shape == (320, 320, 3)
    assert (picture[::32, ::32].any(-1) == obs[0, 0].any(0)).all()


def test_cells_of_minigrid_become_planes() -> None:
    minigrid = pytest.importorskip("minigrid")
    env = make_env("MiniGrid-MemoryS7-v0", 1, Seeds(0))
    assert "mission is left out" in env.spec.about
    block = new_block(env.spec, 1)
    env.reset(block)
    obs: Any = block.teams["agent"].obs
    raw = gymnasium.make("MiniGrid-MemoryS7-v0")
    seen, _ = raw.reset(seed=env.seeds.seed(0, 0))
    planes = obs["image"][0, 0]
    assert planes.shape == (7, 7, 21)
    kinds, colours, states = planes[..., :11], planes[..., 11:17], planes[..., 17:]
    for part, number in zip((kinds, colours, states), np.moveaxis(seen["image"], -1, 0), strict=True):
        assert (part.argmax(-1) == number).all()
        assert (part.sum(-1, dtype=int) == 255).all()
    assert len(minigrid.core.constants.OBJECT_TO_IDX) == 11
    assert len(minigrid.core.constants.COLOR_TO_IDX) == 6


@pytest.mark.parametrize(("name", "package"), [("MinAtar/Asterix-v1", "minatar"), ("LunarLander-v3", "Box2D")])
def test_they_pass_the_check_of_envs(name: str, package: str) -> None:
    pytest.importorskip(package)
    assert check_env(name, ticks=20) is not None
