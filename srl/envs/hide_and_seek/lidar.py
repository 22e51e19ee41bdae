"""Lidar for all worlds at once: level rays against upright blocks and cylinders. Knows no MuJoCo."""

from __future__ import annotations

import numpy as np

from srl.core.tree import Array
from srl.envs.hide_and_seek.config import Config
from srl.envs.hide_and_seek.layout import AGENT, ARM_RADIUS, ARMS, CUBE
from srl.envs.hide_and_seek.scene import Poses, Scene

_MISS = -1.0
"""A half width that no ray can hit."""
_PARALLEL = np.float32(1e-12)
_BEYOND = 1e6
"""Metres: longer is a miss."""
_FAR = np.float32(1e30)
"""Times by how much a ray misses; added to its length. A product is ten times faster than a choice."""


class Lidar:
    """`measure` fills the scene's lidar. Arrays are [things, rays, agents, worlds]: numpy is fast over the last axes.

    Every block is upright and every ray is level, so a ray hits the block's outline at the ray's height, or nothing. The outline
    of a ramp is as deep as the wedge at that height.
    """

    def __init__(self, config: Config, scene: Scene, poses: Poses) -> None:
        self._config, self._scene, self._poses = config, scene, poses
        count, agents, rays = len(scene.tick), config.agents, config.senses.lidar
        walls, objects = config.arena.wall_slots, config.boxes + config.ramps
        self._objects, self._ramps = slice(walls, None), slice(walls + config.boxes, None)
        angles = 2 * np.pi * np.arange(rays) / rays
        self._along = np.array([np.cos(angles), np.sin(angles)], np.float32)
        self._centre, self._half = np.zeros((2, 3, walls + objects, count), np.float32)
        self._turn = np.zeros((2, objects, count), np.float32)
        # one over the ray's direction along the block's own x and y; walls are never turned
        self._over = np.empty((2, walls + objects, rays, count), np.float32)
        self._over[:, :walls] = _reciprocal(self._along.copy())[:, None, :, None]
        # round things: all bodies, all left arms, all right arms if arms collide, and last the cylinder
        self._parts = [((0.0, 0.0, 0.0), AGENT[0] / 2)]
        if config.physics.arms:
            self._parts += [(arm, ARM_RADIUS) for arm in ARMS]
        self._own = np.arange(len(self._parts) * agents), np.tile(np.arange(agents), len(self._parts))
        rounds = len(self._own[0]) + (config.arena.cylinder is not None)
        self._round = np.full((rounds, count), _MISS, np.float32)
        self._round_at = np.zeros((3, rounds, count), np.float32)
        most = max(walls + objects, rounds)
        self._work = np.empty((5, walls + objects, rays, agents, count), np.float32)
        # two arrays have their larger numbers picked four times as fast as an array and a number
        self._zeros = np.zeros((most, rays, agents, count), np.float32)

    def start(self) -> None:
        """After resets: update positions of walls and sizes of objects."""
        scene, walls = self._scene, self._objects.start
        there = ~np.isnan(scene.walls[:, :, 0])
        whole = np.where(there[..., None], scene.walls, 0.0).transpose(2, 1, 0)
        self._centre[:2, :walls], self._centre[2, :walls] = whole[:2], whole[4] / 2
        self._half[:, :walls] = np.where(there.T, whole[2:] / 2, _MISS)
        self._half[:, walls:] = np.where(scene.object_there.T, scene.half.transpose(2, 1, 0), _MISS)
        agents = self._config.agents
        for index, (_, radius) in enumerate(self._parts):
            self._round[index * agents : (index + 1) * agents] = np.where(scene.agent_there.T, radius * radius, _MISS)
        if self._config.arena.cylinder:
            x, y, width = scene.cylinder.T
            self._round_at[:2, -1] = x, y
            self._round[-1] = np.square(width / 2)

    def measure(self) -> None:
        scene = self._scene
        eyes = np.ascontiguousarray(self._poses.agents[:, :, :3].transpose(2, 1, 0), np.float32)
        nearest = np.minimum(self._meet_blocks(eyes), self._meet_rounds(eyes))
        nearest[nearest > _BEYOND] = self._config.senses.lidar_far
        scene.lidar[...] = nearest.transpose(2, 1, 0)

    def _meet_blocks(self, eyes: Array) -> Array:
        """`[rays, agents, worlds]`: the nearest entry into a wall, a box or a ramp."""
        place, half = self._from_blocks(eyes)
        over = self._over[:, :, :, None]
        first, last, enter, leave, width = self._work
        for axis, (low, high) in enumerate(((first, last), (enter, leave))):
            np.multiply(place[axis][:, None], over[axis], out=high)
            np.multiply(half[axis][:, None], np.abs(over[axis]), out=width)
            np.subtract(high, width, out=low)
            high += width
        zeros = self._zeros[: len(first)]
        np.maximum(np.maximum(first, enter, out=first), zeros, out=first)
        np.minimum(last, leave, out=last)
        first += _penalty(np.subtract(first, last, out=last), zeros)
        nearest: Array = first.min(0)
        return nearest

    def _from_blocks(self, eyes: Array) -> tuple[Array, Array]:
        """`[2, blocks, agents, worlds]`: from each agent to the outline's middle, in the block's own axes, and half its size."""
        objects, centre, turn = self._objects, self._centre, self._turn
        poses = self._poses.objects.transpose(2, 1, 0)
        centre[:, objects] = poses[:3]
        turn[...] = self._poses.object_turns.transpose(2, 1, 0)
        cos, sin = turn[:, :, None]
        self._over[:, objects] = _reciprocal(_turned(self._along[:, :, None], cos, sin))
        away = centre[:, :, None] - eyes[:, None]
        place, height = away[:2], away[2]
        place[:, objects] = _turned(place[:, objects], cos, sin)
        half = np.repeat(self._half[:2, :, None], eyes.shape[1], 2)
        if self._ramps.start < len(height):
            self._slice_ramps(place[1, self._ramps], half[1, self._ramps], height[self._ramps])
        half[:, np.abs(height) > self._half[2, :, None]] = _MISS
        return place, half

    @staticmethod
    def _slice_ramps(place: Array, half: Array, height: Array) -> None:
        """A wedge rises towards its own -y: at a height above its middle it ends that much before its middle."""
        end = np.minimum(height, half)
        place += (end - half) / 2
        half += end
        half /= 2

    def _from_rounds(self, eyes: Array) -> tuple[Array, Array]:
        """`[2, rounds, agents, worlds]`: from each agent to the middle, and the square of the outline's radius."""
        at, agents = self._round_at, eyes.shape[1]
        at[:, :agents] = eyes
        if len(self._parts) > 1:
            cos, sin = self._poses.agent_turns.transpose(2, 1, 0)
            for index, ((x, y, z), _) in enumerate(self._parts):
                arms = at[:, index * agents : (index + 1) * agents]
                arms[0], arms[1], arms[2] = eyes[0] + cos * x - sin * y, eyes[1] + sin * x + cos * y, eyes[2] + z
        room = np.repeat(self._round[:, None], agents, 1)
        spheres = len(self._own[0])
        room[:spheres] -= np.square(at[2, :spheres, None] - eyes[2])
        room[self._own] = _MISS
        if self._config.arena.cylinder:
            room[-1, eyes[2] > CUBE[2]] = _MISS
        return at[:2, :, None] - eyes[:2, None], room

    def _meet_rounds(self, eyes: Array) -> Array:
        """`[rays, agents, worlds]`: the nearest entry into another agent or the cylinder."""
        (x, y), room = self._from_rounds(eyes)
        along = x[:, None] * self._along[0][:, None, None] + y[:, None] * self._along[1][:, None, None]
        room -= x * x + y * y
        room = along * along + room[:, None]
        zeros = self._zeros[: len(room)]
        entry = along - np.sqrt(np.maximum(room, zeros))
        entry += _penalty(np.negative(np.minimum(room, along, out=room), out=room), zeros)
        nearest: Array = entry.min(0)
        return nearest


def _turned(flat: Array, cos: Array, sin: Array) -> Array:
    """x and y in axes turned by that yaw."""
    x, y = flat
    return np.stack([cos * x + sin * y, cos * y - sin * x])


def _penalty(amount: Array, zeros: Array) -> Array:
    """Nothing for what is not positive; in place."""
    with np.errstate(over="ignore"):
        return np.multiply(np.maximum(amount, zeros, out=amount), _FAR, out=amount)


def _reciprocal(direction: Array) -> Array:
    direction[np.abs(direction) < _PARALLEL] = _PARALLEL
    return np.divide(1.0, direction, out=direction)
