"""The physical skills behind the stages of the game, as regression figures, for both step sizes."""

import numpy as np
import pytest
from hide_stage import EAST, EAST_GRAB, GRAB, LOCK, NORTH, STAY, TURN_GRAB, Stage

from srl.envs.hide_and_seek.layout import CUBE, LONG_X, Size

PHYSICS = pytest.mark.parametrize(
    "physics",
    [{"substeps": substeps, "corners": corners} for substeps in (15, 7) for corners in (True, False)],
    ids=["exact", "exact, one foot", "7 substeps", "fast"],
)


@PHYSICS
def test_an_agent_runs_at_eight_metres_a_second(physics: dict[str, int]) -> None:
    stage = Stage(**physics, scale=3.0).build(agents=[(1, 1), None, (9, 9)])
    speeds = []
    for _ in range(15):
        speeds.append(float(stage.step(EAST).poses.agent_speeds[0, 0, 0]))
    assert speeds[0] == pytest.approx(4.2, abs=0.3) and speeds[1] == pytest.approx(6.3, abs=0.3)
    assert speeds[-1] == pytest.approx(8.0, abs=0.05 if physics["substeps"] == 15 else 0.2)


@PHYSICS
def test_an_agent_turns_at_nine_radians_a_second(physics: dict[str, int]) -> None:
    stage = Stage(**physics).build(agents=[(1, 1), None, (5, 5)]).step((5, 5, 10, 0, 0), times=3)
    assert stage.poses.agent_speeds[0, 0, 3] == pytest.approx(9.0, abs=0.2)


@PHYSICS
def test_an_agent_pushes_a_box_almost_five_metres_in_twelve_steps(physics: dict[str, int]) -> None:
    stage = Stage(**physics, scale=3.0).build(agents=[(2, 9), None, (15, 15)], objects=[(2.4, 9)])
    assert stage.step(EAST, times=12).objects[0, 0] - 2.4 == pytest.approx(4.85, abs=0.25)


@PHYSICS
def test_an_agent_drags_a_box_it_holds_as_far(physics: dict[str, int]) -> None:
    stage = Stage(**physics, scale=3.0).build(agents=[(12, 9), None, (15, 15)], objects=[(12.4, 9)])
    stage.turn(0, (12.4, 9)).look().step((0, 5, 5, 1, 0), times=12)
    assert 12.4 - stage.objects[0, 0] == pytest.approx(4.85, abs=0.25)


@pytest.mark.parametrize(("substeps", "bucket", "rate"), [(15, 8, 4.5), (7, 8, 4.0), (15, 10, 8.1)])
def test_an_agent_turns_a_box_it_holds(substeps: int, bucket: int, rate: float) -> None:
    stage = Stage(substeps=substeps).build(agents=[(3, 3), None, (5.5, 5.5)], objects=[(3.4, 3)])
    stage.turn(0, (3.4, 3)).look()
    rates = [stage.step((5, 5, bucket, 1, 0)).poses.object_speeds[0, 0, 3] for _ in range(12)]
    assert stage.scene.grabbed[0, 0] == 0
    assert np.mean(rates[4:]) == pytest.approx(rate, abs=0.8)


def test_fast_physics_tears_a_box_from_an_agent_that_turns_with_full_torque() -> None:
    stage = Stage(substeps=7).build(agents=[(3, 3), None, (5.5, 5.5)], objects=[(3.4, 3)])
    stage.turn(0, (3.4, 3)).look().step(TURN_GRAB, times=4)
    assert stage.scene.grabbed[0, 0] == -1


@PHYSICS
def test_an_agent_climbs_a_ramp_and_clears_a_wall(physics: dict[str, int]) -> None:
    stage = Stage(**physics, scale=2.0, lock_ramps=True)
    # the ramp's high side, -y, leans on the wall
    stage.build(agents=[(3, 5.0), None, (11, 11)], objects=[None, None, (3, 3.35)], walls=[(3, 3.0, 4.0, 0.1, 0.5)])
    heights = [float(stage.step((5, 0, 5, 0, 0)).agents[0, 2]) for _ in range(12)]
    assert max(heights) == pytest.approx(0.735, abs=0.06)
    assert stage.agents[0, 1] < 2.5


