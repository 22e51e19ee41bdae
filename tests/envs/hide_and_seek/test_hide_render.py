"""Pictures."""

import os
import subprocess
import sys

import numpy as np
import pytest
from hide_stage import Stage

from srl.envs.hide_and_seek.render import free_length

HOW_TO_DRAW = ("MUJOCO_GL", "PYOPENGL_PLATFORM", "DISPLAY", "WAYLAND_DISPLAY")
"""Another test in this process may have chosen."""


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
    done = in_a_process(code, MUJOCO_GL=backend)
    if "MuJoCo cannot render" in done.stderr:
        pytest.skip(f"no {backend} library here")
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere there is always a display")
@pytest.mark.parametrize(
    ("before", "chosen", "found"),
    [
        ("import ctypes.util; ctypes.util.find_library = lambda name: None", {}, "no MUJOCO_GL"),
        ("", {"MUJOCO_GL": "glfw"}, "MUJOCO_GL=glfw"),
        ("", {"MUJOCO_GL": "nonsense"}, "MUJOCO_GL=nonsense"),
    ],
)
def test_without_gl_the_simulators_own_picture_is_refused_before_anything_starts(
    before: str, chosen: dict[str, str], found: str
) -> None:
    code = f"""
{before}
from srl.core.errors import UserError
from srl.core.seeds import Seeds
from srl.envs.hide_and_seek.env import HideAndSeekVec
try:
    HideAndSeekVec(1, Seeds(0), picture="gl")
except UserError as error:
    print(error)
"""
    done = in_a_process(code, **chosen)
    for words in (f"found: {found}", "MUJOCO_GL=osmesa", "libosmesa6", "libegl1", "env.picture=top"):
        assert words in done.stdout, done.stdout + done.stderr


def in_a_process(code: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """One without a display, to which only these variables say how to draw."""
    kept = {name: value for name, value in os.environ.items() if name not in HOW_TO_DRAW}
    environment = {**kept, **variables, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    return subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)


def test_cones_of_sight_end_at_walls() -> None:
    wall = np.array([[1.0, 0.0, 0.1, 2.0, 0.5]])  # x, y, width, depth, height
    ways = np.array([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]])
    np.testing.assert_allclose(free_length(np.zeros(2), ways, wall, 1.6), [0.95, 1.6, 1.6])
