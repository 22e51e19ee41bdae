"""How MuJoCo draws where there is no display."""

from __future__ import annotations

import ctypes.util
import os
import sys
import warnings
from typing import Any

from srl.core.errors import Line, UserError


def film_rate(env: Any) -> float:
    """Pictures a second of a gymnasium or PettingZoo env, as it says itself."""
    rate = (getattr(env, "metadata", None) or {}).get("render_fps")
    return float(rate) if isinstance(rate, int | float) and rate > 0 else 30.0


def choose_gl() -> None:
    """Set MUJOCO_GL unless the user did; must come before the first import of mujoco."""
    if "MUJOCO_GL" in os.environ or _has_display():
        return
    for name, library in (("egl", "EGL"), ("osmesa", "OSMesa")):
        if ctypes.util.find_library(library):
            os.environ["MUJOCO_GL"] = name
            return


def require_gl(*instead: Line) -> None:
    """`choose_gl`, and one picture, or the reason why MuJoCo cannot draw here: better now than in the middle of a run.

    `instead`: what else the user can do.
    """
    late = "mujoco" in sys.modules and "MUJOCO_GL" not in os.environ
    choose_gl()
    chosen = os.environ.get("MUJOCO_GL")
    if late and not _has_display():
        cause = "mujoco was imported before MUJOCO_GL was set"
    elif chosen is None and not _has_display():
        cause = "neither EGL nor OSMesa is installed"
    else:
        cause = _failure()
    if cause:
        raise UserError(
            "MuJoCo cannot draw without a display",
            ("cause", cause),
            ("found", f"MUJOCO_GL={chosen}" if chosen and not late else "no MUJOCO_GL"),
            ("try", "MUJOCO_GL=osmesa with Debian's libosmesa6, or MUJOCO_GL=egl with libegl1, set before the start"),
            *instead,
        )


def _failure() -> str:
    """Why the smallest picture of all cannot be drawn; empty if it can."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # GLFW warns, and fails later
            import mujoco

            with mujoco.Renderer(mujoco.MjModel.from_xml_string("<mujoco/>"), 8, 8) as renderer:
                renderer.render()
    except Exception as problem:  # of many kinds: each GL library has its own
        return f"{type(problem).__name__}: {str(problem).strip()}".splitlines()[0]
    return ""


def _has_display() -> bool:
    return sys.platform != "linux" or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
