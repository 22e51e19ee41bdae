"""The hide-and-seek network (Baker et al. 2020): entities of several kinds, attention, a recurrent cell, an omniscient critic."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TypeVar

import torch
from torch import Tensor, nn

from srl.api.actions import head_size, real_size
from srl.api.batch import Batch
from srl.api.neural import Heads, NeuralPolicy
from srl.api.policy import Bounds, PolicySpec
from srl.api.value_head import ValueHead
from srl.core.errors import UserError
from srl.core.load import option
from srl.core.machine import in_half
from srl.core.spec import Leaf
from srl.core.tree import leaves
from srl.nets.attention import EntityAttention, seen_mean
from srl.nets.cells import CELLS
from srl.nets.dists import make_dist
from srl.nets.numpy_mlp import WIDEST
from srl.nets.products import product
from srl.nets.rays import RayEncoder
from srl.nets.running import RunningScale

_L = TypeVar("_L", bound=nn.Linear)
SIZES = {"small": (64, 128, 128, 4), "full": (128, 256, 256, 4)}
"""Widths of entities, of the layer behind them and of the memory; heads."""


@dataclass(frozen=True, kw_only=True)
class EntityConfig:
    """Sizes, and the roles of the observations."""

    size: Literal["small", "full"] = option("small", "small: widths 64/128/128; full: 128/256/256 as in the paper")
    embed: int | None = option(None, "width of entity embeddings; null: by size", low=1, high=WIDEST)
    hidden: int | None = option(None, "width of the layer before the cell; null: by size", low=1, high=WIDEST)
    width: int | None = option(None, "width of the cell; null: by size", low=1, high=WIDEST)
    heads: int | None = option(None, "attention heads; null: 4", low=1, high=1024)
    cell: Literal["lstm", "gru", "none"] = option("lstm", "recurrent cell")
    normalize_obs: bool = option(True, "normalize inputs by running statistics")
    decay: float = option(0.99999, "decay of these statistics per batch", low=0, below=1)
    self_keys: tuple[str, ...] = option(("self",), "keys of observations of the agent itself")
    ray_keys: tuple[str, ...] = option(("lidar",), "keys of lidar observations")
    entities: tuple[str, ...] = option((), "keys of lists of entities; default: all keys with a mask")
    seen: str = option("mask_", "prefix of mask keys: entities that the agent sees")
    exists: str = option("exist_", "prefix of mask keys for the critic: entities that exist")
    relative: int = option(0, "number of leading features of entities to make relative to the agent's", low=0)
    critic_state: bool = option(False, "the critic also reads the env's state")
    half: Literal["auto"] | bool = option(False, "matrix products in bfloat16; auto: on CPUs that support it")
    log_std: float = option(0.0, "initial log standard deviation of Box actions; learned")


class EntityPolicy(NeuralPolicy):
    """Heads: logits (means of Box actions), value, memory, and log_std. Two towers; only the critic sees hidden entities."""

    Config = EntityConfig
    bounds: ClassVar[Bounds] = "clip"

    def __init__(self, config: EntityConfig, spec: PolicySpec) -> None:
        super().__init__(config, spec)
        self.layout = layout = _Layout(config, spec)
        self.reads = ("obs", *(["mask"] if spec.mask else []), *(["state"] if config.critic_state else []))
        self.scales = nn.ModuleDict(
            {key: RunningScale(size, decay=config.decay) for key, size in layout.sizes.items()} if config.normalize_obs else {}
        )
        self.actor = Tower(config, layout, layout.own)
        self.critic = Tower(config, layout, layout.own + (layout.sizes["state"] if config.critic_state else 0))
        if config.cell != "none":
            self.memory = dict.fromkeys(("actor", "critic"), CELLS[config.cell].leaf_of(self.actor.width))
        self.logits = _head(nn.Linear(self.actor.width, head_size(spec.action)), 0.01)
        self.value = _head(ValueHead(self.critic.width), 1.0)
        reals = real_size(spec.action)
        self.log_std = nn.Parameter(torch.full((reals,), config.log_std)) if reals else None

    def unroll(self, batch: Batch) -> Heads:
        layout, first, obs = self.layout, batch.first, batch.obs
        lead = first.shape
        first = first.reshape(lead[0], -1)
        own, rays, lists = self._inputs(obs, first.numel())
        seen, there = (layout.masks(obs, key, first.numel()) for key in (layout.seen, layout.there))
        known = own
        if self.config.critic_state:
            known = torch.cat([own, self._scaled("state", layout.flat_state(batch.state).reshape(first.numel(), -1))], -1)
        memory = {name: leaf.reshape(first.shape[1], -1) for name, leaf in batch.memory.items()}
        stop = None if batch.detach_at is None else batch.detach_at.flatten(1)
        acting, actor = self.actor(own, rays, lists, seen, first, memory.get("actor"), stop)
        judging, critic = self.critic(known, rays, lists, there, first, memory.get("critic"), stop)
        heads: Heads = {
            "logits": self.logits(acting).view(*lead, -1),
            "value": self.value(judging).view(lead),
            "memory": {"actor": actor, "critic": critic} if memory else {},
        }
        if len(lead) > 2:
            heads["memory"] = {name: leaf.view(*lead[1:], -1) for name, leaf in heads["memory"].items()}
        if self.log_std is not None:
            heads["log_std"] = self.log_std
        return heads

    def dist(self, heads: Heads, mask: Any = None) -> Any:
        return make_dist(self.spec.action, heads["logits"], mask, heads.get("log_std"))

    def observe(self, batch: Batch) -> None:
        """Of entities, those that exist."""
        layout, valid, ranks = self.layout, batch.valid, batch.origin.ranks
        if not self.scales:
            return
        obs = {key: leaf[: batch.lead[0]][valid] for key, leaf in batch.obs.items()}
        rows = len(next(iter(obs.values())))
        own, rays, lists = layout.split(obs, rows)
        for key, part in {"own": own, "rays": rays}.items():
            if part is not None:
                self._observe(key, part, ranks)
        for kind, part in lists.items():
            self._observe(kind, part[layout.masks(obs, {kind: layout.there[kind]}, rows)[:, 1:]], ranks)
        if self.config.critic_state:
            self._observe("state", layout.flat_state(batch.state)[: batch.lead[0]][valid], ranks)

    def _inputs(self, obs: Any, rows: int) -> tuple[Tensor, Tensor | None, dict[str, Tensor]]:
        """On their scales: own `[R, size]`, rays `[R, number]`, entities `[R, number, size]` of every kind."""
        own, rays, lists = self.layout.split(obs, rows)
        scaled = {kind: self._scaled(kind, leaf) for kind, leaf in lists.items()}
        return self._scaled("own", own), None if rays is None else self._scaled("rays", rays), scaled

    def _scaled(self, key: str, x: Tensor) -> Tensor:
        scaled: Tensor = self.scales[key](x) if self.scales else x
        return scaled

    def _observe(self, key: str, rows: Tensor, ranks: Any) -> None:
        scale = self.scales[key]
        assert isinstance(scale, RunningScale)
        scale.observe(rows, ranks)


class Tower(nn.Module):
    """From inputs to the features of a head."""

    def __init__(self, config: EntityConfig, layout: _Layout, own: int) -> None:
        super().__init__()
        embed, hidden, width, heads = (
            given or usual
            for given, usual in zip((config.embed, config.hidden, config.width, config.heads), SIZES[config.size], strict=True)
        )
        self.embed, self.width, self.bf16 = embed, width, in_half(config.half)
        self.rays = RayEncoder(layout.rays) if layout.rays else None
        known = own + (self.rays.size if self.rays is not None else 0)
        self.own = _xavier(known, embed)
        self.kinds = nn.ModuleDict({kind: _xavier(size + known, embed) for kind, size in layout.kinds.items()})
        self.attention = EntityAttention(embed, heads, half=self.bf16)
        self.norms = nn.ModuleList([nn.LayerNorm(2 * embed), nn.LayerNorm(hidden), nn.LayerNorm(width)])
        self.hidden = _xavier(2 * embed, hidden)
        self.memory = CELLS[config.cell](hidden, width, half=self.bf16)

    def forward(
        self,
        own: Tensor,
        rays: Tensor | None,
        lists: dict[str, Tensor],
        seen: Tensor,
        first: Tensor,
        memory: Tensor | None,
        stop: Tensor | None = None,
    ) -> tuple[Tensor, Any]:
        """Features `[T, B, width]`, and the memory behind them; no gradient for it flows back beyond `stop`."""
        known = own if self.rays is None or rays is None else torch.cat([own, self.rays(rays)], -1)
        me, entities = self._embed(known, lists)
        around = seen_mean(self.attention(entities, seen), seen)
        x = self.norms[0](torch.cat([me, around], -1))
        x = self.norms[1](torch.relu(product(x, self.hidden.weight, self.hidden.bias, half=self.bf16)))
        y, after = self.memory(x.view(*first.shape, -1), memory, first, stop)
        return self.norms[2](y), after

    def _embed(self, known: Tensor, lists: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        """The agent, and all entities with the agent's features prepended; one product per kind."""
        layers: list[Any] = [self.kinds[kind] for kind in lists]
        sizes = [leaf.shape[-1] for leaf in lists.values()]
        weights = [self.own.weight, *(layer.weight[:, size:] for layer, size in zip(layers, sizes, strict=True))]
        bias = torch.cat([self.own.bias, *(layer.bias for layer in layers)])
        mine, *others = torch.split(product(known, torch.cat(weights), bias, half=self.bf16), self.embed, -1)
        me = torch.relu(mine)
        entities = [me.unsqueeze(1)]
        for layer, size, leaf, part in zip(layers, sizes, lists.values(), others, strict=True):
            each = product(leaf, layer.weight[:, :size])
            entities.append(torch.relu_(each + part.unsqueeze(1)))
        return me, torch.cat(entities, 1)


