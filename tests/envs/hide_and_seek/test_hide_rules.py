"""Grabbing, locking, rewards and ends, in hand-made worlds."""

import itertools

import numpy as np
import pytest
from hide_stage import EAST, GRAB, LOCK, NORTH, STAY, WEST, Stage

from srl.envs.hide_and_seek import rules


def test_the_middle_bucket_is_exactly_no_force() -> None:
    assert rules.controls(np.arange(11)).tolist() == pytest.approx([-0.9 + 0.18 * k for k in range(11)])
    assert rules.controls(np.array(5)) == 0.0


def test_reach_is_the_distance_to_a_turned_box() -> None:
    points = np.array([[[1.0, 0.0, 0.25], [0.0, 1.0, 0.25], [0.0, 0.0, 1.0], [0.1, 0.0, 0.25]]])
    places, quarter = np.array([[[0.0, 0.0, 0.25]]]), np.array([[[0.0, 1.0]]])
    half = np.array([[[0.8, 0.1, 0.25]]])
    assert rules.reach(points, places, quarter, half)[0, :, 0] == pytest.approx([0.9, 0.2, 0.5, 0.0])


def slow_lock(near: list[bool], glue: list[bool], team: list[int], locked: bool, owner: int) -> bool:
    """The rule as it is told, for one object."""
    if any(n and not g and t == owner for n, g, t in zip(near, glue, team, strict=True)):
        return False
    return locked or any(n and g for n, g in zip(near, glue, strict=True))


def test_lock_truth_table_of_two_against_one() -> None:
    team = [0, 0, 1]
    bits = [False, True]
    for near in itertools.product(bits, repeat=3):
        for glue in itertools.product(bits, repeat=3):
            for locked, locker in itertools.product(bits, (0, 1, 2, -1)):
                if locked and locker < 0:
                    continue
                owner = team[locker] if locker >= 0 else -1
                found, who = rules.lock_update(
                    np.array(near)[None, :, None],
                    np.array(glue)[None],
                    np.array(team),
                    np.array([[locked]]),
                    np.array([[locker]]),
                    np.ones((1, 1), bool),
                    lambda: np.ones((1, 3, 1)),
                )
                assert bool(found[0, 0]) == slow_lock(list(near), list(glue), team, locked, owner)
                if found[0, 0] and not locked:
                    assert near[who[0, 0]] and glue[who[0, 0]]
                else:
                    assert who[0, 0] == locker


def test_the_locker_is_drawn_from_all_who_want() -> None:
    lots = rules.lots(np.arange(400), np.zeros(400, int), 3, 1)
    wanting = np.tile(np.array([True, False, True])[:, None], (400, 1, 1))
    locked, who = rules.lock_update(
        wanting,
        np.ones((400, 3), bool),
        np.zeros(3, int),
        np.zeros((400, 1), bool),
        np.full((400, 1), -1),
        np.True_,
        lambda: lots,
    )
    counts = np.bincount(who[:, 0], minlength=3)
    assert locked.all() and counts[1] == 0 and 160 < counts[0] < 240


def test_the_nearest_reachable_object_is_grabbed() -> None:
    distance = np.array([[[0.2, 0.1, 0.05]]])
    near = np.array([[[True, True, False]]])
    assert rules.grab_targets(distance, near, np.array([[True]])).tolist() == [[1]]
    assert rules.grab_targets(distance, near, np.array([[False]])).tolist() == [[-1]]


def beside_a_box(**overrides: object) -> Stage:
    """Hider 0 west of box 0 and hider 1 east of it, both looking at it; everything else far away."""
    stage = Stage(**overrides).build(agents=[(2.0, 3.0), (2.9, 3.0), (0.5, 5.5), (5.5, 5.5)], objects=[(2.45, 3.0)])
    return stage.turn(0, (2.45, 3.0)).turn(1, (2.45, 3.0)).look()


def test_a_grab_ties_and_letting_go_unties() -> None:
    stage = beside_a_box()
    stage.step(GRAB)
    assert stage.scene.grabbed[0].tolist() == [0, -1, -1, -1]
    stage.step((0, 5, 5, 1, 0), times=6)
    assert stage.objects[0, 0] < 2.0
    stage.step(WEST, times=4)
    assert stage.scene.grabbed[0, 0] == -1
    assert stage.objects[0, 0] - stage.agents[0, 0] > 0.6


