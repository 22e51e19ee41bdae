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
_DRAW = 0xD6E8FEB86659FD93
_TWENTY_SEVEN, _THIRTY, _THIRTY_ONE, _FORTY = (np.uint64(shift) for shift in (27, 30, 31, 40))
_EIGHT = np.uint32(8)
_OF_24_BITS = np.float32(2.0**-24 * (1.0 - 2.0**-22))


def word(name: str) -> int:
    """A stable 32-bit number for a name."""
    return zlib.crc32(name.encode())


def generator(root: int, *key: int | str) -> np.random.Generator:
    """The generator for `key`: never the same stream for two keys."""
    numbers = tuple(word(part) if isinstance(part, str) else int(part) for part in key)
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(root, spawn_key=numbers)))


def to_words(rng: np.random.Generator) -> NDArray[np.uint64]:
    """Where a `generator` stands, as an array that can be saved."""
    state = rng.bit_generator.state
    whole = [state["state"]["state"], state["state"]["inc"]]
    words = [part for number in whole for part in (number >> 64, number & _WORD)]
    return np.array([*words, state["has_uint32"], state["uinteger"]], np.uint64)


def from_words(rng: np.random.Generator, words: NDArray[np.uint64]) -> None:
    """The inverse of `to_words`."""
    high, low, high_step, low_step, has, rest = (int(one) for one in words)
    numbers = {"state": high << 64 | low, "inc": high_step << 64 | low_step}
    rng.bit_generator.state = {"bit_generator": "PCG64", "state": numbers, "has_uint32": has, "uinteger": rest}


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
        return number(self.root, word(self.role), self.first + env, self.barrier, episode) >> 33


def number(root: int, *key: int) -> int:
    """A 64-bit hash of a root and a key: the seed of a generator that is needed often."""
    found = root & _WORD
    for part in key:
        found = _mix_number(found + (part + 1) * _STEP & _WORD)
    return found


def _mix_number(number: int) -> int:
    """`mix`, of one Python number."""
    number = (number ^ number >> 30) * int(_FIRST) & _WORD
    number = (number ^ number >> 27) * int(_SECOND) & _WORD
    return number ^ number >> 31


def mix(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """splitmix64's finaliser: every input bit moves every output bit."""
    return _mix(values.copy())


def row_keys(root: int, ids: NDArray[np.int64], tick: int) -> NDArray[np.uint64]:
    """One key per row: the same row at the same tick draws the same noise wherever it is answered. Draws hash it."""
    keys = ids.astype(np.uint64)
    keys *= _FIRST
    keys += np.uint64(((root & 0xFFFFFFFF) << 32 | (tick & 0xFFFFFFFF)) * _STEP & _WORD)
    return keys


class Rng:
    """Noise for a block of rows, a pure function of the rows' keys and of how often it was drawn."""

    __slots__ = ("_draws", "keys")

    def __init__(self, keys: NDArray[np.uint64]) -> None:
        self.keys = keys
        self._draws = 0

    def uniform(self, columns: int = 1) -> NDArray[np.float32]:
        """[N, columns] in [0, 1), never so near to 1 that a product with it rounds up."""
        words = self._words(columns)
        words >>= _FORTY
        draws = words.view(np.int64).astype(np.float32)
        draws *= _OF_24_BITS
        return draws.T

    def normal(self, columns: int = 1) -> NDArray[np.float32]:
        """[N, columns] standard normal, by Box and Muller: the two halves of a word give two numbers, none beyond 5.8."""
        half = (columns + 1) // 2
        words = self._words(half).view(np.uint32).reshape(half, len(self.keys), 2)
        words >>= _EIGHT
        radius = words[..., 0].astype(np.float32)
        radius += np.float32(1.0)
        radius *= np.float32(2.0**-24)
        np.log(radius, out=radius)
        radius *= np.float32(-2.0)
        np.sqrt(radius, out=radius)
        angle = words[..., 1].astype(np.float32)
        angle *= np.float32(2.0 * np.pi * 2.0**-24)
        draws = np.empty((2 * half, len(self.keys)), np.float32)
        np.cos(angle, out=draws[:half])
        np.sin(angle, out=draws[half:])
        draws[:half] *= radius
        draws[half:] *= radius
        return draws[:columns].T

    def _words(self, columns: int) -> NDArray[np.uint64]:
        """[columns, N] words: rows side by side, so that a block of few columns is quick."""
        draw = self._draws + 1
        self._draws += columns
        if columns == 1:
            return _mix((self.keys + np.uint64(draw * _DRAW & _WORD))[None])
        return _mix(self.keys + np.array([[(draw + i) * _DRAW & _WORD] for i in range(columns)], np.uint64))


def _mix(bits: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """`mix`, in place."""
    moved = bits >> _THIRTY
    bits ^= moved
    bits *= _FIRST
    bits ^= np.right_shift(bits, _TWENTY_SEVEN, out=moved)
    bits *= _SECOND
    bits ^= np.right_shift(bits, _THIRTY_ONE, out=moved)
    return bits
