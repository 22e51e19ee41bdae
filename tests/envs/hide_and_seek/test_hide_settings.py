"""Settings: what cannot be played is refused before a run starts, by its name, with what was found and what is expected."""

from dataclasses import fields
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


QUADRANT: dict[str, Any] = {
    "scenario": "quadrant", "scale": 1.0, "door": 2, "door_dropout": 0.5, "wall_friction": 0.01, "prep_steps": 32,
    "hiders": (2, 2), "seekers": (2, 2), "boxes": (2, 2), "elongated": (0, 0), "ramps": (1, 1), "lock_ramps": False,
    "hider_placement": "uniform", "seeker_placement": "outside", "box_placement": "room", "ramp_placement": "uniform",
    "horizon": 80, "end": "truncated", "rectangle": (0.1, 5.9), "objects_inside": True, "penalty": 10.0, "reach": 0.25,
    "unowned_veto": True, "substeps": 15, "corners": True, "arms": False, "positions": "centre", "yaw": "unit",
    "counts": "episode", "together": None, "lidar": 30, "lidar_far": 6.0, "cone": 3 * np.pi / 8,
}  # fmt: skip
FULL = QUADRANT | {
    "scenario": "randomwalls", "rooms": (1, 4), "min_room": 6, "outer_walls": 0.5, "wall_friction": 1.0, "hiders": (1, 3),
    "seekers": (1, 3), "boxes": (3, 9), "elongated": "random", "ramps": (2, 2), "lock_ramps": True, "horizon": 240,
    "prep_steps": 96, "rectangle": (-6.0, 12.0), "objects_inside": False, "seeker_placement": "uniform",
    "box_placement": "uniform", "together": 3,
}  # fmt: skip
HARDER_1_5 = {
    "scale": 1.5,
    "horizon": 360,
    "prep_steps": 144,
    "hiders": (1, 4),
    "seekers": (1, 4),
    "boxes": (3, 12),
    "together": 5,
}
HARDER_2 = {"scale": 2.0, "horizon": 480, "prep_steps": 192, "hiders": (1, 5), "seekers": (1, 5), "boxes": (3, 16), "together": 6}
ORIGINAL = {"arms": True, "positions": "joint", "yaw": "raw", "counts": "process"}
MINI = {"hiders": (1, 1), "seekers": (1, 1), "boxes": (1, 1), "ramps": (0, 0), "rectangle": None, "objects_inside": False}
FAST = {"substeps": 7, "corners": False}
NUMBERS = {
    "quadrant": QUADRANT,
    "full": FULL,
    "harder_1_5": FULL | HARDER_1_5,
    "harder_2": FULL | HARDER_2 | {"ramps": (2, 3)},
    "original": FULL | ORIGINAL,
    "original_quadrant": QUADRANT | ORIGINAL,
    "mini": QUADRANT | MINI | FAST,
    "mini_2v2": QUADRANT | FAST,
}


@pytest.mark.parametrize("name", NUMBERS)
def test_a_preset_has_the_published_numbers(name: str) -> None:
    config = preset(name)
    parts = [getattr(config, part.name) for part in fields(config)]
    found = {entry.name: getattr(part, entry.name) for part in parts for entry in fields(part)}
    found["prep_steps"] = config.timing.prep_steps
    assert {key: found[key] for key in NUMBERS[name]} == NUMBERS[name]


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