@pytest.mark.parametrize("physics", ["exact", "fast"])
def test_a_weld_keeps_the_pose_of_its_first_moment_and_is_not_made_anew(physics: str) -> None:
    stage = beside_a_box(physics=physics).step(GRAB)
    offset = stage.objects[0] - stage.agents[0]
    stage.objects[0, [0, 3]] += 0.04, 0.2
    stage.step(GRAB, times=4)
    assert stage.scene.grabbed[0, 0] == 0
    away = stage.objects[0] - stage.agents[0]
    assert np.hypot(*away[:2]) == pytest.approx(np.hypot(*offset[:2]), abs=0.01)
    assert away[3] == pytest.approx(offset[3], abs=0.05), "pulled back to where it was at first"


@pytest.mark.parametrize("physics", ["exact", "fast"])
def test_a_weld_is_made_anew_when_another_object_becomes_the_nearest(physics: str) -> None:
    stage = Stage(physics=physics).build(agents=[(2.0, 3.0), None, (5.5, 5.5)], objects=[(2.45, 3.0), (2.0, 3.47)])
    stage.turn(0, (3.0, 4.0)).look().step(GRAB)
    assert stage.scene.grabbed[0, 0] == 0
    stage.objects[1, 1] -= 0.05
    offset, start = stage.objects[1] - stage.agents[0], stage.objects[0].copy()
    stage.step((5, 2, 5, 1, 0), times=6)
    assert stage.scene.grabbed[0, 0] == 1
    assert stage.objects[1] - stage.agents[0] == pytest.approx(offset, abs=0.02), "held as it stood when it became the nearest"
    assert stage.agents[0, 1] < 2.5 and stage.objects[0, :2] == pytest.approx(start[:2], abs=0.03)


def test_what_is_out_of_sight_or_out_of_reach_is_not_grabbed() -> None:
    stage = beside_a_box().turn(0, (0.0, 3.0)).look().step(GRAB)
    assert stage.scene.grabbed[0, 0] == -1
    stage = Stage().build(agents=[(2.0, 3.0), None, (5.5, 5.5)], objects=[(2.6, 3.0)]).turn(0, (2.6, 3.0)).look().step(GRAB)
    assert stage.scene.grabbed[0, 0] == -1


def test_what_is_within_reach_but_out_of_sight_is_not_locked() -> None:
    stage = beside_a_box().turn(0, (0.0, 3.0)).turn(1, (9.0, 3.0)).look().step(LOCK, LOCK)
    assert not stage.scene.locked.any()


def test_an_unwilling_hider_that_does_not_see_the_object_does_not_forbid_its_lock() -> None:
    stage = beside_a_box().turn(0, (0.0, 3.0)).look().step(STAY, LOCK)
    assert stage.scene.locked[0].tolist() == [True, False, False]


def test_what_counts_is_what_was_seen_before_the_step() -> None:
    stage = beside_a_box().turn(0, (0.0, 3.0)).step(GRAB, LOCK)
    assert stage.scene.grabbed[0, 0] == 0 and not stage.scene.locked.any()
    assert stage.step(GRAB, LOCK).scene.grabbed[0, 0] == -1 and stage.scene.locked[0, 0]


def test_two_agents_can_hold_one_object_and_a_ramp_can_be_held() -> None:
    stage = beside_a_box().step(GRAB, GRAB)
    assert stage.scene.grabbed[0, :2].tolist() == [0, 0]
    ramp = Stage().build(agents=[(2.0, 3.0), None, (5.5, 5.5)], objects=[None, None, (2.45, 3.0)])
    assert ramp.turn(0, (2.45, 3.0)).look().step(GRAB).scene.grabbed[0, 0] == 2


