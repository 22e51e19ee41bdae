"""Pictures."""

import os
import subprocess
import sys

import numpy as np
import pytest
from hide_stage import Stage


def test_the_picture_from_above_shows_teams_and_walls() -> None:
    stage = Stage().build(agents=[(1.5, 1.5), None, (4.5, 4.5), None], walls=[(3.0, 3.0, 0.1, 4.0, 0.5)])
    picture = stage.env.render(0)
    assert picture.dtype == np.uint8 and picture.shape == (480, 480, 3)

    def colour(x: float, y: float) -> list[int]:
        scale = 480 / 7.4
        return picture[int((6.7 - y) * scale), int((x + 0.7) * scale)].tolist()

    hider, seeker, wall = colour(1.5, 1.5), colour(4.5, 4.5), colour(3.0, 3.0)
    assert hider[1] > 150 > hider[0] and seeker[0] > 200 and seeker[1] < 50
    assert wall[1] > max(wall[0], wall[2])


def test_the_picture_changes_when_an_object_is_locked() -> None:
    stage = Stage().build(agents=[(2.0, 3.0), None, (5.5, 5.5)], objects=[(2.45, 3.0)]).turn(0, (2.45, 3.0)).look()
    before = stage.env.render(0)
    stage.scene.locked[0, 0] = True
    assert not np.array_equal(before, stage.env.render(0))


@pytest.mark.parametrize("backend", ["egl", "osmesa"])
def test_the_simulators_own_picture_needs_no_display(backend: str) -> None:
    code = """
import numpy as np
from srl.api.env import new_block
from srl.core.seeds import Seeds
from srl.envs.hide_and_seek.env import HideAndSeekVec
env = HideAndSeekVec(2, Seeds(0), preset="quadrant", picture="gl")
env.reset(new_block(env.spec, 2))
first, second = env.render(0), env.render(1)
assert first.shape == (480, 640, 3) and first.dtype == np.uint8
assert first.std() > 10 and not np.array_equal(first, second)
env.close()
"""
    environment = {**os.environ, "MUJOCO_GL": backend, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    environment.pop("PYOPENGL_PLATFORM", None)  # another test in this process may have chosen
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    if any(
        word in done.stderr
        for word in ("Unable to load", "OpenGL platform library", "has no attribute 'glGetError'", "EGL device")
    ):
        pytest.skip(f"no {backend} library here")
    assert done.returncode == 0, done.stderr
