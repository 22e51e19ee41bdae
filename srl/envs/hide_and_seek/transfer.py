"""Four single-agent tasks on the same worlds, to test the transfer of a trained policy."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from srl.core.tree import Array, Tree
from srl.envs.hide_and_seek.config import Config
from srl.envs.hide_and_seek.rules import Game, Hiding
from srl.envs.hide_and_seek.scene import Poses, Scene

_CORNERS = np.array([(-1, -1), (-1, 1), (1, -1), (1, 1)])
_SITE_HALF = 0.25
_FAR = 1e6
"""Where boxes and sites are that are not there."""


class LockTask(Game):
    """+5 for a lock, -5 for an unlock, half the distance gained towards the next target, +1 while done."""

    stats = ("task_return", "task_done", "task_locks")
    ordered = False
    """True if boxes must be locked in the order of their index."""
    returns = True
    """True if the agent must return to where it started."""

    def __init__(self, config: Config, scene: Scene, poses: Poses) -> None:
        super().__init__(config, scene, poses)
        count = len(scene.tick)
        self._total = np.zeros(count)
        self._done = np.zeros(count, bool)
        self._target = np.full(count, -1)
        self._way = np.zeros(count)
        self._home = np.zeros(count)
        self._locked = np.zeros((count, config.boxes), bool)

    def start(self, ids: Array) -> None:
        target, way = self._next()
        self._target[ids], self._way[ids] = target[ids], way[ids]
        self._total[ids] = self._home[ids] = 0.0
        self._done[ids] = self._locked[ids] = False

    def lockable(self) -> Array:
        kinds = super().lockable()
        if not self.ordered:
            return kinds
        target, _ = self._next()
        things = np.arange(len(kinds))
        return np.asarray(kinds & ((things == target[:, None]) | (things >= self.config.boxes)))  # ramps have no order

    def score(self, live: Array) -> tuple[Array, Array]:
        locked = self.scene.locked[:, : self.config.boxes]
        new, lost = (locked & ~self._locked).sum(1), (self._locked & ~locked).sum(1)
        target, way = self._next()
        home = np.sqrt(np.square(self.poses.agents[:, 0, :2] - self.scene.agent_start[:, 0]).sum(1))
        reward = 5.0 * new - 5.0 * lost + 0.5 * self._progress(locked, target, way, home)
        done = (target < 0) & ((home <= 0.1) | (not self.returns))
        reward = (reward + done) * live
        for kept, now in ((self._target, target), (self._way, way), (self._home, home), (self._locked, locked)):
            kept[live] = now[live]
        self._total += reward
        self._done[live] = done[live]
        return reward[:, None], np.zeros(len(reward), bool)

    def finish(self) -> Mapping[str, Array]:
        return {"task_return": self._total, "task_done": self._done, "task_locks": self._locked.sum(1)}

    def save(self) -> dict[str, Tree]:
        return {
            "total": self._total.copy(),
            "done": self._done.copy(),
            "target": self._target.copy(),
            "way": self._way.copy(),
            "home": self._home.copy(),
            "locked": self._locked.copy(),
        }

    def load(self, saved: Tree) -> None:
        for name in ("total", "done", "target", "way", "home", "locked"):
            getattr(self, f"_{name}")[...] = saved[name]

    def _next(self) -> tuple[Array, Array]:
        """The box to lock next, -1 when all are, and how far it is."""
        boxes = self.config.boxes
        away = self.poses.objects[:, :boxes, :2] - self.poses.agents[:, :1, :2]
        way = np.sqrt(np.square(away).sum(2))
        wanted = self.scene.object_there[:, :boxes] & ~self.scene.locked[:, :boxes]
        target = wanted.argmax(1) if self.ordered else np.where(wanted, way, np.inf).argmin(1)
        way = np.take_along_axis(way, target[:, None], 1)[:, 0]
        some = wanted.any(1)
        return np.where(some, target, -1), np.where(some, way, 0.0)

    def _progress(self, locked: Array, target: Array, way: Array, home: Array) -> Array:
        """Meters gained towards the target; one that changed is paid off, or owed again after an unlock."""
        before = np.maximum(self._target, 0)
        paid = np.take_along_axis(locked, before[:, None], 1)[:, 0]
        changed = np.where(paid, self._way, -way)
        gained = np.where(target == self._target, self._way - way, changed)
        gained = np.where(self._target < 0, -way, gained)
        both_done = (self._target < 0) & (target < 0)
        return np.where(both_done, (self._home - home) * self.returns, gained)


class SequentialLock(LockTask):
    ordered = True
    returns = False


class Blueprint(Game):
    """Bring boxes to the marked sites: paid by how far their corners are from the sites' corners."""

    stats = ("task_return", "task_done", "task_distance")

    def __init__(self, config: Config, scene: Scene, poses: Poses) -> None:
        super().__init__(config, scene, poses)
        self._total = np.zeros(len(scene.tick))
        self._done = np.zeros(len(scene.tick), bool)
        self._mean = np.zeros(len(scene.tick))

    def start(self, ids: Array) -> None:
        self._total[ids] = self._mean[ids] = 0.0
        self._done[ids] = False

    def score(self, live: Array) -> tuple[Array, Array]:
        sites = self.scene.sites
        there = ~np.isnan(sites[:, :, 0])
        marks = np.nan_to_num(sites[:, :, None] + _CORNERS * _SITE_HALF, nan=_FAR)
        centres = np.where(self.scene.object_there[:, :, None], self.poses.objects[:, :, :2], -_FAR)
        corner = _distances(marks.reshape(len(sites), -1, 2), self._corners(centres).reshape(len(sites), -1, 2))
        weight = np.exp(-1.5 * (corner - corner.min(2, keepdims=True)))
        smooth = ((corner * weight).sum(2) / weight.sum(2)).reshape(marks.shape[:3])
        mean = (smooth * there[:, :, None]).sum((1, 2)) / (4 * there.sum(1))
        near = (corner.min(2).reshape(marks.shape[:3]) < 0.1).all(2)
        near &= _distances(np.nan_to_num(sites, nan=_FAR), centres).min(2) < 0.1
        done = (near | ~there).all(1) & live
        reward = (-0.05 * mean + 3.0 * there.sum(1) * done) * live
        self._total += reward
        self._mean[live] = mean[live]
        self._done[live] = done[live]
        return reward[:, None], done

    def finish(self) -> Mapping[str, Array]:
        return {"task_return": self._total, "task_done": self._done, "task_distance": self._mean}

    def save(self) -> dict[str, Tree]:
        return {"total": self._total.copy(), "done": self._done.copy(), "mean": self._mean.copy()}

    def load(self, saved: Tree) -> None:
        for name in ("total", "done", "mean"):
            getattr(self, f"_{name}")[...] = saved[name]

    def _corners(self, centres: Array) -> Array:
        """[N, B, 4, 2] of the boxes."""
        yaw, offset = self.poses.objects[:, :, 3, None], _CORNERS * self.scene.half[:, :, None, :2]
        cos, sin = np.cos(yaw), np.sin(yaw)
        turned = np.stack([cos * offset[..., 0] - sin * offset[..., 1], sin * offset[..., 0] + cos * offset[..., 1]], 3)
        corners: Array = centres[:, :, None] + turned
        return corners


