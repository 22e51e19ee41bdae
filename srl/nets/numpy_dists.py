"""Sampling in numpy, with the same noise and actions as `dists`. Heads are stored features first, `[k, N]`."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any, Protocol

import numpy as np

from srl.api.actions import head_size, real_size
from srl.api.env import ActionSpec, Box, Discrete, MultiBinary, MultiDiscrete
from srl.core.seeds import Rng
from srl.core.tree import Array

FORBIDDEN = -1e9
"""The logit of a masked choice: finite, so that nothing becomes nan."""
LOG_2PI = math.log(2.0 * math.pi)


class Sampler(Protocol):
    """Draws actions from head rows."""

    def spread(self, log_std: Array) -> None:
        """Take the deviations of real numbers."""

    def draw(self, heads: Array, mask: Any, rng: Rng | None) -> tuple[Any, Array]:
        """(actions, log-probabilities); without rng, the most likely actions. `heads` is overwritten."""
        ...


def make_sampler(action: ActionSpec) -> Sampler:
    """The sampler of an action spec."""
    if isinstance(action, dict):
        return _Joint(action)
    if isinstance(action, Discrete):
        return _Categorical()
    if isinstance(action, MultiDiscrete):
        return _MultiCategorical(action.counts)
    if isinstance(action, MultiBinary):
        return _Bernoulli()
    return _Gaussian(action)


class _Categorical:
    def __init__(self) -> None:
        self._rows = np.arange(0)

    def spread(self, log_std: Array) -> None:
        """Discrete actions have no deviation."""

    def draw(self, heads: Array, mask: Any, rng: Rng | None) -> tuple[Array, Array]:
        if mask is not None:
            allowed = mask.T
            np.copyto(heads, FORBIDDEN, where=~allowed & allowed.any(0))
        elif len(heads) == 2 and rng is not None:
            return self._coin(heads, rng)
        heads -= heads.max(0)
        upto = np.exp(heads)
        np.add.accumulate(upto, axis=0, out=upto)
        total = upto[-1]
        if rng is None:
            action = heads.argmax(0)
        else:
            point = rng.uniform(1)[:, 0]
            point *= total
            action = (upto[:-1] <= point).sum(0)
        if len(self._rows) != len(action):
            self._rows = np.arange(len(action))
        log_prob = heads[action, self._rows]
        log_prob -= np.log(total)
        return action, log_prob

    def _coin(self, heads: Array, rng: Rng) -> tuple[Array, Array]:
        """Two choices: the same answer from the difference of the logits, in half the time."""
        away = heads[1] - heads[0]
        np.minimum(away, 80.0, out=away)
        total = np.exp(away)
        total += 1.0
        point = rng.uniform(1)[:, 0]
        point *= total
        second = point >= 1.0
        away *= second
        away -= np.log(total, out=total)
        return second.astype(np.int64), away


class _MultiCategorical:
    def __init__(self, counts: tuple[int, ...]) -> None:
        edges = np.cumsum((0, *counts))
        self._parts = [(slice(low, high), _Categorical()) for low, high in pairwise(edges)]

    def spread(self, log_std: Array) -> None:
        """Discrete actions have no deviation."""

    def draw(self, heads: Array, mask: Any, rng: Rng | None) -> tuple[Array, Array]:
        actions, log_probs = zip(
            *(part.draw(heads[rows], None if mask is None else mask[:, rows], rng) for rows, part in self._parts), strict=True
        )
        return np.stack(actions, -1), sum(log_probs[1:], log_probs[0])


class _Bernoulli:
    def spread(self, log_std: Array) -> None:
        """Bits have no deviation."""

    def draw(self, heads: Array, mask: Any, rng: Rng | None) -> tuple[Array, Array]:
        if mask is not None:
            np.copyto(heads, FORBIDDEN, where=~mask.T)
        if rng is None:
            bits = heads > 0
        else:
            uniform = rng.uniform(len(heads)).T
            away = np.exp(-np.abs(heads))
            bits = uniform < np.where(heads >= 0, 1.0, away) / (1.0 + away)
        logits = np.where(bits, -heads, heads)
        log_prob = -(np.log1p(np.exp(-np.abs(logits))) + np.maximum(logits, 0.0)).sum(0)
        return np.ascontiguousarray(bits.T).astype(np.int8), log_prob


class _Gaussian:
    def __init__(self, action: Box) -> None:
        self._shape = action.shape
        self.spread(np.zeros(math.prod(action.shape), np.float32))

    def spread(self, log_std: Array) -> None:
        self._deviation = np.exp(log_std)[:, None]
        self._top = np.float32(-(log_std + 0.5 * LOG_2PI).sum())

    def draw(self, heads: Array, mask: Any, rng: Rng | None) -> tuple[Array, Array]:
        if rng is None:
            log_prob = np.full(heads.shape[1], self._top)
        else:
            noise = rng.normal(len(heads)).T
            log_prob = np.einsum("kn,kn->n", noise, noise)
            log_prob *= np.float32(-0.5)
            log_prob += self._top
            noise *= self._deviation
            heads += noise
        action = np.ascontiguousarray(heads.T)
        return action.reshape(len(action), *self._shape), log_prob


class _Joint:
    def __init__(self, action: dict[str, Any]) -> None:
        self._parts: list[tuple[str, slice, slice, Sampler]] = []
        row = real = 0
        for key in sorted(action):
            size, reals = head_size(action[key]), real_size(action[key])
            self._parts.append((key, slice(row, row + size), slice(real, real + reals), make_sampler(action[key])))
            row, real = row + size, real + reals

    def spread(self, log_std: Array) -> None:
        for _, _, reals, part in self._parts:
            if reals.stop > reals.start:
                part.spread(log_std[reals])

    def draw(self, heads: Array, mask: Any, rng: Rng | None) -> tuple[dict[str, Any], Array]:
        actions, total = {}, np.zeros(heads.shape[1], np.float32)
        for key, rows, _, part in self._parts:
            actions[key], log_prob = part.draw(heads[rows], None if mask is None else mask.get(key), rng)
            total += log_prob
        return actions, total
