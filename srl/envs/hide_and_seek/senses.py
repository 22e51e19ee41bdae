"""What agents sense: lidar, and sight, which is a cone in the plane and a free line. One ray call for all worlds."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from srl.core.tree import Array
from srl.envs.hide_and_seek.config import Config
from srl.envs.hide_and_seek.scene import Poses, Scene

Cast = Callable[[Array, Array, Array], tuple[Array, Array]]
"""(origins, directions, excluded bodies) -> (distances, geoms), all [N, rays, ...]."""

RAMP_AIM = (-1 / 12, -1 / 12)
"""A ramp is looked for at its centre of mass: along its own y and z, from its middle."""


def cone(
    eyes: Array,  # [N, A, 4]
    targets: Array,  # [N, T, 3+]
    half_angle: float,
) -> Array:  # [N, A, T]
    """Whether the target's centre lies in the field of view; at yaw 0 an agent looks along -y."""
    x = targets[:, None, :, 0] - eyes[:, :, None, 0]
    y = targets[:, None, :, 1] - eyes[:, :, None, 1]
    yaw = eyes[:, :, 3, None]
    within: Array = x * np.sin(yaw) - y * np.cos(yaw) >= np.cos(half_angle) * np.sqrt(x * x + y * y)
    return within


class Senses:
    """Keeps the ray arrays; `update` fills the scene's lidar and sight."""

    def __init__(self, config: Config, scene: Scene, poses: Poses, bodies: tuple[Array, Array], body_of_geom: Array) -> None:
        """`bodies`: of agents and objects; `body_of_geom[-1]` is that of a miss."""
        self._config, self._scene, self._poses = config, scene, poses
        self._body_of_geom = body_of_geom
        count, agents, objects = len(scene.tick), config.agents, config.boxes + config.ramps
        lidar = config.senses.lidar
        self._rays = agents * lidar
        first, second = np.triu_indices(agents, 1)
        every, things = np.arange(agents), np.arange(objects)
        # what each ray starts from, and what those after the lidar aim at, as columns of `_targets`
        self._source = np.concatenate([np.repeat(every, lidar), first, np.repeat(every, objects)])
        self._goal = np.concatenate([second, np.tile(agents + things, agents)])
        self._pairs = len(first)
        self._pair = np.zeros((agents, agents), np.int64)
        self._pair[first, second] = self._pair[second, first] = np.arange(len(first))
        total = len(self._source)
        self._targets = np.zeros((count, agents + objects, 3))
        self._origins, self._directions = np.zeros((2, count, total, 3))
        self._aims = np.zeros((count, total - self._rays, 3))
        angles = 2 * np.pi * np.arange(lidar) / max(lidar, 1)
        circle = np.stack([np.cos(angles), np.sin(angles), np.zeros_like(angles)], 1)
        self._directions[:, : self._rays] = np.tile(circle, (agents, 1))
        body = np.concatenate(bodies)
        self._exclude = np.ascontiguousarray(np.broadcast_to(body[self._source], (count, total)), np.int32)
        self._wanted = body[self._goal]
        self._possible = np.zeros((count, agents, agents + objects), bool)

    def start(self) -> None:
        """After new episodes: who could see what, if nothing were in between."""
        scene, agents = self._scene, self._config.agents
        there = np.concatenate([scene.agent_there, scene.object_there], 1)
        np.logical_and(scene.agent_there[:, :, None], there[:, None], out=self._possible)
        self._possible[:, np.arange(agents), np.arange(agents)] = False

    def update(self, cast: Cast) -> None:
        config, scene = self._config, self._scene
        self._aim()
        distance, geom = cast(self._origins, self._directions, self._exclude)
        rays, pairs, agents = self._rays, self._pairs, config.agents
        lidar = scene.lidar.reshape(len(distance), rays)
        lidar[...] = distance[:, :rays]
        lidar[lidar < 0] = config.senses.lidar_far
        free = self._body_of_geom[geom[:, rays:]] == self._wanted
        inside = cone(self._poses.agents, self._targets, config.senses.cone)
        inside &= self._possible
        if pairs:
            # two agents are in each other's way equally: one ray serves both
            np.logical_and(free[:, self._pair], inside[:, :, :agents], out=scene.sees_agent)
            np.logical_or.reduce(scene.sees_agent[:, config.hiders :, : config.hiders], axis=(1, 2), out=scene.seen)
        np.logical_and(free[:, pairs:].reshape(scene.sees_object.shape), inside[:, :, agents:], out=scene.sees_object)

    def _aim(self) -> None:
        """Rays from where the agents are now to where the targets are now."""
        config, poses, targets = self._config, self._poses, self._targets
        agents = config.agents
        targets[:, :agents] = poses.agents[:, :, :3]
        targets[:, agents:] = poses.objects[:, :, :3]
        if config.ramps:
            ramps, yaw = targets[:, agents + config.boxes :], poses.objects[:, config.boxes :, 3]
            ramps[:, :, 0] -= RAMP_AIM[0] * np.sin(yaw)
            ramps[:, :, 1] += RAMP_AIM[0] * np.cos(yaw)
            ramps[:, :, 2] += RAMP_AIM[1]
        targets.take(self._source, axis=1, out=self._origins, mode="clip")
        targets.take(self._goal, axis=1, out=self._aims, mode="clip")
        np.subtract(self._aims, self._origins[:, self._rays :], out=self._directions[:, self._rays :])
