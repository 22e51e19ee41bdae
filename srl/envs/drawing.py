"""How MuJoCo draws where there is no display."""

from __future__ import annotations

import ctypes.util
import os
import sys

from srl.core.errors import UserError


def choose_gl() -> None:
    """Set MUJOCO_GL unless the user did; must come before the first import of mujoco."""
    if "MUJOCO_GL" in os.environ or _has_display():
        return
    for name, library in (("egl", "EGL"), ("osmesa", "OSMesa")):
        if ctypes.util.find_library(library):
            os.environ["MUJOCO_GL"] = name
            return


def require_gl() -> None:
    """`choose_gl`, or the reason why MuJoCo cannot draw here: better now than at the first picture."""
    late = "mujoco" in sys.modules and "MUJOCO_GL" not in os.environ
    choose_gl()
    if _has_display() or ("MUJOCO_GL" in os.environ and not late):
        return
    cause = "mujoco was imported before" if late else "neither EGL nor OSMesa is installed"
    raise UserError(
        "MuJoCo cannot draw without a display",
        ("cause", cause),
        ("try", "export MUJOCO_GL=egl" if late else "apt install libegl1 or libosmesa6"),
    )


def _has_display() -> bool:
    return sys.platform != "linux" or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
