"""Vision: a cone in the plane and a free line of sight to the target. One ray call for all worlds."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from srl.core.tree import Array
from srl.envs.hide_and_seek.config import Config
from srl.envs.hide_and_seek.lidar import Lidar
from srl.envs.hide_and_seek.scene import Poses, Scene

Cast = Callable[[Array, Array, Array], tuple[Array, Array]]
"""(origins, directions, excluded bodies) -> (distances, geoms), all [N, rays, ...]."""

RAMP_AIM = (-1 / 12, -1 / 12)
"""A ramp is looked for at its centre of mass: along its own y and z, from its middle."""


def cone(
    eyes: Array,  # [N, A, 2+]
    turns: Array,  # [N, A, 2] cosine and sine of the yaw
    targets: Array,  # [N, T, 2+]
    half_angle: float,
) -> Array:  # [N, A, T]
    """True if the target's center lies in the field of view; at yaw 0 an agent looks along -y."""
    x = targets[:, None, :, 0] - eyes[:, :, None, 0]
    y = targets[:, None, :, 1] - eyes[:, :, None, 1]
    cos, sin = turns[:, :, 0, None], turns[:, :, 1, None]
    within: Array = x * sin - y * cos >= math.cos(half_angle) * np.sqrt(x * x + y * y)
    return within


class Senses:
    """`update` fills the scene's lidar and sight."""

    def __init__(self, config: Config, scene: Scene, poses: Poses, bodies: tuple[Array, Array], body_of_geom: Array) -> None:
        """`bodies`: of agents and objects; `body_of_geom[-1]` is that of a miss."""
        self._config, self._scene, self._poses = config, scene, poses
        self._bodies, self._body_of_geom = np.concatenate(bodies).astype(np.int32), body_of_geom
        self._lidar = Lidar(config, scene, poses)
        count, agents, targets = len(scene.tick), config.agents, len(self._bodies)
        self._targets = np.zeros((count, targets, 3))
        self._possible = np.zeros((count, agents, targets), bool)
        self._worlds = np.arange(count)[:, None]

    def start(self) -> None:
        """After resets: which targets could be seen if nothing were in between."""
        scene, agents = self._scene, self._config.agents
        there = np.concatenate([scene.agent_there, scene.object_there], 1)
        np.logical_and(scene.agent_there[:, :, None], there[:, None], out=self._possible)
        self._possible[:, np.arange(agents), np.arange(agents)] = False
        self._lidar.start()

    def update(self, cast: Cast) -> None:
        config, scene = self._config, self._scene
        self._poses.turn()
        self._lidar.measure()
        self._aim()
        inside = cone(self._poses.agents, self._poses.agent_turns, self._targets, config.senses.cone)
        inside &= self._possible
        sees = self._free(inside.reshape(len(inside), -1), cast).reshape(inside.shape)
        scene.sees_agent[...], scene.sees_object[...] = sees[:, :, : config.agents], sees[:, :, config.agents :]
        np.logical_or.reduce(scene.sees_agent[:, config.hiders :, : config.hiders], axis=(1, 2), out=scene.seen)

    def _free(self, wanted: Array, cast: Cast) -> Array:
        """`[N, A x T]`: the requested pairs with a free line of sight. Most pairs are outside the cone and need no ray."""
        most = int(np.count_nonzero(wanted, axis=1).max())
        free = np.zeros_like(wanted)
        if most:
            worlds, bodies, targets = self._worlds, self._bodies, self._targets
            rays = np.argsort(~wanted, axis=1, kind="stable")[:, :most]
            agent, goal = np.divmod(rays, len(bodies))
            origins = targets[worlds, agent]
            directions = targets[worlds, goal] - origins
            # worlds with fewer rays cast the rest of them into the sky
            directions[~wanted[worlds, rays]] = 0.0, 0.0, 1.0
            geom = cast(origins, directions, bodies[agent])[1]
            free[worlds, rays] = self._body_of_geom[geom] == bodies[goal]
            free &= wanted
        return free

    def _aim(self) -> None:
        """Where everything is now."""
        config, poses, targets = self._config, self._poses, self._targets
        agents = config.agents
        targets[:, :agents] = poses.agents[:, :, :3]
        targets[:, agents:] = poses.objects[:, :, :3]
        if config.ramps:
            ramps, turns = targets[:, agents + config.boxes :], poses.object_turns[:, config.boxes :]
            ramps[:, :, 0] -= RAMP_AIM[0] * turns[:, :, 1]
            ramps[:, :, 1] += RAMP_AIM[0] * turns[:, :, 0]
            ramps[:, :, 2] += RAMP_AIM[1]
