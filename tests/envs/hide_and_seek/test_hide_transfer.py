"""The four transfer tasks, in hand-made situations."""

import numpy as np
import pytest
from hide_stage import LOCK, STAY, Stage

from srl.api.env import new_block, renew
from srl.core.seeds import Seeds
from srl.envs.hide_and_seek.config import preset
from srl.envs.hide_and_seek.env import HideAndSeekVec

TASKS = ("lock_and_return", "sequential_lock", "blueprint", "shelter")


@pytest.mark.parametrize("task", TASKS)
def test_a_trained_policys_observations_fit_the_tasks(task: str) -> None:
    full = HideAndSeekVec(1, Seeds(0), preset="full").spec.teams["hider"]
    own = HideAndSeekVec(1, Seeds(0), preset=task).spec
    assert list(own.teams) == ["hider"] and own.teams["hider"].agents == ("hider_0",)
    assert isinstance(full.obs, dict) and isinstance(own.teams["hider"].obs, dict)
    for key, leaf in full.obs.items():
        assert own.teams["hider"].obs[key].shape[1:] == leaf.shape[1:], key


@pytest.mark.parametrize(("task", "horizon"), list(zip(TASKS, (120, 120, 150, 240), strict=True)))
def test_the_tasks_have_the_published_horizons(task: str, horizon: int) -> None:
    config = preset(task)
    assert config.timing.horizon == horizon and config.timing.prep_steps == 0 and config.agents == 1


def test_the_world_of_lock_and_return_has_six_rooms_and_one_box() -> None:
    config = preset("lock_and_return")
    assert config.arena.rooms == (6, 6) and config.objects.boxes == (1, 1)


def lone(task: str, *boxes: tuple[float, float]) -> Stage:
    stage = Stage(preset=task).build(agents=[(2.0, 3.0)], objects=boxes)
    return stage.turn(0, boxes[0]).look()


def test_lock_and_return_pays_the_lock_the_way_and_being_back() -> None:
    stage = lone("lock_and_return", (2.45, 3.0)).step(LOCK)
    away = float(np.linalg.norm(stage.agents[0, :2] - (2.0, 3.0)))
    assert stage.reward("hider")[0] == pytest.approx(5 + 0.5 * 0.45 + 1, abs=0.02)
    assert away < 0.1
    stage.step((0, 5, 5, 0, 1), times=3)
    home = float(np.linalg.norm(stage.agents[0, :2] - (2.0, 3.0)))
    stage.step((10, 5, 5, 0, 1))
    closer = home - float(np.linalg.norm(stage.agents[0, :2] - (2.0, 3.0)))
    assert home > 0.5
    assert stage.reward("hider")[0] == pytest.approx(0.5 * closer, abs=1e-6)


def test_an_unlock_costs_what_the_lock_gave() -> None:
    stage = lone("lock_and_return", (2.45, 3.0)).step(LOCK).step(STAY)
    assert stage.reward("hider")[0] == pytest.approx(-5 - 0.5 * 0.45, abs=0.02)


def test_sequential_lock_accepts_only_the_next_box() -> None:
    stage = lone("sequential_lock", (2.45, 3.0), (2.0, 3.45), (5, 5), (5, 1))
    stage.turn(0, (2.4, 3.4)).look()
    assert stage.scene.sees_object[0, 0, :2].all()
    stage.step(LOCK)
    assert stage.scene.locked[0, :2].tolist() == [True, False]
    assert stage.reward("hider")[0] == pytest.approx(5 + 0.5 * 0.45, abs=0.02)
    stage.step(LOCK)
    assert stage.scene.locked[0, :2].tolist() == [True, True]
    stage = lone("sequential_lock", (5.0, 5.0), (2.45, 3.0), (5, 3), (5, 1)).turn(0, (2.45, 3.0)).look().step(LOCK)
    assert not stage.scene.locked.any()


