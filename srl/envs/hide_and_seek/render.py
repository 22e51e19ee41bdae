"""Pictures of one world: from above with PIL, which needs no GL, or with MuJoCo's renderer.

For the latter set MUJOCO_GL to `egl` or `osmesa` before anything imports mujoco on a machine without a display.
"""

from __future__ import annotations

import copy
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import mujoco
import numpy as np
from PIL import Image, ImageDraw

from srl.core.tree import Array
from srl.envs.hide_and_seek.config import Config
from srl.envs.hide_and_seek.model import HIDER, SEEKER
from srl.envs.hide_and_seek.scene import Poses, Scene

if TYPE_CHECKING:
    from srl.envs.hide_and_seek.worlds import Worlds

_SIZE = 480
_FINE = 2
"""Drawn this many times larger, then shrunk: smooth edges."""
_MARGIN = 0.7
_OUTER_ALPHA = 0.1
_FLOOR, _PAPER, _INK = (222, 226, 230), (248, 249, 250), (33, 37, 41)
_INNER, _OUTER = (64, 130, 84), (110, 118, 125)
_BOX, _LOW, _HIGH = (242, 196, 80), (250, 205, 160), (214, 110, 44)
_COLOURS = tuple(tuple(round(part * 225) for part in colour) for colour in (HIDER, SEEKER))
_CORNERS = np.array([(-1, -1), (1, -1), (1, 1), (-1, 1)])
_VIEW = 1.6
"""Length of a cone of sight, in metres; walls cut it off."""

Colour = tuple[int, ...]


