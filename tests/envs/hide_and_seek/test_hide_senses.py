"""Sight and lidar, with walls made by hand."""

import numpy as np
import pytest
from hide_stage import Stage, random_actions

from srl.api.env import new_block, renew
from srl.core.seeds import Seeds
from srl.core.tree import Array
from srl.envs.hide_and_seek.env import HideAndSeekVec
from srl.envs.hide_and_seek.senses import cone

WALL = (3.0, 1.0, 0.1, 2.0, 0.5)
HIGH_WALL = (3.0, 1.0, 0.1, 2.0, 4.0)


def test_the_cone_is_135_degrees_wide_around_where_the_agent_looks() -> None:
    eyes, turns = np.zeros((1, 1, 2)), np.array([[[np.cos(0.3), np.sin(0.3)]]])
    angles = np.linspace(-np.pi, np.pi, 700)
    targets = np.stack([np.sin(0.3 + angles), -np.cos(0.3 + angles)], 1)[None]
    inside = cone(eyes, turns, targets, 3 * np.pi / 8)[0, 0]
    assert np.array_equal(inside, np.abs(angles) <= 3 * np.pi / 8)


def test_an_agent_looks_along_minus_y_at_first() -> None:
    stage = Stage().build(agents=[(3, 3), (3, 2), (3, 4), None])
    assert stage.scene.sees_agent[0, 0].tolist() == [False, True, False, False]


def facing(walls: object = (), **overrides: object) -> Stage:
    """Hider 0 at (2, 1) and seeker 2 at (4, 1) look at each other."""
    stage = Stage(**overrides).build(agents=[(2, 1), None, (4, 1), None], walls=walls)
    return stage.turn(0, (4, 1)).turn(2, (2, 1)).look()


def test_two_agents_that_face_each_other_see_each_other() -> None:
    sees = facing().scene.sees_agent[0]
    assert sees[0, 2] and sees[2, 0] and sees.sum() == 2


@pytest.mark.parametrize("wall", [WALL, HIGH_WALL])
def test_walls_block_sight(wall: tuple[float, ...]) -> None:
    assert not facing([wall]).scene.sees_agent.any()


def test_boxes_block_sight_and_are_seen_themselves() -> None:
    stage = Stage().build(agents=[(2, 1), None, (4, 1), None], objects=[(3, 1)])
    stage.turn(0, (4, 1)).turn(2, (2, 1)).look()
    assert not stage.scene.sees_agent.any()
    assert stage.scene.sees_object[0, [0, 2], 0].all()


def test_agents_block_sight() -> None:
    stage = Stage().build(agents=[(2, 1), (3, 1), (4, 1), None]).turn(2, (2, 1)).look()
    assert stage.scene.sees_agent[0, 2].tolist() == [False, True, False, False]


@pytest.mark.parametrize(("wall", "sees"), [(WALL, True), (HIGH_WALL, False)])
def test_an_agent_on_a_ramp_looks_over_low_walls_only(wall: tuple[float, ...], sees: bool) -> None:
    stage = facing([wall])
    stage.agents[0, 2] = 0.9
    stage.look()
    assert bool(stage.scene.sees_agent[0, 0, 2]) is sees


def test_a_ramp_is_seen_and_hides_what_is_behind_it() -> None:
    stage = Stage().build(agents=[(3, 4), (3, 2), None, None], objects=[None, None, (3, 3)]).look()
    assert stage.scene.sees_object[0, 0, 2] and not stage.scene.sees_agent[0, 0, 1]


def test_what_is_not_there_sees_nothing_and_is_not_seen() -> None:
    stage = Stage().build(agents=[(3, 4), None, (3, 3), None], objects=[None, (3, 2)])
    assert not stage.scene.sees_agent[0, [1, 3]].any() and not stage.scene.sees_agent[0, :, [1, 3]].any()
    assert not stage.scene.sees_object[0, :, 0].any() and not stage.scene.sees_object[0, [1, 3]].any()