def test_sequential_lock_lets_ramps_be_locked_at_any_time() -> None:
    stage = lone("sequential_lock", (5.0, 5.0), (5, 3), (5, 1), (1, 5), (2.45, 3.0)).turn(0, (2.45, 3.0)).look().step(LOCK)
    assert stage.scene.locked[0].tolist() == [False] * 4 + [True] + [False] * 2


def test_sequential_lock_has_three_closed_rooms_with_a_ramp_each() -> None:
    env = HideAndSeekVec(6, Seeds(0), preset="sequential_lock")
    env.reset(new_block(env.spec, 6))
    for world in range(6):
        walls = env.scene.walls[world]
        assert (~np.isnan(walls[:, 0])).sum() == 6
        ramps = env.poses.objects[world, 4:, :2]
        inner = walls[4:6]
        sides = [tuple(ramp[0] > wall[0] if wall[2] < wall[3] else ramp[1] > wall[1] for wall in inner) for ramp in ramps]
        assert len(set(sides)) == 3


def blueprint() -> Stage:
    stage = Stage(preset="blueprint").build(agents=[(0.5, 0.5)], objects=[(2.0, 2.0), (4.0, 4.0)])
    stage.scene.sites[0, 0] = 2.05, 2.0
    return stage


def test_blueprint_ends_with_three_per_site_when_boxes_cover_all_sites() -> None:
    stage = blueprint().step()
    assert stage.block.teams["hider"].terminated.all() and not stage.block.teams["hider"].truncated.any()
    assert stage.reward("hider")[0] == pytest.approx(3.0, abs=0.15)
    assert stage.block.stats[0, stage.env.spec.stats.index("task_done")] == 1
    stage.step()
    assert stage.scene.tick[0] == 0


def test_blueprint_wants_corners_to_match_too() -> None:
    stage = blueprint()
    stage.objects[0, 3] = np.pi / 4
    assert not stage.step().block.teams["hider"].terminated.any()


def test_blueprint_pays_the_smooth_distance_of_corners() -> None:
    stage = blueprint()
    stage.scene.sites[0, 1] = 5.0, 4.0
    stage.step()
    square = np.array([(-1, -1), (-1, 1), (1, -1), (1, 1)]) * 0.25
    corners = np.concatenate([stage.objects[box, :2] + square for box in range(2)])
    absent = np.concatenate([stage.objects[box, :2] + square for box in range(2, 8)])
    assert len(absent) == 24
    total = []
    for site in stage.scene.sites[0, :2]:
        for corner in site + square:
            lengths = np.linalg.norm(corners - corner, axis=1)
            weights = np.exp(-1.5 * lengths)
            total.append((lengths * weights).sum() / weights.sum())
    assert stage.reward("hider")[0] == pytest.approx(-0.05 * np.mean(total), abs=1e-3)


def test_sites_are_told_with_their_corners() -> None:
    stage = blueprint().step(STAY)
    obs = stage.block.teams["hider"].obs
    assert obs["exist_sites"][0, 0].tolist() == [1, 0, 0, 0]
    assert obs["sites"][0, 0, 0, :6] == pytest.approx([2.05, 2.0, 0.25, 1.8, 1.75, 0.25], abs=1e-6)


def test_shelter_counts_the_rays_that_reach_the_cylinder() -> None:
    env = HideAndSeekVec(1, Seeds(3), preset="shelter")
    block = new_block(env.spec, 1)
    env.reset(block)
    env.poses.objects[:, :, :2] = -np.arange(5, 13)[:, None] * 2.0
    still = {"hider": np.array([[STAY]])}

    def rays() -> float:
        renew(block)
        env.step(still, block)
        return float(-block.teams["hider"].reward[0, 0] * 1000)

    env.poses.agents[0, 0, :2] = -9.0, 3.0
    assert rays() == pytest.approx(100)
    x, y, width = env.scene.cylinder[0]
    env.poses.objects[0, 0, :2] = x - width / 2 - 0.3, y
    assert 60 < rays() < 100
