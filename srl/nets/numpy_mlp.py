"""The actor-critic over vectors, in numpy: acts like `ActorCritic` where torch would cost 190 MB and twice the time."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np

from srl.api.policy import Act, Ask, Bounds, PolicySpec
from srl.core.load import load
from srl.core.spec import TreeSpec
from srl.core.tree import Array, Tree, leaves
from srl.nets.heads import LIMIT, head_size, real_size
from srl.nets.numpy_dists import Sampler, make_sampler
from srl.nets.settings import ActorCriticConfig

Layer = tuple[Array, Array]
Buffers = tuple[Array, list[Array], list[Array]]


class MLPPolicy:
    """First layers of both towers are one product, the heads too; nothing large is allocated after the first block."""

    memory: TreeSpec = {}
    bounds: ClassVar[Bounds] = "clip"

    def __init__(self, config: Any, spec: PolicySpec) -> None:
        self.config = load(ActorCriticConfig, config)
        self.spec = spec
        self.reads: tuple[str, ...] = ("obs", "mask") if spec.mask else ("obs",)
        self.version = -1
        self._vectors = [(path.split("/") if path else [], math.prod(leaf.shape)) for path, leaf in leaves(spec.obs)]
        self._inputs = sum(size for _, size in self._vectors)
        towers = 1 if self.config.shared else 2
        self._towers = ("actor",) if towers == 1 else ("actor", "critic")
        widths = self.config.hidden
        self._input = np.zeros((self._inputs + 1, towers * (widths[0] if widths else 0)), np.float32)
        self._layers: list[list[Layer]] = [
            [(np.zeros((low, high), np.float32), np.zeros((towers, high), np.float32)) for _ in self._towers]
            for low, high in pairwise(widths)
        ]
        self._last = widths[-1] if widths else self._inputs
        self._logits = head_size(spec.action)
        self._heads = np.zeros((self._logits + 1, towers * self._last if widths else self._inputs), np.float32)
        self._offsets = np.zeros((self._logits + 1, 1), np.float32)
        self._mean: Array | None = None
        self._scale: Array | None = None
        self._log_std = np.zeros((real_size(spec.action),), np.float32)
        self._sampler: Sampler = make_sampler(spec.action)
        self._buffers: dict[int, Buffers] = {}

    def load(self, params: Tree, version: int) -> None:
        """Take the parameters of an `ActorCritic` by name."""
        named = dict(_named(params))
        width = self.config.hidden[0] if self.config.hidden else 0
        for i, tower in enumerate(self._towers):
            if self.config.hidden:
                part = self._input[:, i * width : (i + 1) * width]
                part[:-1] = named[f"{tower}.layers.0.weight"].T
                part[-1] = named[f"{tower}.layers.0.bias"]
            for depth, layer in enumerate(self._layers, 1):
                layer[i][0][...] = named[f"{tower}.layers.{depth}.weight"].T
                layer[0][1][i] = named[f"{tower}.layers.{depth}.bias"]
        for _, _, biases in self._buffers.values():
            for layer, bias in zip(self._layers, biases, strict=True):
                bias[...] = layer[0][1].reshape(-1)
        self._heads[: self._logits, : self._last] = named["logits.weight"]
        self._heads[self._logits, -self._last :] = named["value.weight"][0]
        self._offsets[:-1, 0] = named["logits.bias"]
        self._offsets[-1, 0] = named["value.bias"][0]
        if "normalizer.mean" in named:
            self._mean = np.array(named["normalizer.mean"])
            self._scale = np.array(named["normalizer.scale"])
        if self._log_std.size:
            self._log_std[...] = named["log_std"]
            self._sampler.spread(self._log_std)
        self.version = version

    def act(self, ask: Ask) -> Act:
        """Actions with their log-probability and value; the arrays are the caller's."""
        heads = self.forward(ask.obs, len(ask.first))
        draw = None if ask.greedy else ask.rng
        action, log_prob = self._sampler.draw(heads[:-1], ask.mask, draw)
        return Act(action=action, memory={}, extra={"log_prob": log_prob, "value": heads[-1]})

    def forward(self, obs: Tree, rows: int) -> Array:
        """[logits + 1, N]: the logits, and the value as the last row."""
        inputs, hidden, biases = self._buffers.get(rows) or self._allocate(rows)
        self._read(obs, inputs)
        if not hidden:
            heads: Array = self._heads @ inputs[:, :-1].T
            heads += self._offsets
            return heads
        x = np.matmul(inputs, self._input, out=hidden[0])
        self._activate(x)
        for layer, out, bias in zip(self._layers, hidden[1:], biases, strict=True):
            low, high = layer[0][0].shape
            for i, (weight, _) in enumerate(layer):
                np.matmul(x[:, i * low : (i + 1) * low], weight, out=out[:, i * high : (i + 1) * high])
            out += bias
            x = out
            self._activate(x)
        heads = self._heads @ x.T
        heads += self._offsets
        return heads

    def _read(self, obs: Tree, inputs: Array) -> None:
        rows = inputs[:, :-1]
        if not isinstance(obs, Mapping):
            flat = obs if obs.ndim == 2 else obs.reshape(len(rows), -1)
            if self._mean is None:
                rows[...] = flat
                return
            np.subtract(flat, self._mean, out=rows)
        else:
            start = 0
            for path, size in self._vectors:
                leaf: Any = obs
                for key in path:
                    leaf = leaf[key]
                rows[:, start : start + size] = leaf.reshape(len(rows), size)
                start += size
            if self._mean is None:
                return
            np.subtract(rows, self._mean, out=rows)
        rows *= self._scale
        np.maximum(rows, -LIMIT, out=rows)
        np.minimum(rows, LIMIT, out=rows)

    def _activate(self, x: Array) -> None:
        kind = self.config.activation
        if kind == "tanh":
            np.tanh(x, out=x)
        elif kind == "relu":
            np.maximum(x, 0.0, out=x)
        else:
            np.copyto(x, np.expm1(np.minimum(x, 0.0)), where=x < 0.0)

    def _allocate(self, rows: int) -> Buffers:
        inputs = np.ones((rows, self._inputs + 1), np.float32)
        hidden = [np.empty((rows, len(self._towers) * width), np.float32) for width in self.config.hidden]
        biases = [np.tile(layer[0][1].reshape(-1), (rows, 1)) for layer in self._layers]  # full ones add twice as fast
        self._buffers[rows] = (inputs, hidden, biases)
        return self._buffers[rows]


def _named(tree: Any, prefix: str = "") -> Iterator[tuple[str, Array]]:
    """(name, array): a flat dict with dots in its names, or a nested one."""
    if isinstance(tree, Mapping):
        for key, part in tree.items():
            yield from _named(part, f"{prefix}.{key}" if prefix else key)
    else:
        yield prefix, tree
