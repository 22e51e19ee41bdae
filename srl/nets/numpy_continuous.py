"""Policies for bounded real actions, in numpy: they act like those of `continuous` without torch."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar, Literal

import numpy as np

from srl.api.actions import real_size
from srl.api.policy import Act, Ask, Bounds, PolicySpec
from srl.core.load import load, option
from srl.core.spec import TreeSpec
from srl.core.tree import Array, Tree, leaves
from srl.nets.numpy_mlp import LIMIT, WIDEST, check_weights

LOG_STD = (-20.0, 2.0)
"""Bounds of the log deviation, as in the paper's code."""
_GOLDEN = (math.sqrt(5.0) - 1.0) / 2.0


@dataclass(frozen=True, kw_only=True)
class ContinuousConfig:
    """Sizes of the policies for bounded real actions."""

    hidden: tuple[int, ...] = option((256, 256), "sizes of the hidden layers", low=1, high=WIDEST)
    activation: Literal["relu", "tanh", "elu"] = option("relu", "activation after every hidden layer")
    normalize_obs: bool = option(False, "normalize observations by running mean and variance, for the critics too")
    half: Literal["auto"] | bool = option(False, "matrix products of training in bfloat16; auto: on CPUs that support it")

    def __post_init__(self) -> None:
        check_weights("hidden", self.hidden)


def deviations(low: float, high: float, ids: Array) -> Array:
    """`[N]` float32 between `low` and `high`, evenly in their logarithm for any number of rows: a noise ladder."""
    if low == high:
        return np.full(len(ids), high, np.float32)
    place = (ids * _GOLDEN) % 1.0  # of any run of numbers, none are near each other
    spread: Array = (high * (max(low, 1e-6) / high) ** place).astype(np.float32)
    return spread


class _NumpyContinuous:
    """One tower. Arrays are stored features first."""

    memory: TreeSpec = {}
    bounds: ClassVar[Bounds] = "affine"
    reads: tuple[str, ...] = ("obs",)
    outputs = 1

    def __init__(self, config: Any, spec: PolicySpec) -> None:
        self.config = load(ContinuousConfig, config)
        self.spec = spec
        self.version = -1
        self.size = real_size(spec.action)
        self._leaves = [(path.split("/") if path else [], math.prod(leaf.shape)) for path, leaf in leaves(spec.obs)]
        sizes = (sum(size for _, size in self._leaves), *self.config.hidden, self.outputs * self.size)
        self._layers = [(np.zeros((high, low), np.float32), np.zeros((high, 1), np.float32)) for low, high in pairwise(sizes)]
        self._mean: Array | None = None
        self._scale: Array | None = None
        self._random = True

    def load(self, params: Tree, version: int) -> None:
        """Take the parameters of the module by name."""
        named = params
        assert isinstance(named, Mapping)
        for i, (weight, bias) in enumerate(self._layers):
            weight[...] = named[f"tower.weights.{i}"][0]
            bias[...] = named[f"tower.biases.{i}"][0][:, None]
        if "normalizer.mean" in named:
            self._mean = np.array(named["normalizer.mean"])[:, None]
            self._scale = np.array(named["normalizer.scale"])[:, None]
        self._random = float(named["random"]) > 0.0
        self.version = version

    def act(self, ask: Ask) -> Act:
        """Actions `[N, ...]`; the arrays are the caller's."""
        rows = len(ask.first)
        if self._random and not ask.greedy:
            action = ask.rng.uniform(self.size)
            action = action * np.float32(2.0) - np.float32(1.0)
        else:
            action = self.action(self._head(ask.obs, rows), ask).T
        return Act(action=np.ascontiguousarray(action).reshape(rows, *self.spec.action.shape), memory={}, extra={})  # type: ignore[union-attr]

    def action(self, head: Array, ask: Ask) -> Array:
        """`[size, N]` from the outputs of the tower."""
        raise NotImplementedError

    def _head(self, obs: Tree, rows: int) -> Array:
        parts = []
        for path, size in self._leaves:
            leaf: Any = obs
            for key in path:
                leaf = leaf[key]
            part = leaf.reshape(rows, size).T.astype(np.float32)
            parts.append(part * np.float32(1.0 / 255.0) if leaf.dtype == np.uint8 else part)
        x: Array = parts[0] if len(parts) == 1 else np.concatenate(parts)
        if self._mean is not None:
            x = np.clip((x - self._mean) * self._scale, -LIMIT, LIMIT)
        for i, (weight, bias) in enumerate(self._layers):
            x = np.matmul(weight, x)
            x += bias
            if i < len(self._layers) - 1:
                self._activate(x)
        return x

    def _activate(self, x: Array) -> None:
        kind = self.config.activation
        if kind == "relu":
            np.maximum(x, 0.0, out=x)
        elif kind == "tanh":
            np.tanh(x, out=x)
        else:
            np.copyto(x, np.expm1(np.minimum(x, 0.0)), where=x < 0.0)


class NumpySquashedGaussian(_NumpyContinuous):
    """The twin of `SquashedGaussian`."""

    outputs = 2

    def action(self, head: Array, ask: Ask) -> Array:
        mean, log_std = head[: self.size], head[self.size :]
        if not ask.greedy:
            mean += np.exp(np.clip(log_std, *LOG_STD)) * ask.rng.normal(self.size).T
        action: Array = np.tanh(mean)
        return action


class NumpyDeterministic(_NumpyContinuous):
    """The twin of `Deterministic`."""

    def load(self, params: Tree, version: int) -> None:
        super().load(params, version)
        assert isinstance(params, Mapping)
        self._low, self._high = (float(one) for one in params["noise"])

    def action(self, head: Array, ask: Ask) -> Array:
        action: Array = np.tanh(head)
        if not ask.greedy:
            action += deviations(self._low, self._high, ask.ids) * ask.rng.normal(self.size).T
            np.clip(action, -1.0, 1.0, out=action)
        return action