class TopPainter:
    """View from above: vision cones, held and locked objects, lines of sight, and the score so far."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._scale = _SIZE * _FINE / (config.arena.side + 2 * _MARGIN)
        self._seen: dict[int, list[bool]] = {}
        """World -> whether a hider was seen, for each step of the main phase so far."""

    def paint(self, world: int, scene: Scene, poses: Poses) -> Array:
        image = Image.new("RGB", (_SIZE * _FINE, _SIZE * _FINE), _PAPER)
        draw = ImageDraw.Draw(image, "RGBA")
        side = self._config.arena.side
        draw.rectangle([self._dot((0, side)), self._dot((side, 0))], fill=_FLOOR)
        self._draw_marks(draw, world, scene)
        for agent in np.flatnonzero(scene.agent_there[world]):
            self._draw_view(draw, poses.agents[world, agent], scene.walls[world], self._colour(int(agent)))
        self._draw_walls(draw, scene.walls[world])
        self._draw_objects(draw, world, scene, poses)
        self._draw_lines(draw, world, scene, poses)
        for agent in np.flatnonzero(scene.agent_there[world]):
            self._draw_agent(draw, poses.agents[world, agent], self._colour(int(agent)))
        self._draw_title(draw, world, scene)
        self._draw_legend(draw)
        return np.asarray(image.resize((_SIZE, _SIZE), Image.Resampling.LANCZOS))

    def close(self) -> None:
        """Nothing is held."""

    def _dot(self, point: Any) -> tuple[float, float]:
        """Meters to pixels; points beyond the margin are clamped to it."""
        low, high = -_MARGIN, self._config.arena.side + _MARGIN
        x, y = (min(max(float(value), low), high) for value in point[:2])
        return (x + _MARGIN) * self._scale, (high - y) * self._scale

    def _colour(self, agent: int) -> Colour:
        return _COLOURS[int(agent >= self._config.hiders)]

    def _draw_marks(self, draw: ImageDraw.ImageDraw, world: int, scene: Scene) -> None:
        for x, y in scene.sites[world][~np.isnan(scene.sites[world, :, 0])]:
            draw.rectangle([self._dot((x - 0.25, y + 0.25)), self._dot((x + 0.25, y - 0.25))], outline=_INK, width=3)
        x, y, width = scene.cylinder[world]
        if not np.isnan(x):
            ends = [self._dot((x - width / 2, y + width / 2)), self._dot((x + width / 2, y - width / 2))]
            draw.ellipse(ends, fill=(90, 90, 90))

    def _draw_view(self, draw: ImageDraw.ImageDraw, pose: Array, walls: Array, colour: Colour) -> None:
        half = self._config.senses.cone
        angles = pose[3] + np.linspace(-half, half, 96)
        ways = np.stack([np.sin(angles), -np.cos(angles)], 1)
        reach = free_length(pose[:2], ways, walls[~np.isnan(walls[:, 0])], _VIEW)
        rim = [self._dot(point) for point in pose[:2] + ways * reach[:, None]]
        draw.polygon([self._dot(pose), *rim], fill=(*colour, 38))

    def _draw_walls(self, draw: ImageDraw.ImageDraw, walls: Array) -> None:
        for x, y, wide, deep, high in walls[~np.isnan(walls[:, 0])]:
            ends = [self._dot((x - wide / 2, y + deep / 2)), self._dot((x + wide / 2, y - deep / 2))]
            draw.rectangle(ends, fill=_OUTER if high > 1 else _INNER)

    def _draw_objects(self, draw: ImageDraw.ImageDraw, world: int, scene: Scene, poses: Poses) -> None:
        for thing in np.flatnonzero(scene.object_there[world]):
            corners = _turned(poses.objects[world, thing], _CORNERS * scene.half[world, thing, :2])
            dots = [self._dot(corner) for corner in corners]
            if thing < self._config.boxes:
                draw.polygon(dots, fill=_BOX)
            else:
                self._draw_slope(draw, poses.objects[world, thing])
            locked = bool(scene.locked[world, thing])
            rim = self._colour(int(scene.locker[world, thing])) if locked else _INK
            draw.polygon(dots, outline=rim, width=9 if locked else 2)
            if locked:
                draw.line([dots[0], dots[2]], fill=rim, width=4)
                draw.line([dots[1], dots[3]], fill=rim, width=4)

    def _draw_slope(self, draw: ImageDraw.ImageDraw, pose: Array, strips: int = 6) -> None:
        """A ramp is darker where it is higher."""
        edges = np.linspace(0.25, -0.25, strips + 1)
        for index, (low, high) in enumerate(pairwise(edges)):
            share = index / (strips - 1)
            colour = tuple(round(a + (b - a) * share) for a, b in zip(_LOW, _HIGH, strict=True))
            strip = _turned(pose, np.array([(-0.25, low), (0.25, low), (0.25, high), (-0.25, high)]))
            draw.polygon([self._dot(corner) for corner in strip], fill=colour)

    def _draw_lines(self, draw: ImageDraw.ImageDraw, world: int, scene: Scene, poses: Poses) -> None:
        hiders, agents = self._config.hiders, poses.agents[world]
        for seeker, hider in np.argwhere(scene.sees_agent[world, hiders:, :hiders]):
            ends = [self._dot(agents[hiders + seeker]), self._dot(agents[hider])]
            draw.line(ends, fill=(*_COLOURS[1], 190), width=4)
        for agent, thing in enumerate(scene.grabbed[world]):
            if thing >= 0:
                draw.line([self._dot(agents[agent]), self._dot(poses.objects[world, thing])], fill=_INK, width=5)

    def _draw_agent(self, draw: ImageDraw.ImageDraw, pose: Array, colour: Colour) -> None:
        # an agent on top of something is drawn larger
        radius = 0.15 * (1.0 + 0.6 * min(max(pose[2] - 0.15, 0.0), 1.0))
        (x, y), size = self._dot(pose), radius * self._scale
        draw.ellipse([x - size, y - size, x + size, y + size], fill=colour, outline=_INK, width=3)
        for side in (-0.5, 0.5):
            eye_x, eye_y = self._dot((pose[0] + 0.12 * np.sin(pose[3] + side), pose[1] - 0.12 * np.cos(pose[3] + side)))
            draw.ellipse([eye_x - 5, eye_y - 5, eye_x + 5, eye_y + 5], fill=_INK)

    def _draw_title(self, draw: ImageDraw.ImageDraw, world: int, scene: Scene) -> None:
        timing, tick = self._config.timing, int(scene.tick[world])
        hiders = self._config.hiders
        if tick <= timing.prep_steps and timing.prep_steps:
            self._seen[world] = []
            text = f"preparation {tick}/{timing.prep_steps}"
        elif self._config.seekers:
            steps = self._seen.setdefault(world, [])
            if tick <= timing.prep_steps + 1:
                steps.clear()
            steps.append(bool(scene.sees_agent[world, hiders:, :hiders].any()))
            text = f"{'seen' if steps[-1] else 'hidden'} {tick}/{timing.horizon}    seen so far: {np.mean(steps):.0%}"
        else:
            text = f"{self._config.rules.task} {tick}/{timing.horizon}"
        unit = _MARGIN * self._scale
        draw.text((unit, 0.3 * unit), text, fill=_INK, font_size=0.45 * unit)

    def _draw_legend(self, draw: ImageDraw.ImageDraw) -> None:
        """The legend below the arena; a lock has the color of its team."""
        config, unit = self._config, _MARGIN * self._scale
        height = 1 + config.arena.side / _MARGIN + 0.3
        left, middle = unit, (height + 0.22) * unit
        marks = [("hider", _COLOURS[0], "dot"), ("seeker", _COLOURS[1], "dot"), ("sees", _COLOURS[1], "line")]
        marks = [mark for mark in marks if config.seekers or mark[0] == "hider"]
        marks += [("holds", _INK, "line"), ("locked", _COLOURS[0], "cross")]
        for text, colour, mark in marks:
            size = 0.15 * unit
            ends = [left - size, middle - size, left + size, middle + size]
            if mark == "dot":
                draw.ellipse(ends, fill=colour, outline=_INK, width=2)
            elif mark == "line":
                draw.line([left - size, middle, left + size, middle], fill=colour, width=5)
            else:
                draw.rectangle(ends, fill=_BOX, outline=colour, width=4)
                draw.line(ends, fill=colour, width=4)
                draw.line([ends[0], ends[3], ends[2], ends[1]], fill=colour, width=4)
            draw.text((left + 1.7 * size, height * unit), text, fill=_INK, font_size=0.36 * unit)
            left += 2.6 * size + draw.textlength(text, font_size=0.36 * unit) + 0.35 * unit


class GLPainter:
    """MuJoCo's renderer, without shadows: they cost five times the rest on a machine without a GPU."""

    def __init__(self, worlds: Worlds, height: int = _SIZE, width: int = 640) -> None:
        self._worlds = worlds
        self._model = copy.copy(worlds.model.mj)
        self._data = mujoco.MjData(self._model)
        self._plain = self._model.geom_rgba.copy()
        self._renderer = mujoco.Renderer(self._model, height, width)

    def paint(self, world: int, scene: Scene, poses: Poses) -> Array:
        self._worlds.copy_to(world, self._model, self._data)
        self._colour(world, scene)
        mujoco.mj_forward(self._model, self._data)
        renderer = self._renderer
        renderer.update_scene(self._data, "main")
        for flag in (mujoco.mjtRndFlag.mjRND_SHADOW, mujoco.mjtRndFlag.mjRND_REFLECTION):
            renderer.scene.flags[flag] = 0
        picture: Array = renderer.render()
        return picture

    def close(self) -> None:
        self._renderer.close()

    def _colour(self, world: int, scene: Scene) -> None:
        """Outer walls almost transparent; locked objects in the colour of the locker's team."""
        model, colours = self._worlds.model, self._model.geom_rgba
        colours[:] = self._plain
        walls = model.walls
        colours[walls, 3] = np.where(self._model.geom_size[walls, 2] > 1, _OUTER_ALPHA, 1.0)
        for thing in np.flatnonzero(scene.locked[world]):
            tint = np.array(HIDER if scene.locker[world, thing] < self._worlds.hiders else SEEKER)
            geom = model.object_geoms[thing]
            colours[geom, :3] = 0.5 * self._plain[geom, :3] + 0.5 * tint


def free_length(start: Array, ways: Array, walls: Array, longest: float) -> Array:
    """[n] how far one can go from `start` along each of `ways` [n, 2] before a wall, at most `longest`."""
    half = walls[:, 2:4] / 2
    with np.errstate(divide="ignore", invalid="ignore"):
        one = (walls[:, :2] - half - start)[None] / ways[:, None]
        other = (walls[:, :2] + half - start)[None] / ways[:, None]
    enter = np.nanmax(np.minimum(one, other), axis=2, initial=-np.inf)
    leave = np.nanmin(np.maximum(one, other), axis=2, initial=np.inf)
    hit = np.where((enter <= leave) & (enter > 0), enter, longest)
    free: Array = np.minimum(hit.min(axis=1, initial=longest), longest)
    return free


def _turned(pose: Array, offsets: Array) -> Array:
    """Corners [n, 2] of a thing at a pose."""
    cos, sin = np.cos(pose[3]), np.sin(pose[3])
    x, y = offsets.T
    corners: Array = pose[:2] + np.stack([cos * x - sin * y, sin * x + cos * y], 1)
    return corners
