"""Log-probability and entropy of given actions, with their gradients by hand. Heads stand features first, `[k, M]`."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, Protocol

import numpy as np

from srl.api.env import ActionSpec, Discrete, MultiBinary, MultiDiscrete
from srl.core.tree import Array
from srl.nets.heads import FORBIDDEN, LOG_2PI, head_size, real_size


class Score(Protocol):
    """One action's part of the heads."""

    def forward(self, heads: Array, action: Any, mask: Any, log_std: Array) -> tuple[Array, Array]:
        """(log-probability, entropy), each `[M]`; `heads` may be overwritten."""
        ...

    def backward(self, log_prob: Array, entropy: Array | None, heads: Array, log_std: Array) -> None:
        """From the gradients of both (None: no entropy in the loss) to those of `heads` and `log_std`, which are filled."""


def make_score(action: ActionSpec) -> Score:
    """The score of an action spec."""
    if isinstance(action, dict):
        return _Joint(action)
    if isinstance(action, Discrete):
        return _Categorical()
    if isinstance(action, MultiDiscrete):
        return _MultiCategorical(action.counts)
    if isinstance(action, MultiBinary):
        return _Bernoulli()
    return _Gaussian()


class _Categorical:
    def forward(self, heads: Array, action: Array, mask: Any, log_std: Array) -> tuple[Array, Array]:
        self._closed = None
        if mask is not None:
            allowed = mask.T
            self._closed = ~allowed & allowed.any(0)
            np.copyto(heads, FORBIDDEN, where=self._closed)
        heads -= heads.max(0)
        chance = np.exp(heads)
        total = chance.sum(0)
        chance /= total
        heads -= np.log(total)
        self._action, self._rows = action, np.arange(len(action))
        self._log, self._chance = heads, chance
        self._entropy = -np.einsum("km,km->m", chance, heads)
        return heads[action, self._rows], self._entropy

    def backward(self, log_prob: Array, entropy: Array | None, heads: Array, log_std: Array) -> None:
        np.multiply(self._chance, -log_prob, out=heads)
        heads[self._action, self._rows] += log_prob
        if entropy is not None:
            heads -= self._chance * (self._log + self._entropy) * entropy
        if self._closed is not None:
            heads[self._closed] = 0.0


class _MultiCategorical:
    def __init__(self, counts: tuple[int, ...]) -> None:
        edges = [int(edge) for edge in np.cumsum((0, *counts))]
        self._parts = [(slice(low, high), _Categorical()) for low, high in pairwise(edges)]

    def forward(self, heads: Array, action: Array, mask: Any, log_std: Array) -> tuple[Array, Array]:
        total: Any = 0.0
        spread: Any = 0.0
        for i, (rows, part) in enumerate(self._parts):
            log_prob, entropy = part.forward(heads[rows], action[:, i], None if mask is None else mask[:, rows], log_std)
            total, spread = total + log_prob, spread + entropy
        return total, spread

    def backward(self, log_prob: Array, entropy: Array | None, heads: Array, log_std: Array) -> None:
        for rows, part in self._parts:
            part.backward(log_prob, entropy, heads[rows], log_std)


class _Bernoulli:
    def forward(self, heads: Array, action: Array, mask: Any, log_std: Array) -> tuple[Array, Array]:
        self._closed = None if mask is None else ~mask.T
        if self._closed is not None:
            np.copyto(heads, FORBIDDEN, where=self._closed)
        tail = np.exp(-np.abs(heads))
        above = np.log1p(tail)
        self._bits = action.T
        self._logits = heads
        self._chance = np.where(heads >= 0, 1.0, tail) / (1.0 + tail)
        soft = above + np.maximum(heads, 0.0)
        log_prob = np.where(self._bits != 0, heads - soft, -soft).sum(0)
        return log_prob, (soft - self._chance * heads).sum(0)

    def backward(self, log_prob: Array, entropy: Array | None, heads: Array, log_std: Array) -> None:
        np.subtract(self._bits, self._chance, out=heads)
        heads *= log_prob
        if entropy is not None:
            heads -= self._chance * (1.0 - self._chance) * self._logits * entropy
        if self._closed is not None:
            heads[self._closed] = 0.0


class _Gaussian:
    def forward(self, heads: Array, action: Array, mask: Any, log_std: Array) -> tuple[Array, Array]:
        self._inverse = np.exp(-log_std)[:, None]
        away = action.reshape(len(action), -1).T - heads
        away *= self._inverse
        self._square = away * away
        self._away = away
        log_prob = self._square.sum(0)
        log_prob *= np.float32(-0.5)
        log_prob -= np.float32(log_std.sum() + 0.5 * LOG_2PI * len(log_std))
        entropy = np.float32(log_std.sum() + 0.5 * (1.0 + LOG_2PI) * len(log_std))
        return log_prob, np.full(len(action), entropy)

    def backward(self, log_prob: Array, entropy: Array | None, heads: Array, log_std: Array) -> None:
        np.multiply(self._away, self._inverse, out=heads)
        heads *= log_prob
        np.matmul(self._square, log_prob, out=log_std)
        log_std -= log_prob.sum()
        if entropy is not None:
            log_std += entropy.sum()


class _Joint:
    def __init__(self, action: dict[str, Any]) -> None:
        self._parts: list[tuple[str, slice, slice, Score]] = []
        row = real = 0
        for key in sorted(action):
            size, reals = head_size(action[key]), real_size(action[key])
            self._parts.append((key, slice(row, row + size), slice(real, real + reals), make_score(action[key])))
            row, real = row + size, real + reals

    def forward(self, heads: Array, action: dict[str, Any], mask: Any, log_std: Array) -> tuple[Array, Array]:
        total: Any = 0.0
        spread: Any = 0.0
        for key, rows, reals, part in self._parts:
            allowed = None if mask is None else mask.get(key)
            log_prob, entropy = part.forward(heads[rows], action[key], allowed, log_std[reals])
            total, spread = total + log_prob, spread + entropy
        return total, spread

    def backward(self, log_prob: Array, entropy: Array | None, heads: Array, log_std: Array) -> None:
        for _, rows, reals, part in self._parts:
            part.backward(log_prob, entropy, heads[rows], log_std[reals])
