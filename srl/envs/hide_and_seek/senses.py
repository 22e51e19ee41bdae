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
        self._rays = agents * config.senses.lidar
        self._from, self._to = np.triu_indices(agents, 1)
        total = self._rays + len(self._from) + agents * objects
        self._origins, self._directions = np.zeros((2, count, total, 3))
        angles = 2 * np.pi * np.arange(config.senses.lidar) / max(config.senses.lidar, 1)
        circle = np.stack([np.cos(angles), np.sin(angles), np.zeros_like(angles)], 1)
        self._directions[:, : self._rays] = np.tile(circle, (agents, 1))
        body, thing = bodies
        source = np.concatenate([np.repeat(body, config.senses.lidar), body[self._from], np.repeat(body, objects)])
        self._exclude = np.ascontiguousarray(np.broadcast_to(source, (count, total)), np.int32)
        self._wanted = np.concatenate([body[self._to], np.tile(thing, agents)])
        self._targets = np.zeros((count, agents + objects, 3))

    def update(self, cast: Cast) -> None:
        config, scene = self._config, self._scene
        self._aim()
        distance, geom = cast(self._origins, self._directions, self._exclude)
        rays, pairs, agents = self._rays, len(self._from), config.agents
        lidar = distance[:, :rays]
        np.copyto(scene.lidar, np.where(lidar < 0, config.senses.lidar_far, lidar).reshape(scene.lidar.shape))
        free = self._body_of_geom[geom[:, rays:]] == self._wanted
        there = np.concatenate([scene.agent_there, scene.object_there], 1)
        inside = cone(self._poses.agents, self._targets, config.senses.cone)
        inside &= there[:, None]
        inside &= scene.agent_there[:, :, None]
        # two agents are in each other's way equally: one ray serves both
        scene.sees_agent[...] = False
        scene.sees_agent[:, self._from, self._to] = free[:, :pairs]
        scene.sees_agent[:, self._to, self._from] = free[:, :pairs]
        scene.sees_agent &= inside[:, :, :agents]
        np.logical_and(free[:, pairs:].reshape(scene.sees_object.shape), inside[:, :, agents:], out=scene.sees_object)

    def _aim(self) -> None:
        """Rays from where the agents are now to where the targets are now."""
        config, poses, targets = self._config, self._poses, self._targets
        agents, count = config.agents, len(self._targets)
        targets[:, :agents] = poses.agents[:, :, :3]
        targets[:, agents:] = poses.objects[:, :, :3]
        if config.ramps:
            ramps, yaw = targets[:, agents + config.boxes :], poses.objects[:, config.boxes :, 3]
            ramps[:, :, 0] -= RAMP_AIM[0] * np.sin(yaw)
            ramps[:, :, 1] += RAMP_AIM[0] * np.cos(yaw)
            ramps[:, :, 2] += RAMP_AIM[1]
        eyes, rays, pairs = targets[:, :agents], self._rays, len(self._from)
        self._origins[:, :rays].reshape(count, agents, -1, 3)[...] = eyes[:, :, None]
        self._origins[:, rays : rays + pairs] = eyes[:, self._from]
        self._directions[:, rays : rays + pairs] = eyes[:, self._to] - eyes[:, self._from]
        shape = (count, agents, config.boxes + config.ramps, 3)
        self._origins[:, rays + pairs :].reshape(shape)[...] = eyes[:, :, None]
        np.subtract(targets[:, None, agents:], eyes[:, :, None], out=self._directions[:, rays + pairs :].reshape(shape))