def test_an_agent_without_a_ramp_does_not_clear_a_wall() -> None:
    stage = Stage(scale=2.0).build(agents=[(3, 5.0), None, (11, 11)], walls=[(3, 3.0, 4.0, 0.1, 0.5)])
    assert stage.step((5, 0, 5, 0, 0), times=15).agents[0, 1] == pytest.approx(3.2, abs=0.02)


def on_a_box(physics: dict[str, int]) -> Stage:
    """Backwards, so that the box stays in sight while it lags behind."""
    stage = Stage(**physics, scale=3.0).build(agents=[(2.1, 9), None, (15, 15)], objects=[(2, 9)])
    stage.agents[0, 2] = 0.65
    return stage.turn(0, (2, 9)).look().step(GRAB, times=3)


@PHYSICS
def test_an_agent_on_a_box_surfs_when_it_holds_the_box(physics: dict[str, int]) -> None:
    stage = on_a_box(physics)
    assert stage.scene.grabbed[0, 0] == 0
    stage.step(EAST_GRAB, times=12)
    assert stage.agents[0, 2] > 0.6
    assert stage.poses.agent_speeds[0, 0, 0] == pytest.approx(6.9, abs=0.5)


def test_an_agent_on_a_box_it_does_not_hold_slips_off() -> None:
    stage = on_a_box({"substeps": 15}).step(STAY).step(EAST, times=8)
    assert stage.agents[0, 2] < 0.2 and stage.objects[0, 0] < 2.3


@PHYSICS
@pytest.mark.parametrize("angle", [0.0, 0.7])
def test_a_locked_box_moves_less_than_five_millimetres_under_full_force(physics: dict[str, int], angle: float) -> None:
    stage = Stage(**physics).build(agents=[(2.0, 3.0), None, (5.5, 5.5)], objects=[(2.45, 3.0)])
    stage.objects[0, 3] = angle
    stage.turn(0, (2.45, 3.0)).look().step(LOCK)
    place = stage.objects[0].copy()
    assert stage.scene.locked[0, 0]
    drift = [np.abs(stage.step((10, 5, 5, 0, 1)).objects[0, :3] - place[:3]).max() for _ in range(20)]
    assert max(drift) <= 0.005


@PHYSICS
def test_a_locked_box_hardly_turns_under_a_push_beside_its_middle(physics: dict[str, int]) -> None:
    stage = Stage(**physics).build(agents=[(2.0, 3.0), None, (5.5, 5.5)], objects=[(2.45, 3.0)])
    stage.turn(0, (2.45, 3.0)).look().step(LOCK)
    stage.agents[0, 1] = 3.18
    turned = [abs(stage.step((10, 5, 5, 0, 1)).objects[0, 3]) for _ in range(20)]
    assert stage.scene.locked[0, 0] and stage.agents[0, 0] > 2.0
    assert max(turned) <= 0.02


@PHYSICS
def test_a_locked_box_hangs_in_the_air(physics: dict[str, int]) -> None:
    stage = Stage(**physics).build(agents=[(2.0, 3.0), None, (5.5, 5.5)], objects=[(2.45, 3.0)])
    stage.objects[0, 2] = 0.35
    stage.turn(0, (2.45, 3.0)).look().step(LOCK, times=10)
    assert stage.objects[0, 2] == pytest.approx(0.35, abs=0.005)


@PHYSICS
def test_cubes_and_agents_pass_a_door(physics: dict[str, int]) -> None:
    """The door of 0.7 m between two parts of a wall."""
    walls = [(1.5, 3, 2.3, 0.1, 0.5), (4.5, 3, 2.3, 0.1, 0.5)]
    stage = Stage(**physics).build(agents=[(3, 1.6), None, (5.5, 5.5)], objects=[(3, 2.05)], walls=walls)
    stage.step(NORTH, times=8)
    assert stage.objects[0, 1] > 3.3 and stage.agents[0, 1] > 3.0


