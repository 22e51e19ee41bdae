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


@pytest.mark.parametrize("yaw", [0.0, np.pi / 2, np.pi, -np.pi / 2])
@pytest.mark.parametrize(("beside", "sees"), [(-0.06, False), (0.02, True)])
def test_a_post_hides_a_ramp_before_its_centre_of_mass_only(beside: float, sees: bool, yaw: float) -> None:
    """The line to it passes 0.042 m beside that to the ramp's middle, half way."""
    cos, sin = np.cos(yaw), np.sin(yaw)
    place, post = (3 - 2 * cos, 3 - 2 * sin), (3 - cos - beside * sin, 3 - sin + beside * cos)
    stage = Stage().build(agents=[place, None, (5.5, 5.5)], objects=[None, None, (3, 3)], walls=[(*post, 0.08, 0.08, 4.0)])
    stage.objects[2, 3] = yaw
    assert bool(stage.turn(0, (3, 3)).look().scene.sees_object[0, 0, 2]) is sees


@pytest.mark.parametrize(("high", "sees"), [(0.55, False), (0.51, True)])
def test_a_wall_as_high_as_the_line_to_its_centre_of_mass_hides_a_ramp(high: float, sees: bool) -> None:
    """From 0.9 m the line goes down to 0.167 m: half way it is 0.533 m high."""
    stage = Stage().build(agents=[(1, 3), None, (5.5, 5.5)], objects=[None, None, (3, 3)], walls=[(2, 3, 0.01, 2.0, high)])
    stage.agents[0, 2] = 0.9
    assert bool(stage.turn(0, (3, 3)).look().scene.sees_object[0, 0, 2]) is sees


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


@pytest.mark.parametrize(("height", "over"), [(0.02, False), (0.15, False), (0.49, False), (0.51, True), (0.65, True)])
def test_lidar_looks_over_low_walls_and_boxes_from_above_their_tops(height: float, over: bool) -> None:
    stage = Stage().build(agents=[(2, 1), None, (2, 4), None], walls=[WALL, (5.0, 1.0, 0.1, 2.0, 4.0)], objects=[(1.0, 1.0)])
    stage.agents[0, 2] = height
    lidar = stage.look().scene.lidar[0, 0]
    assert lidar[[0, 15]] == pytest.approx([2.95, 6.0] if over else [0.95, 0.75], abs=1e-6)


def test_an_agent_on_a_box_does_not_meet_it() -> None:
    stage = Stage().build(agents=[(2, 1), None, (2, 4), None], walls=[WALL, (5.0, 1.0, 0.1, 2.0, 4.0)], objects=[(2.0, 1.0)])
    stage.agents[0, 2] = 0.65
    lidar = stage.step().scene.lidar[0, 0]
    assert stage.agents[0, 2] == pytest.approx(0.65, abs=0.01)
    assert lidar[[0, 15]] == pytest.approx([2.95, 6.0], abs=1e-3)


@pytest.mark.parametrize(("height", "under"), [(0.15, True), (0.24, True), (0.26, False), (0.74, False), (0.76, True)])
def test_lidar_passes_below_what_hangs_higher(height: float, under: bool) -> None:
    stage = Stage().build(agents=[(2, 1), None, (2, 4), None], objects=[(3.0, 1.0)])
    stage.agents[0, 2], stage.objects[0, 2] = height, 0.5
    assert stage.look().scene.lidar[0, 0, 0] == pytest.approx(6.0 if under else 0.75, abs=1e-6)


@pytest.mark.parametrize(("height", "wide"), [(0.15, 0.15), (0.05, 0.1118), (0.25, 0.1118), (0.31, None)])
def test_lidar_meets_an_agent_where_the_ball_is_that_high(height: float, wide: float | None) -> None:
    stage = Stage().build(agents=[(2, 1), None, (4, 1), None])
    stage.agents[0, 2] = height
    assert stage.look().scene.lidar[0, 0, 0] == pytest.approx(6.0 if wide is None else 2.0 - wide, abs=1e-4)


@pytest.mark.parametrize("height", [0.05, 0.15, 0.3, 0.45])
def test_lidar_meets_the_slope_of_a_ramp_where_it_is_that_high(height: float) -> None:
    stage = Stage().build(agents=[(1, 3), (5, 3), (2, 5), None], objects=[None, None, (3, 3)])
    stage.objects[2, 3] = np.pi / 2  # it rises towards +x
    stage.agents[:2, 2] = height
    lidar = stage.look().scene.lidar[0]
    assert lidar[0, 0] == pytest.approx(1.75 + height, abs=1e-5) and lidar[1, 15] == pytest.approx(1.75, abs=1e-5)


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
        same_as_cast(env)


@pytest.mark.parametrize("preset", ["quadrant", "full", "original_quadrant", "sequential_lock", "shelter"])
def test_lidar_and_sight_are_those_of_the_simulators_own_rays_at_any_height(preset: str) -> None:
    env = HideAndSeekVec(4, Seeds(1), preset=preset)
    block, rng = new_block(env.spec, 4), np.random.default_rng(0)
    env.reset(block)
    for _ in range(20):
        renew(block)
        env.step(random_actions(env, rng), block)
        heights = env.poses.agents[:, :, 2][env.scene.agent_there]
        env.poses.agents[env.scene.agent_there, 2] = rng.uniform(0.02, 0.8, len(heights))
        env._senses.update(env._worlds.cast)
        same_as_cast(env)
        env.poses.agents[env.scene.agent_there, 2] = heights


def same_as_cast(env: HideAndSeekVec) -> None:
    there = env.scene.agent_there
    assert np.allclose(env.scene.lidar[there], cast_lidar(env)[there], rtol=2e-3, atol=1e-3)
    assert np.array_equal(np.concatenate([env.scene.sees_agent, env.scene.sees_object], 2), cast_sight(env))


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
    """[N, A, A + O] whether the ray from each agent's centre to the middle of each target's geom meets that target first."""
    model, poses, scene, agents = env._worlds.model, env.poses, env.scene, env.config.agents
    middle, (cos, sin) = model.mj.geom_pos[model.object_geoms], poses.object_turns.transpose(2, 0, 1)
    turned = [cos * middle[:, 0] - sin * middle[:, 1], sin * middle[:, 0] + cos * middle[:, 1], 0 * cos + middle[:, 2]]
    aims = np.concatenate([poses.agents[:, :, :3], poses.objects[:, :, :3] + np.stack(turned, 2)], 1)
    bodies = np.concatenate([model.agents, model.objects])
    there = np.concatenate([scene.agent_there, scene.object_there], 1)
    wanted = cone(poses.agents, poses.agent_turns, aims, env.config.senses.cone) & scene.agent_there[:, :, None] & there[:, None]
    wanted &= np.arange(agents)[:, None] != np.arange(len(bodies))
    eyes = np.repeat(aims[:, :agents], len(bodies), 1)
    rays = np.tile(aims, (1, agents, 1)) - eyes
    rays[:, [agent * len(bodies) + agent for agent in range(agents)]] = 0.0, 0.0, 1.0  # not to oneself
    geoms = env._worlds.cast(eyes, rays, np.repeat(model.agents, len(bodies)).astype(np.int32))[1]
    return np.asarray((model.body_of_geom[geoms] == np.tile(bodies, agents)).reshape(wanted.shape) & wanted)
