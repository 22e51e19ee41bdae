"""Settings: what cannot be played is refused before a run starts, by its name, with what was found and what is expected."""

from typing import Any

import numpy as np
import pytest
from hide_stage import random_actions

from srl.api.env import new_block, renew
from srl.core.errors import UserError
from srl.core.seeds import Seeds
from srl.envs.hide_and_seek.config import PRESETS, preset
from srl.envs.hide_and_seek.env import HideAndSeekVec

WRONG: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "a scenario that there is not": ({"scenario": "foo"}, ("env.scenario", "'foo'", "quadrant | var_quadrant")),
    "a scenario without the room that things are placed by": (
        {"scenario": "empty"},
        ("env.scenario", "empty", "env.seeker_placement=uniform"),
    ),
    "ramps of rooms that have no names": (
        {"preset": "full", "ramp_placement": "one_per_room"},
        ("env.scenario", "randomwalls", "env.ramp_placement=uniform"),
    ),
    "one number where two belong": ({"boxes": 2}, ("env.boxes", "found int 2", "env.boxes=[2, 2]")),
    "the upper end first": ({"boxes": (3, 2)}, ("env.boxes", "[3, 2]", "lower end first")),
    "fewer than nothing": ({"boxes": (-1, 2)}, ("env.boxes", "at least 0", "[-1, 2]")),
    "more than there is room for": ({"boxes": (0, 60)}, ("env.boxes", "60 boxes", "larger env.scale")),
    "no steps": ({"horizon": 0}, ("env.horizon", "at least 1", "found 0")),
    "half a step": ({"horizon": 7.5}, ("env.horizon", "int", "7.5")),
    "a preparation of more than all": ({"preparation": 2}, ("env.preparation", "below 1", "found 2")),
    "a preparation that rounds to all": ({"preparation": 0.9, "horizon": 2}, ("env.preparation", "0.9", "env.horizon")),
    "no rays": ({"lidar": 0}, ("env.lidar", "at least 1", "found 0")),
    "no seekers to hide from": ({"seekers": (0, 1)}, ("env.seekers", "[0, 1]", "at least 1")),
    "a task for one agent with two": ({"task": "shelter"}, ("env.seekers", "[0, 0]", "env.preset=shelter")),
    "a task without its target": ({"preset": "lock_and_return", "task": "blueprint"}, ("env.sites", "[0, 0]", "at least 1")),
    "a picture that there is not": ({"picture": "foo"}, ("env.picture", "'foo'", "top or gl")),
    "physics that there are not": ({"physics": "foo"}, ("env.physics", "'foo'", "exact or fast")),
    "a setting that there is not": ({"horizn": 3}, ("'env'", "horizn", "horizon")),
}


@pytest.mark.parametrize("what", WRONG)
def test_refused_is(what: str) -> None:
    settings, words = WRONG[what]
    with pytest.raises(UserError) as found:
        HideAndSeekVec(1, Seeds(0), **settings)
    assert all(word in str(found.value) for word in words), str(found.value)


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_can_be_played(name: str) -> None:
    assert HideAndSeekVec(1, Seeds(0), preset=name).config == PRESETS[name]


def test_harder_is_the_smaller_one_of_the_harder_maps() -> None:
    assert preset("harder") == preset("harder_1_5")


@pytest.mark.parametrize("ramps", [(0, 0), (1, 1)])
def test_a_game_without_boxes_can_be_played(ramps: tuple[int, int]) -> None:
    env = HideAndSeekVec(2, Seeds(0), preset="mini", boxes=(0, 0), ramps=ramps, horizon=6)
    block, rng = new_block(env.spec, 2), np.random.default_rng(0)
    env.reset(block)
    ends = 0
    for _ in range(20):
        renew(block)
        env.step(random_actions(env, rng), block)
        ends += int(block.teams["hider"].truncated.sum())
    assert ends == 6 and "boxes" not in env.spec.teams["hider"].obs
    assert np.isfinite(block.stats).all() and env.render(0).any()
    env.load(env.save())
