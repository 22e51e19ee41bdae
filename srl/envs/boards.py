"""MinAtar and MiniGrid as small images: every kind of thing has a plane of its own, since its number is only a label."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from srl.core.tree import Array

_KINDS, _COLOURS, _STATES = 11, 6, 4
"""Of MiniGrid's cells: what stands there, its colour, and whether a door is open, closed or locked (or where an agent looks)."""
_LIT = 255
_SCALE = 32
"""Pixels of a cell in a picture."""
_PALETTE = np.array(
    [
        (230, 80, 70), (90, 160, 240), (250, 200, 60), (120, 200, 110), (180, 120, 220),
        (240, 150, 60), (100, 210, 210), (230, 140, 190), (160, 160, 160), (250, 250, 250),
    ],
    np.uint8,
)  # fmt: skip


def as_planes(env: gymnasium.Env[Any, Any], name: str) -> gymnasium.Env[Any, Any]:
    """The env, with planes if it is a game of MinAtar or MiniGrid."""
    if name.startswith("MinAtar/"):
        return MinAtarPlanes(env)
    return MiniGridPlanes(env) if name.startswith("MiniGrid-") else env


class MinAtarPlanes(gymnasium.ObservationWrapper[Any, Any, Any]):
    """The planes of booleans as bytes, channels first."""

    about = "its planes as a small image"

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        super().__init__(env)
        height, width, planes = env.observation_space.shape  # type: ignore[misc]
        self.observation_space = spaces.Box(0, _LIT, (planes, height, width), np.uint8)
        self._planes: Array = np.zeros((planes, height, width), np.uint8)

    def observation(self, observation: Any) -> Array:
        self._planes = np.multiply(observation.transpose(2, 0, 1), _LIT, dtype=np.uint8)
        return self._planes

    def render(self) -> Any:
        """Each plane in a colour of its own; MinAtar's pictures need seaborn."""
        picture = np.zeros((*self._planes.shape[1:], 3), np.uint8)
        for plane, colour in zip(self._planes, _PALETTE, strict=False):
            picture[plane > 0] = colour
        return picture.repeat(_SCALE, 0).repeat(_SCALE, 1)


class MiniGridPlanes(gymnasium.ObservationWrapper[Any, Any, Any]):
    """What the agent sees as planes `[height, width, 21]`, and where it looks."""

    about = "the view as 21 planes (kinds, colours, states), and the direction; the text of the mission is left out"

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        super().__init__(env)
        given: Any = env.observation_space
        image = spaces.Box(0, _LIT, (*given["image"].shape[:2], _KINDS + _COLOURS + _STATES), np.uint8)
        self.observation_space = spaces.Dict({"image": image, "direction": given["direction"]})
        self._tables = [np.eye(size, dtype=np.uint8) * np.uint8(_LIT) for size in (_KINDS, _COLOURS, _STATES)]

    def observation(self, observation: Any) -> dict[str, Any]:
        cells = observation["image"]
        planes = np.concatenate([table[cells[..., i]] for i, table in enumerate(self._tables)], -1)
        return {"image": planes, "direction": observation["direction"]}
