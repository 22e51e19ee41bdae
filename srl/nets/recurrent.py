"""A recurrent actor-critic: layers over vectors, a GRU or LSTM, heads for every action spec."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from srl.api.actions import head_size, real_size
from srl.api.batch import Batch
from srl.api.inputs import SCALE, is_picture
from srl.api.neural import Heads, NeuralPolicy
from srl.api.policy import Bounds, EncoderConfig, PolicySpec
from srl.core.errors import UserError
from srl.core.load import option
from srl.core.machine import in_half
from srl.core.spec import TreeSpec
from srl.core.tree import leaves
from srl.nets.cells import CELLS
from srl.nets.dists import make_dist
from srl.nets.mlp import Mlp, linear, value_layer
from srl.nets.numpy_mlp import WIDEST, check_weights
from srl.nets.products import runs_in_numpy
from srl.nets.running import RunningScale
from srl.nets.towers import Towers
from srl.nets.vision import PictureEncoder


@dataclass(frozen=True, kw_only=True)
class RecurrentConfig(EncoderConfig):
    """Settings of the recurrent actor-critic."""

    hidden: tuple[int, ...] = option((64,), "sizes of the layers before the cell", low=1, high=WIDEST)
    cell: Literal["gru", "lstm", "none"] = option("gru", "recurrent cell")
    width: int = option(64, "width of the cell", low=1, high=WIDEST)
    activation: Literal["tanh", "relu", "elu"] = option("tanh", "activation after every hidden layer")
    shared: bool | None = option(None, "share one tower between actor and critic; default: true unless critic_state is set")
    critic_state: bool = option(False, "the critic also reads the env's state")
    half: Literal["auto"] | bool = option(False, "matrix products of the cell in bfloat16; auto: on CPUs that support it")
    log_std: float = option(0.0, "initial log standard deviation of Box actions; learned")

    def __post_init__(self) -> None:
        check_weights("hidden", (*self.hidden, self.width, self.width))


class Recurrent(NeuralPolicy):
    """Heads: logits (means of Box actions), value, memory, and log_std."""

    Config = RecurrentConfig
    bounds: ClassVar[Bounds] = "clip"

    def __init__(self, config: RecurrentConfig, spec: PolicySpec) -> None:
        super().__init__(config, spec)
        if config.critic_state and spec.state is None:
            raise UserError("policy.critic_state requires an env with a state", ("found", "an env without one"), code="E10")
        if config.critic_state and config.shared:
            raise UserError("policy.critic_state requires policy.shared=false", ("try", "policy.shared=false"), code="E10")
        self.reads = ("obs", *(["mask"] if spec.mask else []), *(["state"] if config.critic_state else []))
        self.shared = not config.critic_state if config.shared is None else config.shared
        self.encoder = Encoder(spec.obs, config)
        self.state_encoder = Encoder(spec.state, config) if config.critic_state and spec.state is not None else None
        sizes = {"actor": self.encoder.size}
        if not self.shared:
            sizes["critic"] = self.encoder.size + (self.state_encoder.size if self.state_encoder is not None else 0)
        bodies = {name: Mlp((size, *config.hidden), config.activation) for name, size in sizes.items()}
        self.towers = nn.ModuleDict(bodies)
        self.cells = nn.ModuleDict(
            {
                name: CELLS[config.cell]((size, *config.hidden)[-1], config.width, half=in_half(config.half))
                for name, size in sizes.items()
            }
        )
        if config.cell != "none":
            self.memory = {name: CELLS[config.cell].leaf_of(config.width) for name in sizes}
        self.logits = linear(config.width, head_size(spec.action), 0.01)
        self.value = value_layer(config.width)
        none = Mlp((config.width,), config.activation)
        self._both = Towers((none, [self.logits, self.value]))
        self._policy_head, self._value_head = Towers((none, [self.logits])), Towers((none, [self.value]))
        self._bodies = Towers(*((body, []) for body in bodies.values())) if config.hidden and self.state_encoder is None else None
        reals = real_size(spec.action)
        self.log_std = nn.Parameter(torch.full((reals,), config.log_std)) if reals else None

    def unroll(self, batch: Batch) -> Heads:
        first, lead = batch.first, batch.first.shape
        memory: dict[str, Any] = {}
        outs = []
        for name, x in self._features(batch).items():
            y, memory[name] = self._remember(name, x, first, batch.memory, batch.detach_at)
            outs.append(y)
        acting, judging = outs[0], outs[-1]
        logits, value = self._heads(acting, judging)
        heads: Heads = {
            "logits": logits.view(*lead, -1),
            "value": value.view(lead),
            "memory": {name: leaf.view(*lead[1:], -1) for name, leaf in memory.items()} if self.memory != {} else {},
        }
        if self.log_std is not None:
            heads["log_std"] = self.log_std
        return heads

    def dist(self, heads: Heads, mask: Any = None) -> Any:
        return make_dist(self.spec.action, heads["logits"], mask, heads.get("log_std"))

    def observe(self, batch: Batch) -> None:
        self.encoder.observe(batch.obs, batch)
        if self.state_encoder is not None:
            self.state_encoder.observe(batch.state, batch)

    def _heads(self, acting: Tensor, judging: Tensor) -> tuple[Tensor, Tensor]:
        if not runs_in_numpy(acting):
            return self.logits(acting), self.value(judging)
        if acting is judging:
            logits, value = self._both(acting)
        else:
            (logits,), (value,) = self._policy_head(acting), self._value_head(judging)
        return logits, value

    def _features(self, batch: Batch) -> dict[str, Tensor]:
        """What enters each cell, `[T, B, ...]`."""
        x = self.encoder(batch.obs)
        if self._bodies is not None and runs_in_numpy(x):
            return dict(zip(self.towers, self._bodies(x), strict=True))
        known = x if self.state_encoder is None else torch.cat([x, self.state_encoder(batch.state)], -1)
        return {name: tower(known if name == "critic" else x) for name, tower in self.towers.items()}

    def _remember(self, name: str, x: Tensor, first: Tensor, memory: Any, stop: Tensor | None) -> tuple[Tensor, Any]:
        """Features after the cell `[T, B, width]`, and the recurrent state. Each agent of a joint batch is one sequence."""
        x = x.flatten(1, -2)
        restarts = first.flatten(1)
        before = memory[name].reshape(restarts.shape[1], -1) if self.memory != {} else None
        y, after = self.cells[name](x, before, restarts, None if stop is None else stop.flatten(1))
        return y, after


class Encoder(nn.Module):
    """The leaves of a tree as one vector: images through convolutions, everything else concatenated."""

    def __init__(self, spec: TreeSpec, config: EncoderConfig) -> None:
        super().__init__()
        pictures = {path: leaf for path, leaf in leaves(spec) if is_picture(leaf, config.encoder)}
        self._vectors = [(path, leaf.shape) for path, leaf in leaves(spec) if path not in pictures]
        self._pictures = list(pictures)
        numbers = sum(math.prod(shape) for _, shape in self._vectors)
        self.scale = RunningScale(numbers, decay=config.decay) if config.normalize_obs and numbers else None
        self.pictures = nn.ModuleList(PictureEncoder(leaf, config) for leaf in pictures.values())
        self.size = numbers + config.features * len(self._pictures)

    def forward(self, tree: Any) -> Tensor:
        """`[..., size]`."""
        found = dict(leaves(tree))
        parts = []
        if self._vectors:
            vector = self._vector(found)
            parts.append(vector if self.scale is None else self.scale(vector))
        parts += [encoder(found[path]) for path, encoder in zip(self._pictures, self.pictures, strict=True)]
        return parts[0] if len(parts) == 1 else torch.cat(parts, -1)

    def observe(self, tree: Any, batch: Batch) -> None:
        """Take the valid rows of a batch."""
        if self.scale is not None:
            rows = self._vector(dict(leaves(tree)))[: batch.lead[0]]
            self.scale.observe(rows[batch.valid], batch.origin.ranks)

    def _vector(self, found: dict[str, Tensor]) -> Tensor:
        flat = []
        for path, shape in self._vectors:
            x = found[path]
            rows = x.reshape(*x.shape[: x.ndim - len(shape)], math.prod(shape)).float()
            flat.append(rows * SCALE if x.dtype == torch.uint8 else rows)
        return flat[0] if len(flat) == 1 else torch.cat(flat, -1)
