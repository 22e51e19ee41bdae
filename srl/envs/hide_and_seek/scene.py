"""The state of N worlds that rules, senses and statistics share: plain arrays, no MuJoCo."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields

import numpy as np

from srl.core.tree import Array, Tree
from srl.envs.hide_and_seek.config import Config
from srl.envs.hide_and_seek.layout import CUBE, Layout


@dataclass(slots=True)
class Poses:
    """Live views into the physics: x, y, z, yaw and their rates."""

    agents: Array
    """[N, A, 4]"""
    agent_speeds: Array
    objects: Array
    """[N, O, 4] boxes, then ramps."""
    object_speeds: Array
    agent_turns: Array = field(init=False)
    """[N, A, 2] cosine and sine of the yaw, as `turn` found it."""
    object_turns: Array = field(init=False)

    def __post_init__(self) -> None:
        self.agent_turns, self.object_turns = np.zeros((*self.agents.shape[:2], 2)), np.zeros((*self.objects.shape[:2], 2))
        self.turn()

    def turn(self) -> None:
        """After anything moved."""
        for poses, turns in ((self.agents, self.agent_turns), (self.objects, self.object_turns)):
            np.cos(poses[:, :, 3], out=turns[:, :, 0])
            np.sin(poses[:, :, 3], out=turns[:, :, 1])


@dataclass(slots=True)
class Scene:
    """Rows are worlds; A agents (hiders first), O objects (boxes, then ramps). Saved and loaded as a whole."""

    tick: Array
    """[N] steps since the start of the episode."""
    seed: Array
    """[N] of the episode: with the actions, it replays the episode."""
    agent_there: Array
    """[N, A] bool."""
    object_there: Array
    """[N, O] bool."""
    half: Array
    """[N, O, 3] half sizes."""
    object_start: Array
    """[N, O, 3]"""
    agent_start: Array
    """[N, A, 2]"""
    walls: Array
    """[N, W, 5] centre x, y, full size x, y, z; NaN where there is none."""
    room: Array
    """[N, 4] x from, x to, y from, y to of the quadrant's room."""
    sites: Array
    """[N, S, 2]; NaN where there is none."""
    cylinder: Array
    """[N, 3] x, y, diameter; NaN where there is none."""
    sees_agent: Array
    """[N, A, A] bool: row agent sees column agent."""
    sees_object: Array
    """[N, A, O] bool."""
    seen: Array
    """[N] bool: some seeker sees some hider."""
    lidar: Array
    """[N, A, L] metres."""
    grabbed: Array
    """[N, A] object each agent holds, or -1."""
    locked: Array
    """[N, O] bool."""
    locker: Array
    """[N, O] the agent that locked it last; -1: no agent."""

    @classmethod
    def empty(cls, config: Config, count: int) -> Scene:
        agents, objects = config.agents, config.boxes + config.ramps
        return cls(
            tick=np.zeros(count, np.int64),
            seed=np.zeros(count, np.int64),
            agent_there=np.zeros((count, agents), bool),
            object_there=np.zeros((count, objects), bool),
            half=np.tile(np.array(CUBE) / 2, (count, objects, 1)),
            object_start=np.zeros((count, objects, 3)),
            agent_start=np.zeros((count, agents, 2)),
            walls=np.full((count, config.arena.wall_slots, 5), np.nan),
            room=np.zeros((count, 4)),
            sites=np.full((count, config.objects.sites[1], 2), np.nan),
            cylinder=np.full((count, 3), np.nan),
            sees_agent=np.zeros((count, agents, agents), bool),
            sees_object=np.zeros((count, agents, objects), bool),
            seen=np.zeros(count, bool),
            lidar=np.zeros((count, agents, config.senses.lidar)),
            grabbed=np.full((count, agents), -1, np.int64),
            locked=np.zeros((count, objects), bool),
            locker=np.zeros((count, objects), np.int64),
        )

    def start(self, ids: Array, layouts: Sequence[Layout], poses: Poses, first_locker: int) -> None:
        """New episodes in those worlds, whose poses are already the new ones."""
        for world, layout in zip(ids.tolist(), layouts, strict=True):
            self.agent_there[world] = layout.agent_there
            self.object_there[world] = layout.object_there
            self.half[world] = layout.sizes / 2
            self.walls[world] = np.nan
            self.walls[world, : len(layout.walls)] = layout.walls
            self.room[world] = layout.room
            self.sites[world] = layout.sites
            if layout.cylinder is not None:
                self.cylinder[world] = layout.cylinder
        self.object_start[ids] = poses.objects[ids, :, :3]
        self.agent_start[ids] = poses.agents[ids, :, :2]
        self.tick[ids] = 0
        self.grabbed[ids] = -1
        self.locked[ids] = False
        self.locker[ids] = first_locker

    def save(self) -> dict[str, Tree]:
        return {part.name: getattr(self, part.name).copy() for part in fields(self)}

    def load(self, saved: Tree) -> None:
        for part in fields(self):
            getattr(self, part.name)[...] = saved[part.name]
