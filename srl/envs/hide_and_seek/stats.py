"""Episode statistics that distinguish the stages of the game."""

from __future__ import annotations

import numpy as np

from srl.core.tree import Array, Tree
from srl.envs.hide_and_seek.config import Config
from srl.envs.hide_and_seek.rules import Game, anybody_outside, outside
from srl.envs.hide_and_seek.scene import Poses, Scene

HIGH = 0.3
LAUNCHED = 1.2
FAST = 40.0

_SUMS = (
    "hider_return",
    "seeker_return",
    "seen",
    "distance",
    "hider_grab",
    "seeker_grab",
    "seeker_high",
    "outside",
    "launched",
    "fast",
    "warned",
)
"""Added up during the episode; `seen`, `distance` and `seeker_high` are shares of the main phase, grabs of all steps.

`warned`: 1 if the simulator failed and cut the episode short; what came before it was learned from.
"""
_SHARES = {"seen": True, "distance": True, "seeker_high": True, "hider_grab": False, "seeker_grab": False}
_MARKS = (
    "box_move_prep",
    "box_lock_prep",
    "ramp_move_prep",
    "ramp_lock_prep",
    "hider_in_room_prep",
)
"""Taken once, at the end of preparation."""
_ENDS = (
    "box_move",
    "box_move_main",
    "box_lock",
    "ramp_move",
    "ramp_move_main",
    "ramp_lock",
    "hider_in_room",
    "seeker_in_room",
)


def names(game: type[Game]) -> tuple[str, ...]:
    return (*_SUMS, *_MARKS, *_ENDS, "seed", *game.stats)


def headline(config: Config, game: type[Game]) -> tuple[str, ...]:
    """The most informative statistics of this game or task."""
    if not config.seekers:
        return (*game.stats, "box_lock")
    seeking = ("seen", "hider_in_room_prep", "seeker_in_room", "box_move_main", "box_lock")
    return (*seeking, "ramp_move_main", "ramp_lock", "seeker_high") if config.ramps else seeking