class _Layout:
    """Roles of the leaves of an observation."""

    def __init__(self, config: EntityConfig, spec: PolicySpec) -> None:
        if not isinstance(spec.obs, dict) or any(not isinstance(leaf, Leaf) for leaf in spec.obs.values()):
            raise UserError(
                "the entity policy needs observations in a flat dict",
                ("found", f"{spec.obs}"),
                ("expected", "such as {self: [10], agents: [3, 10], mask_agents: [3], exist_agents: [3]}"),
                code="E10",
            )
        obs = spec.obs
        self.config = config
        kinds = config.entities or tuple(key for key in obs if config.seen + key in obs)
        if missing := [key for key in (*config.self_keys, *kinds) if key not in obs]:
            raise UserError(
                f"the entity policy looks for '{missing[0]}' among the observations",
                ("found", ", ".join(obs)),
                ("try", "policy.self_keys and policy.entities, which name the observations"),
                code="E10",
            )
        self.ray_keys = [key for key in config.ray_keys if key in obs]
        self.kinds: dict[str, int] = {kind: _size(obs[kind]) for kind in kinds}
        self.numbers = {kind: _leaf(obs[kind]).shape[0] for kind in kinds}
        self.seen = {kind: config.seen + kind if config.seen + kind in obs else None for kind in kinds}
        self.there = {kind: config.exists + kind if config.exists + kind in obs else self.seen[kind] for kind in kinds}
        self.own = sum(_size(obs[key]) for key in config.self_keys)
        self.rays = sum(_size(obs[key]) for key in self.ray_keys)
        self.sizes = {"own": self.own, **self.kinds}
        if self.rays:
            self.sizes["rays"] = self.rays
        if config.critic_state:
            if spec.state is None:
                raise UserError(
                    "policy.critic_state needs an env that gives a state", ("found", "an env without one"), code="E10"
                )
            self.state = [path for path, _ in leaves(spec.state)]
            self.sizes["state"] = sum(math.prod(leaf.shape) for _, leaf in leaves(spec.state))
            self._state_spec = dict(leaves(spec.state))

    def split(self, obs: Any, rows: int) -> tuple[Tensor, Tensor | None, dict[str, Tensor]]:
        """The parts of an observation, without its leading sizes."""
        own = _join([obs[key].reshape(rows, -1) for key in self.config.self_keys])
        rays = _join([obs[key].reshape(rows, -1) for key in self.ray_keys]) if self.ray_keys else None
        lists = {kind: obs[kind].reshape(rows, self.numbers[kind], size) for kind, size in self.kinds.items()}
        near = self.config.relative
        if near:
            lists = {kind: torch.cat([x[..., :near] - own[:, None, :near], x[..., near:]], -1) for kind, x in lists.items()}
        return own, rays, lists

    def masks(self, obs: Any, keys: dict[str, str | None], rows: int) -> Tensor:
        """`[R, 1 + entities]` bool: the agent itself, and what the leaves of these keys say."""
        some = obs[self.config.self_keys[0]]
        parts = [some.new_ones((rows, 1), dtype=torch.bool)]
        for kind, key in keys.items():
            whole = parts[0].expand(rows, self.numbers[kind])
            parts.append(whole if key is None else obs[key].reshape(rows, -1) != 0)
        return torch.cat(parts, 1)

    def flat_state(self, state: Any) -> Tensor:
        """`[..., size]`."""
        found = dict(leaves(state))
        shapes = [len(self._state_spec[path].shape) for path in self.state]
        parts = [found[path].float() for path in self.state]
        return _join([x.reshape(*x.shape[: x.ndim - n], -1) for x, n in zip(parts, shapes, strict=True)])


def _leaf(leaf: Any) -> Leaf:
    assert isinstance(leaf, Leaf)
    return leaf


def _size(leaf: Any) -> int:
    return _leaf(leaf).shape[-1]


def _join(parts: list[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(parts, -1)


def _xavier(inputs: int, outputs: int) -> nn.Linear:
    layer = nn.Linear(inputs, outputs)
    nn.init.xavier_uniform_(layer.weight)
    nn.init.zeros_(layer.bias)
    return layer


def _head(layer: _L, norm: float) -> _L:
    """The weights of every output have this norm."""
    with torch.no_grad():
        nn.init.normal_(layer.weight)
        layer.weight.mul_(norm / layer.weight.norm(dim=1, keepdim=True))
        layer.bias.zero_()
    return layer