def test_two_worlds_weld_their_own_objects() -> None:
    from srl.api.env import new_block
    from srl.core.seeds import Seeds
    from srl.envs.hide_and_seek.env import HideAndSeekVec

    env = HideAndSeekVec(2, Seeds(0), preset="quadrant", preparation=0.0)
    env.reset(new_block(env.spec, 2))
    worlds, poses = env._worlds, env.poses
    poses.agents[:, 0, :2] = 1.0, 4.5
    for world, thing in ((0, 0), (1, 1)):
        poses.objects[world, thing, :2] = 1.5, 4.5
        worlds.weld(np.array([world]), np.array([0]), np.array([thing]))
    active = np.zeros((2, 4), bool)
    active[:, 0] = True
    worlds.set_welds(active)
    before = poses.objects.copy()
    worlds.controls[:, 0, 0] = -0.9
    for _ in range(3):
        worlds.step(None)
    moved = np.abs(poses.objects[:, :2, 0] - before[:, :2, 0]) > 0.2
    assert moved.tolist() == [[True, False], [False, True]]


def test_a_lock_holds_against_full_force_and_its_team_undoes_it_by_coming_near() -> None:
    stage = beside_a_box().step(LOCK, LOCK)
    place = stage.objects[0].copy()
    assert stage.scene.locked[0, 0] and stage.scene.locker[0, 0] in (0, 1)
    stage.step((10, 5, 5, 0, 1), LOCK, times=15)
    assert np.abs(stage.objects[0, :2] - place[:2]).max() < 0.005
    stage.step(LOCK, STAY)
    assert not stage.scene.locked[0, 0]


def test_a_seeker_cannot_undo_a_lock_of_the_hiders() -> None:
    stage = Stage().build(agents=[(2.0, 3.0), None, (2.9, 3.0)], objects=[(2.45, 3.0)])
    stage.turn(0, (2.45, 3.0)).turn(2, (2.45, 3.0)).look().step(LOCK)
    stage.step((5, 5, 5, 0, 1), STAY, STAY, times=2)
    assert stage.scene.locked[0, 0]
    stage.step(STAY, STAY, LOCK)
    assert not stage.scene.locked[0, 0], "the owner came near without wanting the lock"


@pytest.mark.parametrize(("quirk", "locks"), [(True, False), (False, True)])
def test_an_unwilling_hider_forbids_the_seekers_lock_of_what_nobody_locked(quirk: bool, locks: bool) -> None:
    stage = Stage(unowned_veto=quirk).build(agents=[(2.0, 3.0), None, (2.9, 3.0)], objects=[(2.45, 3.0)])
    stage.turn(0, (2.45, 3.0)).turn(2, (2.45, 3.0)).look().step(STAY, STAY, LOCK)
    assert bool(stage.scene.locked[0, 0]) is locks


def test_an_unwilling_seeker_does_not_forbid_the_hiders_lock() -> None:
    stage = Stage().build(agents=[(2.0, 3.0), None, (2.9, 3.0)], objects=[(2.45, 3.0)])
    stage.turn(0, (2.45, 3.0)).turn(2, (2.45, 3.0)).look().step(LOCK)
    assert stage.scene.locked[0, 0]


@pytest.mark.parametrize("lockable", [True, False])
def test_ramps_are_lockable_only_where_the_game_says_so(lockable: bool) -> None:
    stage = Stage(lock_ramps=lockable).build(agents=[(2.0, 3.0), None, (5.5, 5.5)], objects=[None, None, (2.45, 3.0)])
    stage.turn(0, (2.45, 3.0)).look().step(LOCK)
    assert bool(stage.scene.locked[0, 2]) is lockable


def test_a_locked_box_can_be_grabbed_and_anchors_the_agent() -> None:
    stage = beside_a_box().step(LOCK, LOCK).step((5, 5, 5, 1, 1), LOCK)
    place = stage.agents[0, :2].copy()
    stage.step((0, 5, 5, 1, 1), LOCK, times=8)
    assert np.abs(stage.agents[0, :2] - place).max() < 0.1


def test_rewards_are_opposite_and_joint() -> None:
    stage = Stage().build(agents=[(1, 1), (5, 5), (1, 2), (5.0, 1.0)]).turn(2, (1, 1)).turn(3, (5.0, 0)).look().step()
    assert stage.reward("hider") == [-1, -1] and stage.reward("seeker") == [1, 1]
    stage.turn(2, (-5, 2)).look().step()
    assert stage.reward("hider") == [1, 1] and stage.reward("seeker") == [-1, -1]


