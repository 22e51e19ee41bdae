"""Seeds: every generator is a child of one root, keyed by what it is for; noise is a hash of (key, draw)."""

from __future__ import annotations

import zlib
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

_STEP = 0x9E3779B97F4A7C15
_WORD = 0xFFFFFFFFFFFFFFFF
_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_SECOND = np.uint64(0x94D049BB133111EB)
_ELEVEN, _TWENTY_SEVEN, _THIRTY, _THIRTY_ONE = (np.uint64(shift) for shift in (11, 27, 30, 31))


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
        """A 31-bit seed of one episode of one env, for simulators that want a number. A hash: episodes may be short."""
        number = self.root & _WORD
        for part in (word(self.role), self.first + env, self.barrier, episode):
            number = _mix_number(number + (part + 1) * _STEP & _WORD)
        return number >> 33


def _mix_number(number: int) -> int:
    """`mix`, of one Python number."""
    number = (number ^ number >> 30) * int(_FIRST) & _WORD
    number = (number ^ number >> 27) * int(_SECOND) & _WORD
    return number ^ number >> 31


def mix(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """splitmix64's finaliser: every input bit moves every output bit."""
    return _mix(values.copy())


def row_keys(root: int, ids: NDArray[np.int64], tick: int) -> NDArray[np.uint64]:
    """One key per row: the same row at the same tick draws the same noise wherever it is answered."""
    keys = ids.astype(np.uint64)
    keys *= _FIRST
    keys += np.uint64(((root & 0xFFFFFFFF) << 32 | (tick & 0xFFFFFFFF)) * _STEP & _WORD)
    return _mix(keys)


class Rng:
    """Noise for a block of rows, a pure function of the rows' keys and of how often it was drawn."""

    __slots__ = ("_draws", "keys")

    def __init__(self, keys: NDArray[np.uint64]) -> None:
        self.keys = keys
        self._draws = 0

    def uniform(self, columns: int = 1) -> NDArray[np.float64]:
        """[N, columns] in [0, 1)."""
        return self._columns(columns).T

    def normal(self, columns: int = 1) -> NDArray[np.float64]:
        """[N, columns] standard normal, by Box and Muller."""
        half = (columns + 1) // 2
        draws = self._columns(2 * half)
        radius, angle = draws[:half], draws[half:]
        np.negative(radius, out=radius)
        np.log1p(radius, out=radius)
        radius *= -2.0
        np.sqrt(radius, out=radius)
        angle *= 2.0 * np.pi
        sine = np.sin(angle)
        np.cos(angle, out=angle)
        angle *= radius
        sine *= radius
        draws[:half], draws[half:] = angle, sine
        return draws[:columns].T

    def _columns(self, columns: int) -> NDArray[np.float64]:
        """[columns, N] uniform: rows side by side, so that a block of few columns is quick."""
        draw = self._draws + 1
        self._draws += columns
        if columns == 1:
            bits = (self.keys + np.uint64(draw * _STEP & _WORD))[None]
        else:
            bits = self.keys + np.array([[(draw + i) * _STEP & _WORD] for i in range(columns)], np.uint64)
        bits = _mix(bits)
        bits >>= _ELEVEN
        return np.multiply(bits, 2.0**-53, dtype=np.float64)


def _mix(bits: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """`mix`, in place."""
    moved = bits >> _THIRTY
    bits ^= moved
    bits *= _FIRST
    bits ^= np.right_shift(bits, _TWENTY_SEVEN, out=moved)
    bits *= _SECOND
    bits ^= np.right_shift(bits, _THIRTY_ONE, out=moved)
    return bits
