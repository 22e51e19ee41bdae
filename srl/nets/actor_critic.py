"""The usual actor-critic: towers over vectors, a convolutional encoder over images, heads for every action spec."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from srl.api.actions import head_size, real_size
from srl.api.batch import Batch
from srl.api.inputs import SCALE, is_picture
from srl.api.neural import Heads, NeuralPolicy, tensor_of
from srl.api.policy import Act, Ask, Bounds, PolicySpec
from srl.core.spec import Leaf
from srl.core.tree import leaves, map_tree
from srl.nets.cached import Cached
from srl.nets.dists import make_dist
from srl.nets.mlp import Mlp, linear, value_layer
from srl.nets.normalizer import Normalizer
from srl.nets.numpy_mlp import ActorCriticConfig, MLPPolicy
from srl.nets.products import runs_in_numpy
from srl.nets.towers import Towers
from srl.nets.vision import PictureEncoder


class ActorCritic(NeuralPolicy):
    """Heads: logits (means of Box actions), value, and log_std."""

    Config = ActorCriticConfig
    bounds: ClassVar[Bounds] = "clip"

    def __init__(self, config: ActorCriticConfig, spec: PolicySpec) -> None:
        super().__init__(config, spec)
        self.reads = ("obs", "mask") if spec.mask else ("obs",)
        self.vectors = {path: leaf.shape for path, leaf in leaves(spec.obs) if not is_picture(leaf, config.encoder)}
        self.pictures = [path for path, leaf in leaves(spec.obs) if is_picture(leaf, config.encoder)]
        sizes = {path: math.prod(leaf.shape) for path, leaf in leaves(spec.obs)}
        inputs = sum(sizes[path] for path in self.vectors)
        self.normalizer = Normalizer(inputs) if config.normalize_obs and inputs else None
        self.encoders = nn.ModuleList(PictureEncoder(_leaf(spec.obs, path), config) for path in self.pictures)
        self._features = inputs = inputs + config.features * len(self.pictures)
        tower = (inputs, *config.layers(pictures_only=not self.vectors))
        self.actor = Mlp(tower, config.activation)
        self.critic = None if config.shared or len(tower) == 1 else Mlp(tower, config.activation)
        self.logits = linear(tower[-1], head_size(spec.action), 0.01)
        self.value = value_layer(tower[-1])
        towers = [(self.actor, [self.logits, self.value])]
        if self.critic is not None:
            towers = [(self.actor, [self.logits]), (self.critic, [self.value])]
        self._towers: Any = Towers(*towers)
        self._cached: Cached[MLPPolicy] = Cached()
        """What follows the encoders, in numpy."""
        self._compiled: Any = torch.compile(self._forward) if config.compile else None
        reals = real_size(spec.action)
        self.log_std = nn.Parameter(torch.full((reals,), config.log_std)) if reals else None

    def unroll(self, batch: Batch) -> Heads:
        if not torch.is_inference_mode_enabled():
            self._cached.forget()  # the weights are about to be trained
        logits, value = self._forward(batch.obs) if self._compiled is None else self._compiled(batch.obs)
        heads: Heads = {"logits": logits, "value": value}
        if self.log_std is not None:
            heads["log_std"] = self.log_std
        return heads

    @torch.inference_mode()
    def act(self, ask: Ask) -> Act:
        """Images are encoded by torch, and on CPU numpy does the rest, which is quicker to call for a few rows."""
        on_cpu = self.logits.weight.device.type == "cpu"
        if not self.pictures or not on_cpu or self._compiled is not None or type(self) is not ActorCritic:
            return super().act(ask)
        features = self.encode(map_tree(tensor_of, ask.obs))
        layers = [self, self.logits, self.value, *self.actor.layers, *(self.critic.layers if self.critic is not None else ())]
        return self._cached.of(layers, lambda _: self._in_numpy()).act(replace(ask, obs=features.numpy()))

    def dist(self, heads: Heads, mask: Any = None) -> Any:
        return make_dist(self.spec.action, heads["logits"], mask, heads.get("log_std"))

    def encode(self, obs: Any) -> Tensor:
        """The features `[T, B, inputs]` of observations."""
        parts = []
        if self.vectors:
            vector = self._vector(obs)
            parts.append(vector if self.normalizer is None else self.normalizer(vector))
        for path, encoder in zip(self.pictures, self.encoders, strict=True):
            parts.append(encoder(_leaf(obs, path)))
        return parts[0] if len(parts) == 1 else torch.cat(parts, -1)

    def observe(self, batch: Batch) -> None:
        if self.normalizer is not None:
            rows = self._vector(batch.obs)[: batch.lead[0]]
            self.normalizer.observe(rows[batch.valid], batch.origin.ranks)

    def numpy_twin(self) -> str | None:
        return "srl.nets.numpy_mlp:MLPPolicy" if type(self) is ActorCritic and not self.pictures else None

    def _in_numpy(self) -> MLPPolicy:
        """Towers and heads over the features."""
        hidden = self.config.layers(pictures_only=not self.vectors)
        config = replace(self.config, hidden=hidden, normalize_obs=False)
        made = MLPPolicy(config, replace(self.spec, obs=Leaf((self._features,), "float32")))
        made.load({name: one.numpy() for name, one in self.state_dict().items() if not name.startswith("normalizer")}, 0)
        return made

    def _forward(self, obs: Any) -> tuple[Tensor, Tensor]:
        features = self.encode(obs)
        return self._towers(features) if runs_in_numpy(features) else self._layers(features)

    def _layers(self, features: Tensor) -> tuple[Tensor, Tensor]:
        acting = self.actor(features)
        judging = acting if self.critic is None else self.critic(features)
        return self.logits(acting), self.value(judging).squeeze(-1)

    def _vector(self, obs: Any) -> Tensor:
        parts = []
        for path, row in self.vectors.items():
            leaf = _leaf(obs, path)
            if leaf.dtype != torch.float32 or len(row) != 1:
                scale = SCALE if leaf.dtype == torch.uint8 else 1.0
                leaf = leaf.reshape(*leaf.shape[: leaf.ndim - len(row)], math.prod(row)).float() * scale
            parts.append(leaf)
        return parts[0] if len(parts) == 1 else torch.cat(parts, -1)


def _leaf(tree: Any, path: str) -> Any:
    for key in path.split("/") if path else ():
        tree = tree[key]
    return tree
