"""The actor-critic over vectors, in numpy: acts like `ActorCritic` where torch would cost 190 MB and twice the time."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from srl.api.actions import head_size, real_size
from srl.api.policy import Act, Ask, Bounds, PictureConfig, PolicySpec
from srl.core.errors import SettingError
from srl.core.load import load, option
from srl.core.spec import TreeSpec
from srl.core.tree import Array, Tree, leaves

if TYPE_CHECKING:
    from srl.nets.numpy_dists import Sampler

BLOCK = 128
"""Rows processed together, so that intermediate results stay in the L2 cache."""

Buffers = tuple[Array, list[Array], list[Array]]

WIDEST = 1 << 16
"""The largest size of a layer."""
_MOST = 1 << 28
"""Weights between the layers of one tower: 1 GiB."""


def check_weights(setting: str, widths: Sequence[int]) -> None:
    """Reject layers that are too large for any machine before they are built."""
    if (weights := sum(a * b for a, b in itertools.pairwise(widths))) > _MOST:
        raise SettingError(setting, f"must not make more than {_MOST:,} weights, and {list(widths)} makes {weights:,}")


@dataclass(frozen=True, kw_only=True)
class ActorCriticConfig(PictureConfig):
    """Sizes of the actor-critic."""

    hidden: tuple[int, ...] | None = option(
        None, "sizes of the hidden layers; null: [64, 64], or none if the observation is only images", low=1, high=WIDEST
    )
    activation: Literal["tanh", "relu", "elu"] = option("tanh", "activation after every hidden layer")
    shared: bool = option(False, "share one tower between actor and critic")
    normalize_obs: bool = option(False, "normalize vector observations by running mean and variance")
    log_std: float = option(0.0, "initial log standard deviation of Box actions; learned")
    compile: bool = option(False, "use torch.compile: worthwhile for images, not for plain towers")

    def __post_init__(self) -> None:
        check_weights("hidden", self.hidden or ())

    def layers(self, *, pictures_only: bool = False) -> tuple[int, ...]:
        """Sizes of the hidden layers."""
        return (() if pictures_only else (64, 64)) if self.hidden is None else self.hidden


LIMIT = 10.0
"""Normalized inputs are clipped to this many standard deviations."""


class MLPPolicy:
    """Arrays are stored features first, so that each tower is one contiguous block. The first layers of both towers are one
    product, and so are the heads. Nothing large is allocated after the first block."""

    memory: TreeSpec = {}
    bounds: ClassVar[Bounds] = "clip"

    def __init__(self, config: Any, spec: PolicySpec) -> None:
        self.config = load(ActorCriticConfig, config)
        self.spec = spec
        self.reads: tuple[str, ...] = ("obs", "mask") if spec.mask else ("obs",)
        self.version = -1
        self._vectors = [(path.split("/") if path else [], math.prod(leaf.shape)) for path, leaf in leaves(spec.obs)]
        self._inputs = sum(size for _, size in self._vectors)
        self._towers = ("actor",) if self.config.shared else ("actor", "critic")
        towers, widths = len(self._towers), self.config.layers()
        self._input = np.zeros((towers * (widths[0] if widths else 0), self._inputs + 1), np.float32)
        self._layers = [np.zeros((towers, high, low), np.float32) for low, high in pairwise(widths)]
        self._biases = [np.zeros((towers * high, 1), np.float32) for high in widths[1:]]
        self._last = widths[-1] if widths else self._inputs
        self._logits = head_size(spec.action)
        self._heads = np.zeros((self._logits + 1, towers * self._last if widths else self._inputs), np.float32)
        self._offsets = np.zeros((self._logits + 1, 1), np.float32)
        self._mean: Array | None = None
        self._scale: Array | None = None
        self._log_std = np.zeros((real_size(spec.action),), np.float32)
        from srl.nets.numpy_dists import make_sampler  # the twins of other networks take their limits from here, and no more

        self._sampler: Sampler = make_sampler(spec.action)
        self._buffers: dict[int, Buffers] = {}

    def load(self, params: Tree, version: int) -> None:
        """Take the parameters of an `ActorCritic` by name."""
        given = dict(named(params))
        for i, tower in enumerate(self._towers):
            for depth, width in enumerate(self.config.layers()):
                weight, bias = given[f"{tower}.layers.{depth}.weight"], given[f"{tower}.layers.{depth}.bias"]
                part = slice(i * width, (i + 1) * width)
                if depth == 0:
                    self._input[part, :-1], self._input[part, -1] = weight, bias
                else:
                    self._layers[depth - 1][i], self._biases[depth - 1][part, 0] = weight, bias
        for _, _, biases in self._buffers.values():
            for full, bias in zip(biases, self._biases, strict=True):
                full[...] = bias
        self._heads[: self._logits, : self._last] = given["logits.weight"]
        mean, deviation = given["value.moments"]
        self._heads[self._logits, -self._last :] = deviation * given["value.weight"][0]
        self._offsets[:-1, 0] = given["logits.bias"]
        self._offsets[-1, 0] = mean + deviation * given["value.bias"][0]
        if "normalizer.mean" in given:
            self._mean = np.array(given["normalizer.mean"])[:, None]
            self._scale = np.array(given["normalizer.scale"])[:, None]
        if self._log_std.size:
            self._log_std[...] = given["log_std"]
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
        heads = np.empty((self._logits + 1, rows), np.float32)
        vectors = [leaf.reshape(rows, size) for leaf, size in self._parts(obs)]
        for start in range(0, rows, BLOCK):
            part = slice(start, min(start + BLOCK, rows))
            np.matmul(self._heads, self._hidden(vectors, part), out=heads[:, part])
        heads += self._offsets
        return heads

    def _hidden(self, vectors: list[Array], part: slice) -> Array:
        """The inputs of the heads, `[features, rows]`."""
        inputs, hidden, biases = self._buffers.get(part.stop - part.start) or self._allocate(part.stop - part.start)
        self._read(vectors, part, inputs[:-1])
        if not hidden:
            return inputs[:-1]
        x = np.matmul(self._input, inputs, out=hidden[0])
        self._activate(x)
        for layer, out, bias in zip(self._layers, hidden[1:], biases, strict=True):
            _, high, low = layer.shape
            for i, weight in enumerate(layer):
                np.matmul(weight, x[i * low : (i + 1) * low], out=out[i * high : (i + 1) * high])
            out += bias
            x = out
            self._activate(x)
        return x

    def _parts(self, obs: Tree) -> Iterator[tuple[Array, int]]:
        for path, size in self._vectors:
            leaf: Any = obs
            for key in path:
                leaf = leaf[key]
            yield leaf, size

    def _read(self, vectors: list[Array], part: slice, inputs: Array) -> None:
        start = 0
        for vector in vectors:
            size = vector.shape[1]
            columns = inputs[start : start + size]
            columns[...] = vector[part].T
            if vector.dtype == np.uint8:
                columns *= np.float32(1.0 / 255.0)
            start += size
        if self._mean is not None:
            inputs -= self._mean
            inputs *= self._scale
            np.maximum(inputs, -LIMIT, out=inputs)
            np.minimum(inputs, LIMIT, out=inputs)

    def _activate(self, x: Array) -> None:
        kind = self.config.activation
        if kind == "tanh":
            np.tanh(x, out=x)
        elif kind == "relu":
            np.maximum(x, 0.0, out=x)
        else:
            np.copyto(x, np.expm1(np.minimum(x, 0.0)), where=x < 0.0)

    def _allocate(self, rows: int) -> Buffers:
        inputs = np.ones((self._inputs + 1, rows), np.float32)
        hidden = [np.empty((len(self._towers) * width, rows), np.float32) for width in self.config.layers()]
        biases = [np.tile(bias, (1, rows)) for bias in self._biases]  # full ones add twice as fast
        self._buffers[rows] = (inputs, hidden, biases)
        return self._buffers[rows]


def named(tree: Any, prefix: str = "") -> Iterator[tuple[str, Array]]:
    """(name, array): a flat dict with dots in its names, or a nested one."""
    if isinstance(tree, Mapping):
        for key, part in tree.items():
            yield from named(part, f"{prefix}.{key}" if prefix else key)
    else:
        yield prefix, tree