def test_lidar_measures_along_world_axes_from_the_centre() -> None:
    stage = Stage().build(agents=[(2, 1), None, (2, 3), None], walls=[WALL], objects=[(1.0, 1.0)])
    stage.agents[0, 3] = 1.234
    lidar = stage.look().scene.lidar[0, 0]
    assert lidar[0] == pytest.approx(3.0 - 0.05 - 2.0, abs=1e-6)
    assert lidar[15] == pytest.approx(2.0 - 1.25, abs=1e-6)
    angle = 2 * np.pi * 2 / 30
    assert lidar[2] == pytest.approx(0.95 / np.cos(angle), abs=1e-6)


def test_lidar_reads_six_metres_where_nothing_is_and_is_not_clipped() -> None:
    stage = Stage(scale=2.0).build(agents=[(1, 1), None, (5, 5), None], walls=[(11.0, 1.0, 0.1, 2.0, 4.0)])
    lidar = stage.scene.lidar[0, 0]
    assert lidar[15] == 6.0
    assert lidar[0] == pytest.approx(9.95, abs=1e-6)


def test_lidar_sees_other_agents_but_not_arms_for_show() -> None:
    stage = Stage().build(agents=[(2, 1), None, (3, 1), None])
    assert stage.scene.lidar[0, 0, 0] == pytest.approx(0.85, abs=1e-6)
    turned = stage.turn(2, (2, 1)).look().scene.lidar[0, 0, 0]
    assert turned == pytest.approx(0.85, abs=1e-6)


@pytest.mark.parametrize("preset", ["mini", "quadrant", "full", "harder", "original_quadrant", "sequential_lock", "shelter"])
def test_lidar_and_sight_are_those_of_the_simulators_own_rays(preset: str) -> None:
    env = HideAndSeekVec(4, Seeds(1), preset=preset)
    block, rng = new_block(env.spec, 4), np.random.default_rng(0)
    env.reset(block)
    for tick in range(60):
        if tick % 4 == 0:
            actions = random_actions(env, rng)
        renew(block)
        env.step(actions, block)
        there = env.scene.agent_there
        assert np.allclose(env.scene.lidar[there], cast_lidar(env)[there], rtol=2e-3, atol=1e-3)
        assert np.array_equal(env.scene.sees_agent | env.scene.sees_agent.transpose(0, 2, 1), cast_sight(env))


def cast_lidar(env: HideAndSeekVec) -> Array:
    agents, rays = env.config.agents, env.config.senses.lidar
    angles = 2 * np.pi * np.arange(rays) / rays
    circle = np.stack([np.cos(angles), np.sin(angles), np.zeros(rays)], 1)
    eyes = np.repeat(env.poses.agents[:, :, :3], rays, 1)
    own = np.repeat(env._worlds.model.agents, rays).astype(np.int32)
    distance, _ = env._worlds.cast(eyes, np.tile(circle, (agents, 1)), own)
    far = np.where(distance < 0, env.config.senses.lidar_far, distance)
    return np.asarray(far.reshape(env.count, agents, rays))


def cast_sight(env: HideAndSeekVec) -> Array:
    """[N, A, A] whether one of two agents sees the other, a ray for each pair."""
    model, eyes, agents = env._worlds.model, env.poses.agents, env.config.agents
    sees = np.zeros((env.count, agents, agents), bool)
    there = env.scene.agent_there
    looks = cone(eyes, env.poses.agent_turns, eyes, env.config.senses.cone) & there[:, :, None] & there[:, None]
    for one in range(agents):
        for other in range(agents):
            if one != other:
                ray = (eyes[:, other] - eyes[:, one])[:, None, :3]
                own = np.full((env.count, 1), model.agents[one], np.int32)
                geom = env._worlds.cast(np.ascontiguousarray(eyes[:, one, None, :3]), ray, own)[1][:, 0]
                either = looks[:, one, other] | looks[:, other, one]
                sees[:, one, other] = (model.body_of_geom[geom] == model.agents[other]) & either
    return sees
