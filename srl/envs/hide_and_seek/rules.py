"""The rules of the game as pure functions on arrays: N worlds, A agents, O objects. Knows no MuJoCo."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping

import numpy as np

from srl.core.seeds import mix
from srl.core.tree import Array, Tree
from srl.envs.hide_and_seek.config import Config
from srl.envs.hide_and_seek.scene import Poses, Scene

COUNTS = (11, 11, 11, 2, 2)
"""Force along x and y, torque, grab, lock."""
NEUTRAL = (5, 5, 5, 0, 0)
_BUCKET = 0.18
_WORLD, _TICK, _PAIR = (np.uint64(number) for number in (0x9E3779B97F4A7C15, 0xD1B54A32D192ED03, 0x8CB92BA72F3D8DD7))


def controls(buckets: Array) -> Array:
    """Bucket 0..10 to -0.9..0.9; 5 is exactly zero."""
    return (buckets - 5) * _BUCKET


def neutral_mask() -> Array:
    """The action mask that leaves one choice per component."""
    mask = np.zeros(sum(COUNTS), bool)
    mask[np.cumsum((0, *COUNTS[:-1])) + NEUTRAL] = True
    return mask


def reach(
    points: Array,  # [N, A, 3+]
    places: Array,  # [N, O, 3+]
    turns: Array,  # [N, O, 2] cosine and sine of the yaw
    half: Array,  # [N, O, 3]
) -> Array:  # [N, A, O]
    """Distance from each point to each box, which is turned about z."""
    cos, sin = turns[:, None, :, 0], turns[:, None, :, 1]
    x, y, z = (points[:, :, None, axis] - places[:, None, :, axis] for axis in range(3))
    over = np.empty((3, *x.shape))  # axes first: numpy is fast over the last ones
    over[0] = cos * x + sin * y
    over[1] = cos * y - sin * x
    over[2] = z
    np.abs(over, out=over)
    over -= half.transpose(2, 0, 1)[:, :, None]
    np.maximum(over, 0.0, out=over)
    over *= over
    return np.asarray(np.sqrt(over[0] + over[1] + over[2]))


def grab_targets(
    distance: Array,  # [N, A, O]
    near: Array,  # [N, A, O] within reach, and seen
    pull: Array,  # [N, A]
) -> Array:  # [N, A]
    """The object each agent holds: the nearest one; -1: none."""
    if not distance.shape[2]:
        return np.full(pull.shape, -1)
    wanted = near & pull[:, :, None]
    nearest = np.where(wanted, distance, np.inf).argmin(2)
    return np.where(wanted.any(2), nearest, -1)


def lock_update(
    near: Array,  # [N, A, O] within reach, and seen
    glue: Array,  # [N, A]
    teams: Array,  # [A]
    locked: Array,  # [N, O]
    locker: Array,  # [N, O] -1: no agent
    lockable: Array,  # [N, O] or broadcast: may become locked now
    lots: Callable[[], Array],  # -> [N, A, O] which of several agents locks: the one with the highest lot
) -> tuple[Array, Array]:
    """Locks after this step. One unwilling member of the last locker's team in reach forbids and undoes a lock."""
    if not near.any():
        return locked, locker
    owner = np.where(locker >= 0, teams[locker], -1)[:, None]
    wanting = near & glue[:, :, None]
    veto = (near & ~wanting & (teams[:, None] == owner)).any(1)
    new = wanting.any(1) & ~veto & ~locked & lockable
    if new.any():
        drawn = np.where(wanting, lots(), -1.0).argmax(1)
        locker = np.where(new, drawn, locker)
    return (locked & ~veto) | new, locker


def lots(seed: Array, tick: Array, agents: int, objects: int) -> Array:
    """[N, A, O] in [0, 1), a function of the episode's seed and the tick: nothing else needs saving."""
    key = seed.astype(np.uint64) * _WORLD + tick.astype(np.uint64) * _TICK
    pairs = np.arange(1, agents * objects + 1, dtype=np.uint64).reshape(agents, objects) * _PAIR
    return np.asarray((mix(key[:, None, None] + pairs) >> np.uint64(11)) * 2.0**-53)


def outside(points: Array, rectangle: tuple[float, float]) -> Array:
    """[...] whether a point [..., 2+] lies outside the square."""
    low, high = rectangle
    flat = points[..., :2]
    return np.asarray(((flat < low) | (flat > high)).any(-1))


def anybody_outside(points: Array, rectangle: tuple[float, float]) -> bool:
    """A fast check of all worlds at once for rare events."""
    flat = points[..., :2]
    return flat.size > 0 and bool(flat.min() < rectangle[0] or flat.max() > rectangle[1])


class Game(ABC):
    """A game: rewards, termination, and which objects accept a lock. All games share the same world."""

    stats: tuple[str, ...] = ()

    def __init__(self, config: Config, scene: Scene, poses: Poses) -> None:
        self.config, self.scene, self.poses = config, scene, poses
        self._kinds = np.ones(config.boxes + config.ramps, bool)
        self._kinds[config.boxes :] = config.objects.lock_ramps

    def start(self, ids: Array) -> None:
        """New episodes in those worlds."""

    def lockable(self) -> Array:
        """[N, O] or broadcast: which objects may become locked in this step."""
        return self._kinds

    @abstractmethod
    def score(self, live: Array) -> tuple[Array, Array]:
        """Reward [N, A] of the step just made, and [N] whether the game is over; `live`: not just restarted."""

    def finish(self) -> Mapping[str, Array]:
        """[N] of each of `stats`, as if the episode ended now."""
        return {}

    def save(self) -> dict[str, Tree]:
        return {}

    def load(self, saved: Tree) -> None:
        """Restore what `save` returned."""


class Hiding(Game):
    """Hiders are rewarded while no seeker sees any of them; seekers the opposite."""

    def __init__(self, config: Config, scene: Scene, poses: Poses) -> None:
        super().__init__(config, scene, poses)
        self._sides = np.where(np.arange(config.agents) < config.hiders, 1.0, -1.0)
        self._never = np.zeros(len(scene.tick), bool)

    def score(self, live: Array) -> tuple[Array, Array]:
        config, scene = self.config, self.scene
        hidden = np.where(scene.seen, -1.0, 1.0)
        reward = hidden[:, None] * self._sides
        if config.rules.rectangle is not None:
            self._fine(reward)
        reward[scene.tick <= config.timing.prep_steps] = 0.0
        return reward, self._never

    def _fine(self, reward: Array) -> None:
        """Agents outside get the penalty instead; with `objects_inside` all agents do while an object is outside."""
        config, scene = self.config, self.scene
        low, high = config.rules.rectangle or (0.0, 0.0)
        square = (low * config.arena.scale, config.arena.side - (6.0 - high) * config.arena.scale)
        if anybody_outside(self.poses.agents, square):
            reward[outside(self.poses.agents, square)] = -config.rules.penalty
        if config.rules.objects_inside and anybody_outside(self.poses.objects, square):
            lost = outside(self.poses.objects, square) & scene.object_there
            reward[lost.any(1)] = -config.rules.penalty
