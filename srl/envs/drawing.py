"""How MuJoCo draws where there is no display."""

from __future__ import annotations

import ctypes.util
import os
import sys


def choose_gl() -> None:
    """Set MUJOCO_GL unless the user did; must come before the first import of mujoco."""
    if sys.platform != "linux" or os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"):
        return
    for name, library in (("egl", "EGL"), ("osmesa", "OSMesa")):
        if ctypes.util.find_library(library):
            os.environ.setdefault("MUJOCO_GL", name)
            return
