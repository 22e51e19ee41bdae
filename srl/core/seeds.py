"""Seeds: every generator is a child of one root, keyed by what it is for; noise is a hash of (key, draw)."""

from __future__ import annotations

import zlib
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_SECOND = np.uint64(0x94D049BB133111EB)


def word(name: str) -> int:
    """A stable 32-bit number for a name."""
    return zlib.crc32(name.encode())


def generator(root: int, *key: int | str) -> np.random.Generator:
    """The generator for `key`: never the same stream for two keys."""
    numbers = tuple(word(part) if isinstance(part, str) else int(part) for part in key)
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(root, spawn_key=numbers)))


@dataclass(frozen=True, slots=True)
class Seeds:
    """Seeds of the envs of one group: env `i` of the group is env `first + i` of its role."""

    root: int
    role: str = "env"
    first: int = 0
    barrier: int = 0
    """Grows at every checkpoint barrier, so that envs which cannot be saved start new episodes from it."""

    def rng(self, env: int, episode: int) -> np.random.Generator:
        """The generator of one episode of one env; replays it exactly."""
        return generator(self.root, self.role, self.first + env, self.barrier, episode)

    def seed(self, env: int, episode: int) -> int:
        """A 31-bit seed of one episode of one env, for simulators that want a number."""
        return int(self.rng(env, episode).integers(2**31))


def mix(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """splitmix64's finaliser: every input bit moves every output bit."""
    mixed = (values ^ (values >> np.uint64(30))) * _FIRST
    mixed ^= mixed >> np.uint64(27)
    mixed *= _SECOND
    mixed ^= mixed >> np.uint64(31)
    return mixed


def row_keys(root: int, ids: NDArray[np.int64], tick: int) -> NDArray[np.uint64]:
    """One key per row: the same row at the same tick draws the same noise wherever it is answered."""
    salt = np.uint64(((root & 0xFFFFFFFF) << 32 | (tick & 0xFFFFFFFF)) * 0x9E3779B97F4A7C15 & 0xFFFFFFFFFFFFFFFF)
    return mix(ids.astype(np.uint64) * _FIRST + salt)


class Rng:
    """Noise for a block of rows, a pure function of the rows' keys and of how often it was drawn."""

    __slots__ = ("_draws", "keys")

    def __init__(self, keys: NDArray[np.uint64]) -> None:
        self.keys = keys
        self._draws = 0

    def uniform(self, columns: int = 1) -> NDArray[np.float64]:
        """[N, columns] in [0, 1)."""
        steps = np.arange(self._draws + 1, self._draws + columns + 1, dtype=np.uint64) * _GOLDEN
        self._draws += columns
        return (mix(self.keys[:, None] + steps) >> np.uint64(11)) * 2.0**-53

    def normal(self, columns: int = 1) -> NDArray[np.float64]:
        """[N, columns] standard normal, by Box and Muller."""
        half = (columns + 1) // 2
        draws = self.uniform(2 * half)
        radius = np.sqrt(-2.0 * np.log1p(-draws[:, :half]))
        angle = 2.0 * np.pi * draws[:, half:]
        return np.concatenate([radius * np.cos(angle), radius * np.sin(angle)], axis=1)[:, :columns]
