"""The compiled model against the published engine constants: frictions, dampings, masses, motors."""

import numpy as np
import pytest
from hide_stage import Stage

PRESETS = pytest.mark.parametrize("preset", ["quadrant", "full", "mini_2v2", "original"])
FRICTION = {"floor": 0.2, "box": 0.2, "ramp": 0.01, "agent": 0.01}
DAMPING = {"box": (0.01, 0.01, 0.01, 0.01), "ramp": (0.1, 0.1, 0.1, 0.1), "agent": (10, 10, 1, 10)}
"""Of x, y, z and yaw."""


@PRESETS
def test_floor_boxes_ramps_and_agents_have_the_published_frictions(preset: str) -> None:
    mj = Stage(preset=preset).env._worlds.model.mj
    geoms = [mj.geom(index) for index in range(mj.ngeom)]
    found = {geom.name: float(geom.friction[0]) for geom in geoms if not geom.name.startswith("wall")}
    feet = {name for name in found if name.endswith("_foot")}
    assert bool(feet) is (preset == "mini_2v2")
    for name, friction in found.items():
        kind = name.split("_")[0].rstrip("0123456789")
        assert friction == (0.2 if name in feet else FRICTION[kind]), name
    # so that the larger friction of two counts, and no contact resists a turn
    assert not mj.geom_priority.any() and (mj.geom_condim == 3).all()


@pytest.mark.parametrize(
    ("preset", "friction"), [("quadrant", 0.01), ("mini", 0.01), ("full", 1.0), ("harder_2", 1.0), ("original", 1.0)]
)
def test_walls_of_the_quadrant_are_smooth_and_those_of_random_rooms_are_not(preset: str, friction: float) -> None:
    model = Stage(preset=preset).env._worlds.model
    assert len(model.walls) and (model.mj.geom_friction[model.walls, 0] == friction).all()


@PRESETS
def test_things_slide_along_the_worlds_axes_and_turn_about_z_with_the_published_dampings(preset: str) -> None:
    model = Stage(preset=preset).env._worlds.model
    mj = model.mj
    for body in (*model.agents, *model.objects):
        name = mj.body(body).name
        joints = [mj.joint(f"{name}_{axis}") for axis in "xyzw"]
        assert mj.body_jntadr[body] == joints[0].id and mj.body_jntnum[body] == 4
        assert [joint.type[0] for joint in joints] == [2, 2, 2, 3], "three slides, then a hinge"
        assert np.array_equal([joint.axis for joint in joints], [*np.eye(3), (0, 0, 1)])
        assert tuple(mj.dof_damping[joint.dofadr[0]] for joint in joints) == DAMPING[name.rstrip("0123456789")], name


@PRESETS
def test_everything_weighs_one_kilogram_and_falls_at_fifty(preset: str) -> None:
    model = Stage(preset=preset).env._worlds.model
    assert model.mj.body_mass[[*model.agents, *model.objects]] == pytest.approx(1.0)
    assert model.mj.opt.gravity.tolist() == [0, 0, -50]


@pytest.mark.parametrize(("physics", "substeps"), [("exact", 15), ("fast", 7)])
def test_an_environment_step_takes_seventy_five_milliseconds(physics: str, substeps: int) -> None:
    stage = Stage(physics=physics).build(agents=[(1, 1), None, (5, 5)]).step(times=2)
    worlds = stage.env._worlds
    assert worlds.model.mj.opt.timestep == pytest.approx(0.075 / substeps)
    assert worlds._batch.time == pytest.approx(0.15)


def test_agents_push_with_ninety_newtons_along_x_and_y_and_turn_with_as_much() -> None:
    mj = Stage().env._worlds.model.mj
    assert [mj.joint(joint).name for joint in mj.actuator_trnid[:3, 0]] == ["agent0_x", "agent0_y", "agent0_w"]
    assert np.unique(mj.actuator_gear, axis=0).tolist() == [[100, 0, 0, 0, 0, 0]]
    assert mj.actuator_ctrllimited.all() and np.unique(mj.actuator_ctrlrange, axis=0).tolist() == [[-0.9, 0.9]]
