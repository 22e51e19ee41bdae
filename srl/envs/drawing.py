"""MuJoCo rendering without a display."""

from __future__ import annotations

import ctypes.util
import importlib
import os
import sys
import warnings

from srl.core.errors import Fact, UserError


def choose_gl() -> None:
    """Without a display: set MUJOCO_GL to EGL, else OSMesa, unless the user has set it."""
    if "MUJOCO_GL" in os.environ or has_display():
        return
    for name, library in (("egl", "EGL"), ("osmesa", "OSMesa")):
        if ctypes.util.find_library(library):
            os.environ["MUJOCO_GL"] = name
            _reload_gl()
            return


def _reload_gl() -> None:
    """MuJoCo reads MUJOCO_GL when it is imported; if it was imported already, make it read the variable again."""
    if "mujoco" in sys.modules:
        gl = importlib.reload(importlib.import_module("mujoco.rendering.classic.gl_context"))
        sys.modules["mujoco"].GLContext = gl.GLContext  # type: ignore[attr-defined]


def require_gl(*instead: Fact) -> None:
    """Choose a renderer and render one image, so that a run fails now rather than at its first video.

    `instead`: what else the user can do.
    """
    choose_gl()
    chosen = os.environ.get("MUJOCO_GL")
    cause = "neither EGL nor OSMesa is installed" if chosen is None and not has_display() else _failure()
    if cause:
        raise UserError(
            "MuJoCo cannot render without a display",
            ("cause", cause),
            ("found", f"MUJOCO_GL={chosen}" if chosen else "no MUJOCO_GL"),
            ("try", "install Debian's libegl1 (MUJOCO_GL=egl) or libosmesa6 (MUJOCO_GL=osmesa)"),
            *instead,
        )


def _failure() -> str:
    """Why an 8x8 image cannot be rendered; empty if it can."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # GLFW warns, and fails later
            import mujoco

            with mujoco.Renderer(mujoco.MjModel.from_xml_string("<mujoco/>"), 8, 8) as renderer:
                renderer.render()
    except Exception as problem:  # of many kinds: each GL library has its own
        return f"{type(problem).__name__}: {str(problem).strip()}".splitlines()[0]
    return ""


def has_display() -> bool:
    """Windows can be opened."""
    return sys.platform != "linux" or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