def test_the_reward_is_first_given_at_the_step_after_preparation() -> None:
    stage = Stage(preparation=0.4, horizon=20).build(agents=[(1, 1), (5, 5), (1, 2), (5, 1)])
    rewards = [stage.step().reward("hider")[0] for _ in range(12)]
    assert [bool(reward) for reward in rewards] == [False] * 8 + [True] * 4


def test_a_fine_is_not_taken_in_preparation() -> None:
    stage = Stage(preparation=0.5, horizon=4, rectangle=(0.1, 5.9)).build(agents=[(-1, 1), (5, 5), (1, 2), (5, 1)])
    assert [stage.step().reward("hider")[0] for _ in range(3)] == [0, 0, -10]


def test_seekers_cannot_act_in_preparation_but_can_be_pushed() -> None:
    stage = Stage(preparation=0.5, horizon=24).build(agents=[(1.0, 3.0), None, (1.5, 3.0)], objects=[(1.95, 3.0)])
    stage.turn(2, (1.95, 3.0)).look()
    assert stage.block.teams["seeker"].mask[0, 0].sum() == 5
    assert stage.block.teams["hider"].mask[0, 0].all()
    stage.step(STAY, STAY, (5, 10, 5, 1, 1), times=4)
    assert stage.agents[2, 1] == pytest.approx(3.0, abs=1e-6)
    assert stage.scene.grabbed[0, 2] == -1 and not stage.scene.locked.any()
    stage.step(EAST, STAY, NORTH, times=8)
    assert stage.agents[2, 0] > 1.6
    assert stage.block.teams["seeker"].mask[0, 0].all()
    height = stage.agents[2, 1]
    stage.step(STAY, STAY, NORTH, times=2)
    assert stage.agents[2, 1] > height + 0.3


def test_who_leaves_the_rectangle_pays_instead_of_the_reward() -> None:
    stage = Stage(rectangle=(0.1, 5.9), objects_inside=False).build(agents=[(-1, 1), (5, 5), (1, 2), (7, 7)])
    stage.turn(2, (-1, 4)).turn(3, (9, 9)).look().step()
    assert stage.reward("hider") == [-10, 1] and stage.reward("seeker") == [-1, -10]


@pytest.mark.parametrize(("inside", "rewards"), [(True, [-10, -10]), (False, [1, 1])])
def test_everybody_pays_for_an_object_outside_in_the_quadrant_game(inside: bool, rewards: list[float]) -> None:
    stage = Stage(rectangle=(0.1, 5.9), objects_inside=inside)
    stage.build(agents=[(1, 1), (5, 5), (1, 2), (5, 4)], objects=[(7, 3)])
    stage.turn(2, (-9, 2)).turn(3, (9, 3)).look().step()
    assert stage.reward("hider") == rewards


def test_the_rectangle_grows_with_the_map() -> None:
    stage = Stage(scale=2.0, rectangle=(-6.0, 12.0)).build(agents=[(23.9, 1), (-11.9, 1), (24.1, 3), (1, -12.1)])
    assert stage.step().reward("seeker") == [-10, -10]
    assert -10 not in stage.reward("hider")


def test_an_episode_is_cut_at_the_horizon_and_never_terminates() -> None:
    stage = Stage(horizon=5).build(agents=[(1, 1), (5, 5), (1, 2), (5, 4)])
    for tick in range(1, 6):
        stage.step()
        for block in stage.block.teams.values():
            assert not block.terminated.any()
            assert block.truncated.all() == (tick == 5)
    assert stage.block.stats[0, stage.env.spec.stats.index("hider_return")] != 0
    stage.step()
    assert stage.scene.tick[0] == 0 and not stage.block.teams["hider"].truncated.any()
    assert stage.reward("hider") == [0, 0]


def test_the_original_reports_the_horizon_as_an_end_when_asked_to() -> None:
    stage = Stage(horizon=2, end="terminated").build(agents=[(1, 1), (5, 5), (1, 2), (5, 4)]).step(times=2)
    assert stage.block.teams["hider"].terminated.all() and not stage.block.teams["hider"].truncated.any()
