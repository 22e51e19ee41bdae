"""Observations of each agent from a scene: dicts of float32 arrays, the same for hiders and seekers."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from srl.core.spec import Leaf
from srl.core.tree import Array
from srl.envs.hide_and_seek.config import Config
from srl.envs.hide_and_seek.layout import AGENT
from srl.envs.hide_and_seek.scene import Poses, Scene

_CORNERS = np.array([(-1, -1), (-1, 1), (1, -1), (1, 1)]) * 0.25
_SITE_HEIGHT = 0.25


def obs_spec(config: Config) -> dict[str, Leaf]:
    """`mask_*`: seen; `exist_*`: present, for critics that see everything. Absent kinds of objects have no keys."""
    shapes: dict[str, tuple[int, ...]] = {"self": (agent_size(config),), "lidar": (config.senses.lidar,)}
    for kind, rows, size in _kinds(config):
        shapes[kind] = (rows, size)
        shapes[f"mask_{kind}"] = shapes[f"exist_{kind}"] = (rows,)
    return {key: Leaf(shape, "float32") for key, shape in shapes.items()}


def agent_size(config: Config) -> int:
    """x, y, z, yaw (2 numbers, or 1), 4 rates, is hider, progress of the preparation."""
    return 11 if config.senses.yaw == "unit" else 10


def _kinds(config: Config) -> list[tuple[str, int, int]]:
    """(kind, rows, fields) of the other entities."""
    objects, pad = config.objects, int(config.objects.pad)
    extra = 3 if objects.size_obs else 0
    kinds = [
        ("agents", max(config.agents - 1, pad), agent_size(config)),
        ("boxes", max(config.boxes, pad), 12 + extra),
        ("ramps", max(config.ramps, pad), 9 + extra + (3 if objects.lock_ramps else 0)),
        ("sites", objects.sites[1], 15),
    ]
    return [kind for kind in kinds if kind[1]]


class Observer:
    """Keeps the feature arrays; `write` fills one team's observation."""

    def __init__(self, config: Config, scene: Scene, poses: Poses) -> None:
        self._config, self._scene, self._poses = config, scene, poses
        count, agents = len(scene.tick), config.agents
        self._agents = np.zeros((count, agents, agent_size(config)), np.float32)
        self._objects = np.zeros((count, config.boxes + config.ramps, 9), np.float32)
        self._halves = np.zeros((count, agents + config.boxes + config.ramps, 3))
        self._rows = np.arange(agents)[:, None]
        self._others = (self._rows - 1 - np.arange(agents - 1)) % agents
        self._exist = np.zeros((count, *self._others.shape), bool)
        self._all_there = False
        self._agents[:, : config.hiders, -2] = 1.0

    def start(self) -> None:
        """After new episodes: who exists; the original measures positions from the corner of the initial box."""
        scene = self._scene
        np.take(scene.agent_there, self._others, axis=1, out=self._exist)
        self._all_there = bool(scene.agent_there.all() and scene.object_there.all())
        if self._config.senses.positions == "joint":
            agents = self._config.agents
            self._halves[:, :agents] = np.array(AGENT) / 2
            self._halves[:, agents:] = self._scene.half

    def update(self) -> None:
        """Take the scene's present features; then `write` for each team."""
        config, poses, scene = self._config, self._poses, self._scene
        agents = self._agents
        np.subtract(poses.agents[:, :, :3], self._halves[:, : config.agents], out=agents[:, :, :3], casting="same_kind")
        if config.senses.yaw == "unit":
            agents[:, :, 3:5] = poses.agent_turns
        else:
            agents[:, :, 3] = poses.agents[:, :, 3]
        agents[:, :, -6:-2] = poses.agent_speeds
        prep = max(config.timing.prep_steps, 1)
        agents[:, :, -1] = np.minimum(1.0, scene.tick / prep)[:, None] if config.timing.prep_steps else 0.0
        things = self._objects
        np.subtract(poses.objects[:, :, :3], self._halves[:, config.agents :], out=things[:, :, :3], casting="same_kind")
        things[:, :, 3:5] = poses.object_turns
        things[:, :, 5:] = poses.object_speeds
        if not self._all_there:
            things *= scene.object_there[:, :, None]

    def write(self, team: slice, out: Mapping[str, Array]) -> None:
        """Fill `out` `[N, team, ...]`; rows of absent agents are zeros."""
        config, scene = self._config, self._scene
        out["self"][...] = self._agents[:, team]
        out["lidar"][...] = scene.lidar[:, team]
        if config.agents > 1:
            self._write_agents(team, out)
        boxes = config.boxes
        if boxes:
            self._write_objects("boxes", slice(0, boxes), True, team, out)
        if config.ramps:
            self._write_objects("ramps", slice(boxes, boxes + config.ramps), config.objects.lock_ramps, team, out)
        if config.objects.sites[1]:
            self._write_sites(out)
        self._pad(out)
        if not self._all_there:
            there = scene.agent_there[:, team]
            for leaf in out.values():
                leaf[~there] = 0.0

    def _write_agents(self, team: slice, out: Mapping[str, Array]) -> None:
        scene, rows, others, there = self._scene, self._rows[team], self._others[team], self._exist[:, team]
        out["agents"][...] = self._agents.take(others, axis=1)
        if not self._all_there:
            out["agents"][~there] = 0.0
        out["mask_agents"][...] = scene.sees_agent[:, rows, others]
        out["exist_agents"][...] = there

    def _write_objects(self, kind: str, part: slice, lockable: bool, team: slice, out: Mapping[str, Array]) -> None:
        scene, rows = self._scene, out[kind]
        rows[..., :9] = self._objects[:, None, part]
        if self._config.objects.size_obs:
            # ramps have the room, and the original leaves it empty
            size = 2 * scene.half[:, part] * scene.object_there[:, part, None]
            rows[..., 9:12] = size[:, None] if kind == "boxes" else 0.0
        if lockable:
            self._write_locks(part, team, rows[..., -3:])
        out[f"mask_{kind}"][...] = scene.sees_object[:, team, part]
        out[f"exist_{kind}"][...] = scene.object_there[:, None, part]

    def _write_locks(self, part: slice, team: slice, out: Array) -> None:
        """Locked by you, by your team, at all: `[N, team, objects, 3]`."""
        scene, hiders = self._scene, self._config.hiders
        locked, locker = scene.locked[:, part], scene.locker[:, part]
        out[..., 0] = locked[:, None] & (locker[:, None] == self._rows[team])
        out[..., 1] = (locked & ((locker < hiders) == (team.start < hiders)))[:, None]
        out[..., 2] = locked[:, None]

    def _write_sites(self, out: Mapping[str, Array]) -> None:
        sites = self._scene.sites
        there = ~np.isnan(sites[:, :, 0])
        rows = np.full((*there.shape, 5, 3), _SITE_HEIGHT)
        rows[..., 0, :2] = sites
        rows[..., 1:, :2] = sites[:, :, None] + _CORNERS
        out["sites"][...] = np.where(there[..., None], rows.reshape(*there.shape, 15), 0.0)[:, None]
        out["mask_sites"][...] = out["exist_sites"][...] = there[:, None]

    def _pad(self, out: Mapping[str, Array]) -> None:
        """Rows of kinds that this game does not have."""
        config = self._config
        for kind, rows in (("agents", config.agents - 1), ("boxes", config.boxes), ("ramps", config.ramps)):
            if not rows and kind in out:
                for key in (kind, f"mask_{kind}", f"exist_{kind}"):
                    out[key][...] = 0.0