@PHYSICS
def test_moved_walls_stop_agents_and_boxes(physics: dict[str, int]) -> None:
    stage = Stage(**physics).build(agents=[(2, 3), (2, 1), (5.5, 5.5)], objects=[(2.6, 1)], walls=[(4, 2, 0.1, 3, 0.5)])
    stage.step(EAST, EAST, times=15)
    assert stage.agents[0, 0] == pytest.approx(4 - 0.05 - 0.15, abs=0.02)
    assert stage.objects[0, 0] == pytest.approx(4 - 0.05 - 0.25, abs=0.02)


@pytest.mark.parametrize("size", [CUBE, LONG_X], ids=["cube", "long"])
@pytest.mark.parametrize("substeps", [15, 7])
@pytest.mark.parametrize(("speed", "spin"), [(5.0, 0.0), (0.0, 9.0), (3.0, 5.0), (5.0, 2.0), (2.0, 9.0)])
def test_a_box_on_its_foot_slides_and_turns_as_on_its_corners(size: Size, substeps: int, speed: float, spin: float) -> None:
    (slid, turned), (slid_on_corners, turned_on_corners) = (
        np.mean([stopped(size, substeps, corners, speed, spin, yaw) for yaw in np.linspace(0, np.pi / 2, 6)], 0)
        for corners in (False, True)
    )
    assert slid == pytest.approx(slid_on_corners, abs=0.04)
    assert turned == pytest.approx(turned_on_corners, abs=0.1)


def stopped(size: Size, substeps: int, corners: bool, speed: float, spin: float, yaw: float) -> tuple[float, float]:
    """How far a box slides and turns until it stands."""
    sizes = [size, *[CUBE] * 10]
    stage = Stage(preset="full", substeps=substeps, corners=corners, scale=3.0)
    stage.build(agents=[(1, 1), None, None, (15, 15)], objects=[(9, 9)], sizes=sizes)
    stage.objects[0, 3] = yaw
    stage.poses.object_speeds[0, 0] = speed * np.cos(0.4), speed * np.sin(0.4), 0, spin
    stage.step(times=20)
    assert np.abs(stage.poses.object_speeds[0, 0]).max() < 0.01
    assert stage.objects[0, 2] == pytest.approx(0.25, abs=0.001)
    return float(np.hypot(*(stage.objects[0, :2] - 9))), float(stage.objects[0, 3] - yaw)


@pytest.mark.parametrize("ramp", [False, True])
@pytest.mark.parametrize("substeps", [15, 7])
def test_a_push_beside_the_middle_moves_a_thing_as_far_on_one_foot_and_turns_it_less(ramp: bool, substeps: int) -> None:
    """What the foot does not do as corners do: docs/decisions/0017."""
    ends = []
    for corners in (True, False):
        stage = Stage(substeps=substeps, corners=corners, scale=3.0)
        things = [None, None, (2.4, 9.05)] if ramp else [(2.4, 9.05)]
        stage.build(agents=[(2, 9), None, (15, 15)], objects=things).step(EAST, times=8)
        ends.append(stage.objects[2 if ramp else 0, [0, 3]])
    (far, turned), (far_on_foot, turned_on_foot) = ends
    assert far > 4.0 and far_on_foot == pytest.approx(far, abs=0.5)
    assert abs(turned_on_foot) <= abs(turned) + 0.05 and turned_on_foot == pytest.approx(turned, abs=0.6)


def test_long_boxes_are_harder_to_turn_than_cubes() -> None:
    sizes = [(1.65, 0.15, 0.5), (0.5, 0.5, 0.5), *[(0.5, 0.5, 0.5)] * 9]
    stage = Stage(preset="full").build(agents=[(1, 1), None, None, (5, 5)], objects=[(3, 3), (3, 1)], sizes=sizes)
    batch = stage.env._worlds._batch
    inertia = batch.expanded("body_inertia")[0, stage.env._worlds.model.objects[:2], 2]
    assert inertia == pytest.approx([(1.65**2 + 0.15**2) / 12, 0.5 / 12])
    assert batch.expanded("dof_M0") is None or np.isfinite(batch.expanded("dof_M0")).all()
