"""The Q-network over vectors, in numpy: acts like `QNetwork` without torch."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from srl.api.actions import choose, head_size
from srl.api.policy import Act, Ask, Bounds, EncoderConfig, PolicySpec
from srl.core.errors import SettingError
from srl.core.load import load, option
from srl.core.spec import TreeSpec
from srl.core.tree import Array, Tree, leaves
from srl.nets.numpy_mlp import WIDEST, check_weights, named

LIMIT = 5.0
"""Normalized inputs are clipped to this many standard deviations."""


@dataclass(frozen=True, kw_only=True)
class QConfig(EncoderConfig):
    """Settings of the Q-network."""

    hidden: tuple[int, ...] = option((256, 256), "sizes of the hidden layers", low=1, high=WIDEST)
    activation: Literal["tanh", "relu", "elu"] = option("relu", "activation after every hidden layer")
    layer_norm: bool = option(False, "normalize the outputs of every hidden layer before the activation")
    dueling: bool = option(False, "dueling: split the last hidden layer into one for the state's value and one for advantages")
    atoms: int = option(1, "1: expected returns; 51: a distribution of returns over 51 points (C51)", low=1, high=4096)
    returns: tuple[float, float] = option((-10.0, 10.0), "the smallest and the largest return that the points cover")
    rungs: int = option(1, "number of exploration rates, spread over the envs; see algorithm.ladder", low=1, high=WIDEST)

    def __post_init__(self) -> None:
        check_weights("hidden", self.hidden)
        if not self.returns[0] < self.returns[1]:
            raise SettingError("returns", f"must be [smallest, largest], not {list(self.returns)}")


class NumpyQ:
    """The layers of a `QNetwork`, rows first."""

    memory: TreeSpec = {}
    bounds: ClassVar[Bounds] = "clip"

    def __init__(self, config: Any, spec: PolicySpec) -> None:
        self.config = load(QConfig, config)
        self.reads: tuple[str, ...] = ("obs", "mask") if spec.mask else ("obs",)
        self.version = -1
        self._vectors = [(path.split("/") if path else [], math.prod(leaf.shape)) for path, leaf in leaves(spec.obs)]
        self._actions = head_size(spec.action)
        self._params: dict[str, Array] = {}

    def load(self, params: Tree, version: int) -> None:
        """Take the parameters of a `QNetwork` by name."""
        for name, given in named(params):
            held = self._params.get(name)
            if held is None:
                self._params[name] = np.array(given)
            else:
                held[...] = given
        self.version = version

    def act(self, ask: Ask) -> Act:
        """Actions, and the values that they were chosen by."""
        values = self.values(ask.obs, len(ask.first))
        return Act(action=choose(values, self._params["epsilon"], ask), memory={}, extra={"q": values})

    def values(self, obs: Tree, rows: int) -> Array:
        """Values of all actions `[N, n]`."""
        x = self._layers("tower.body", self._features(obs, rows))
        if self.config.dueling:
            advantage = self._head("advantage", self._layers("tower.advantage_body", x)).reshape(rows, self._actions, -1)
            state = self._head("state", self._layers("tower.state_body", x)).reshape(rows, 1, -1)
            out = advantage - advantage.mean(1, keepdims=True) + state
        else:
            out = self._head("values", x).reshape(rows, self._actions, -1)
        if self.config.atoms == 1:
            values: Array = out[..., 0]
            return values
        out -= out.max(-1, keepdims=True)
        np.exp(out, out=out)
        expected: Array = out @ self._params["points"]
        expected /= out.sum(-1)
        return expected

    def _features(self, obs: Tree, rows: int) -> Array:
        parts = []
        for path, size in self._vectors:
            leaf: Any = obs
            for key in path:
                leaf = leaf[key]
            flat = leaf.reshape(rows, size).astype(np.float32)
            parts.append(flat * np.float32(1.0 / 255.0) if leaf.dtype == np.uint8 else flat)
        x: Array = parts[0] if len(parts) == 1 else np.concatenate(parts, 1)
        if self.config.normalize_obs:
            x -= self._params["encoder.scale.mean"]
            x *= self._params["encoder.scale.scale"]
            np.clip(x, -LIMIT, LIMIT, out=x)
        return x

    def _layers(self, name: str, x: Array) -> Array:
        depth = 0
        while (weight := self._params.get(f"{name}.layers.{depth}.weight")) is not None:
            x = x @ weight.T
            x += self._params[f"{name}.layers.{depth}.bias"]
            if self.config.layer_norm:
                x -= x.mean(1, keepdims=True)
                x /= np.sqrt(np.square(x).mean(1, keepdims=True) + np.float32(1e-5))
                x *= self._params[f"{name}.norms.{depth}.weight"]
                x += self._params[f"{name}.norms.{depth}.bias"]
            self._activate(x)
            depth += 1
        return x

    def _head(self, name: str, x: Array) -> Array:
        out: Array = x @ self._params[f"tower.{name}.weight"].T
        out += self._params[f"tower.{name}.bias"]
        return out

    def _activate(self, x: Array) -> None:
        if self.config.activation == "tanh":
            np.tanh(x, out=x)
        elif self.config.activation == "relu":
            np.maximum(x, 0.0, out=x)
        else:
            np.copyto(x, np.expm1(np.minimum(x, 0.0)), where=x < 0.0)