class Shelter(Game):
    """Keep rays from the border away from a fixed cylinder: each that reaches it costs 0.001."""

    stats = ("task_return", "task_rays")
    rays_per_side = 25

    def __init__(self, config: Config, scene: Scene, poses: Poses) -> None:
        super().__init__(config, scene, poses)
        self._total, self._hits = np.zeros((2, len(scene.tick)))
        self._points = self._border()
        self.reaches: Callable[[Array, Array], Array] = _unset
        """(origins, directions) [N, rays, 3] -> [N, rays] whether the ray hits the cylinder; set by the env."""

    def start(self, ids: Array) -> None:
        self._total[ids] = self._hits[ids] = 0.0

    def score(self, live: Array) -> tuple[Array, Array]:
        centre = np.column_stack([self.scene.cylinder[:, :2], np.full(len(live), 0.25)])
        directions = centre[:, None] - self._points
        hits = self.reaches(np.broadcast_to(self._points, directions.shape), directions).sum(1)
        reward = -0.001 * hits * live
        self._total += reward
        self._hits[live] = hits[live]
        return reward[:, None], np.zeros(len(live), bool)

    def finish(self) -> Mapping[str, Array]:
        return {"task_return": self._total, "task_rays": self._hits}

    def save(self) -> dict[str, Tree]:
        return {"total": self._total.copy(), "hits": self._hits.copy()}

    def load(self, saved: Tree) -> None:
        self._total[...], self._hits[...] = saved["total"], saved["hits"]

    def _border(self) -> Array:
        """[4 * rays, 3] evenly spaced just inside the outer walls, at half the height of a box."""
        rim = 1.01 * self.config.arena.cell
        low, high = rim, self.config.arena.side - rim
        along = np.arange(self.rays_per_side) / self.rays_per_side * (high - low)
        ends = (np.full_like(along, low), np.full_like(along, high))
        sides = [(low + along, ends[0]), (ends[1], low + along), (high - along, ends[1]), (ends[0], high - along)]
        x, y = (np.concatenate([side[axis] for side in sides]) for axis in range(2))
        return np.stack([x, y, np.full_like(x, 0.25)], 1)


GAMES: dict[str, type[Game]] = {
    "hide": Hiding,
    "lock_and_return": LockTask,
    "sequential_lock": SequentialLock,
    "blueprint": Blueprint,
    "shelter": Shelter,
}


def _distances(first: Array, second: Array) -> Array:
    """[N, F, S] between points [N, F, 2] and [N, S, 2]."""
    away = first[:, :, None] - second[:, None]
    lengths: Array = np.sqrt((away * away).sum(3))
    return lengths


def _unset(origins: Array, directions: Array) -> Array:
    raise RuntimeError("Shelter has no ray caster: set `reaches` before the first step")