class Tracker:
    """Follows N episodes; `finish` gives `[N, len(names)]` as if all ended now."""

    def __init__(self, config: Config, scene: Scene, poses: Poses, game: Game) -> None:
        self._config, self._scene, self._poses, self._game = config, scene, poses, game
        count = len(scene.tick)
        self._sums, self._add = np.zeros((2, count, len(_SUMS)))
        self._both = np.zeros((count, config.agents, 2))
        self._marks = np.zeros((count, len(_MARKS)))
        self._object_mark = np.zeros((count, config.boxes + config.ramps, 3))
        self._member = np.zeros((count, 2, config.agents))
        self._pair_weight = np.zeros((count, config.hiders, config.seekers))
        self._kinds = (slice(0, config.boxes), slice(config.boxes, None))

    def start(self, ids: Array) -> None:
        self._sums[ids] = 0.0
        self._marks[ids] = 0.0
        self._object_mark[ids] = self._scene.object_start[ids]
        self._count()

    def _count(self) -> None:
        """Weights that turn a sum over agents into the mean of each team."""
        there, hiders = self._scene.agent_there, self._config.hiders
        self._member[:, 0, :hiders] = there[:, :hiders]
        self._member[:, 1, hiders:] = there[:, hiders:]
        self._member /= np.maximum(self._member.sum(2, keepdims=True), 1)
        pairs = there[:, :hiders, None] & there[:, None, hiders:]
        self._pair_weight = pairs / np.maximum(pairs.sum((1, 2), keepdims=True), 1)

    def warn(self, failed: Array) -> None:
        """The simulator failed in these worlds (indices)."""
        self._sums[failed, _SUMS.index("warned")] = 1.0

    def update(self, live: Array, reward: Array) -> None:
        """After a step. `live` `[N]`: worlds that made one."""
        config, scene = self._config, self._scene
        main = live & (scene.tick > config.timing.prep_steps)
        add, both = self._add, self._both
        add.fill(0.0)
        both[:, :, 0] = reward
        np.greater_equal(scene.grabbed, 0, out=both[:, :, 1])
        means = np.matmul(self._member, both)
        add[:, 0:2], add[:, 4:6] = means[:, :, 0], means[:, :, 1]
        if config.seekers:
            add[:, 2] = scene.seen & main
            add[:, 3] = self._distance() * main
        self._add_rare(add, main)
        add *= live[:, None]
        self._sums += add
        done = live & (scene.tick == config.timing.prep_steps)
        if done.any():
            self._mark(done)

    def _add_rare(self, add: Array, main: Array) -> None:
        """Rare events are first searched for in all worlds at once."""
        config, scene, poses = self._config, self._scene, self._poses
        height, flat = poses.agents[:, :, 2], poses.agents[:, :, :2]
        top = height.max()
        if top > HIGH:
            add[:, 6] = (height[:, config.hiders :] > HIGH).any(1) & main
        floor = (0.0, config.arena.side)
        if anybody_outside(flat, floor):
            add[:, 7] = (outside(flat, floor) & scene.agent_there).any(1)
        if max(top, poses.objects[:, :, 2].max(initial=0.0)) > LAUNCHED:
            add[:, 8] = (height > LAUNCHED).any(1) | (poses.objects[:, :, 2] > LAUNCHED).any(1)
        speeds = poses.agent_speeds[:, :, :2]
        if max(speeds.max(), -speeds.min()) > FAST / 2:
            add[:, 9] = (np.square(speeds).sum(2) > FAST * FAST).any(1)

    def finish(self) -> Array:
        config, scene = self._config, self._scene
        tick = np.maximum(scene.tick, 1)
        main = np.maximum(scene.tick - config.timing.prep_steps, 1)
        sums = self._sums.copy()
        for name, of_main in _SHARES.items():
            sums[:, _SUMS.index(name)] /= main if of_main else tick
        start, mark, hiders = scene.object_start, self._object_mark, config.hiders
        ends = [column for kind in self._kinds for column in (*self._moved(kind, start, mark), self._locks(kind))]
        ends += [self._in_room(slice(0, hiders)), self._in_room(slice(hiders, None))]
        game = self._game.finish()
        extra = [game[name] for name in self._game.stats]
        return np.column_stack([sums, self._marks, *ends, scene.seed, *extra])

    def save(self) -> dict[str, Tree]:
        return {"sums": self._sums.copy(), "marks": self._marks.copy(), "object_mark": self._object_mark.copy()}

    def load(self, saved: Tree) -> None:
        self._sums[...] = saved["sums"]
        self._marks[...] = saved["marks"]
        self._object_mark[...] = saved["object_mark"]
        self._count()

    def _mark(self, done: Array) -> None:
        scene, hiders = self._scene, self._config.hiders
        columns = [entry for kind in self._kinds for entry in (*self._moved(kind, scene.object_start), self._locks(kind))]
        columns.append(self._in_room(slice(0, hiders)))
        self._marks[done] = np.column_stack(columns)[done]
        self._object_mark[done] = self._poses.objects[done, :, :3]

    def _moved(self, kind: slice, *since: Array) -> list[Array]:
        """The largest displacement `[N]` of any object of this kind, since each of those positions."""
        there, now = self._scene.object_there[:, kind], self._poses.objects[:, kind, :3]
        away = [np.sqrt(np.square(now - before[:, kind]).sum(2)) * there for before in since]
        return [part.max(1, initial=0.0) for part in away]

    def _locks(self, kind: slice) -> Array:
        locks: Array = self._scene.locked[:, kind].sum(1)
        return locks

    def _in_room(self, team: slice) -> Array:
        """Share of the team inside the quadrant's room; 0 where there is none."""
        scene, agents = self._scene, self._poses.agents[:, team]
        left, right, low, high = scene.room.T[:, :, None]
        x, y, there = agents[:, :, 0], agents[:, :, 1], scene.agent_there[:, team]
        inside = (x > left) & (x < right) & (y > low) & (y < high) & there
        share: Array = inside.sum(1) / np.maximum(there.sum(1), 1)
        return share

    def _distance(self) -> Array:
        """Mean distance `[N]` over all pairs of a hider and a seeker."""
        hiders, agents = self._config.hiders, self._poses.agents
        away = agents[:, :hiders, None, :2] - agents[:, None, hiders:, :2]
        mean: Array = (np.sqrt((away * away).sum(3)) * self._pair_weight).sum((1, 2))
        return mean
