"""Policies for bounded real actions: a squashed Gaussian (SAC), and a deterministic one with noise (TD3, DDPG)."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import torch
from torch import Tensor

from srl.api.actions import real_size
from srl.api.batch import Batch
from srl.api.env import Box
from srl.api.inputs import SCALE, is_picture
from srl.api.neural import Heads, NeuralPolicy
from srl.api.policy import Act, Ask, Bounds, PolicySpec
from srl.core.errors import UserError
from srl.core.machine import in_half
from srl.core.tree import leaves
from srl.nets.ensemble import Ensemble
from srl.nets.normalizer import Normalizer
from srl.nets.numpy_continuous import LOG_STD, ContinuousConfig, deviations
from srl.nets.tanh_normal import TanhNormal, squashed


class Continuous(NeuralPolicy):
    """One tower over vector observations. Actions are within [-1, 1], which is mapped onto the bounds of the env.

    While the buffer `random` is 1, actions are drawn uniformly: an algorithm clears it with its first update.
    """

    Config = ContinuousConfig
    bounds: ClassVar[Bounds] = "affine"
    reads = ("obs",)
    random: Tensor
    outputs = 1
    """Numbers of the head for each number of the action."""

    def __init__(self, config: ContinuousConfig, spec: PolicySpec) -> None:
        super().__init__(config, spec)
        _check(spec, type(self).__name__)
        self.inputs = sum(math.prod(leaf.shape) for _, leaf in leaves(spec.obs))
        self.size = real_size(spec.action)
        self.shape = spec.action.shape  # type: ignore[union-attr]
        self.normalizer = Normalizer(self.inputs) if config.normalize_obs else None
        sizes = (self.inputs, *config.hidden, self.outputs * self.size)
        self.tower = Ensemble(sizes, activation=config.activation, gain=0.01, half=in_half(config.half))
        self.register_buffer("random", torch.ones(()))

    def vector(self, obs: Any) -> Tensor:
        """Observations as (normalized) vectors `[..., inputs]`: what critics read too."""
        vector = _flat(obs, self.spec.obs)
        if self.normalizer is None:
            return vector
        normal: Tensor = self.normalizer(vector)
        return normal

    def head(self, vector: Tensor) -> Tensor:
        """The outputs for vectors, `[..., outputs * size]`."""
        out: Tensor = self.tower(vector).squeeze(0)
        return out

    def observe(self, batch: Batch) -> None:
        if self.normalizer is not None:
            self.normalizer.observe(_flat(batch.obs, self.spec.obs)[: batch.lead[0]][batch.valid], batch.origin.ranks)

    @torch.inference_mode()
    def act(self, ask: Ask) -> Act:
        heads, _ = self.heads(ask)
        if ask.greedy:
            return self.answer(self.dist(heads).mode(), heads)
        if self.random > 0:
            noise = torch.from_numpy(ask.rng.uniform(self.size)).to(self.device).mul(2.0).sub(1.0)
            return self.answer(self.shaped(noise[None]), heads)
        return self.answer(self.explore(heads, ask), heads)

    def explore(self, heads: Heads, ask: Ask) -> Tensor:
        """The action `[1, N, ...]` with noise."""
        raise NotImplementedError

    def shaped(self, action: Tensor) -> Tensor:
        """`[..., size]` -> as the env's."""
        return action.reshape(*action.shape[:-1], *self.shape)


class SquashedGaussian(Continuous):
    """tanh of a Gaussian whose mean and deviation depend on the observation."""

    outputs = 2

    def unroll(self, batch: Batch) -> Heads:
        return self.gaussian(self.vector(batch.obs))

    def gaussian(self, vector: Tensor) -> Heads:
        """Mean and log deviation for vectors."""
        mean, log_std = self.head(vector).chunk(2, -1)
        return {"mean": mean, "log_std": log_std.clamp(*LOG_STD)}

    def draw(self, vector: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """(actions `[..., size]`, their log-probabilities) for standard normal noise; gradients flow through both."""
        return squashed(self.head(vector), noise, LOG_STD)

    def dist(self, heads: Heads, mask: Any = None) -> TanhNormal:
        return TanhNormal(heads["mean"], heads["log_std"], self.shape)

    def explore(self, heads: Heads, ask: Ask) -> Tensor:
        return self.dist(heads).sample(ask.rng)

    def numpy_twin(self) -> str | None:
        return "srl.nets.numpy_continuous:NumpySquashedGaussian" if type(self) is SquashedGaussian else None


class Deterministic(Continuous):
    """One action for an observation; noise is added where it explores."""

    noise: Tensor

    def __init__(self, config: ContinuousConfig, spec: PolicySpec) -> None:
        super().__init__(config, spec)
        self.register_buffer("noise", torch.tensor([0.1, 0.1]))
        """The smallest and the largest deviation of the noise: envs have theirs between, by their number."""

    def unroll(self, batch: Batch) -> Heads:
        return {"action": self.action(self.vector(batch.obs))}

    def action(self, vector: Tensor) -> Tensor:
        """`[..., size]` for vectors."""
        return torch.tanh(self.head(vector))

    def dist(self, heads: Heads, mask: Any = None) -> Any:
        return _Certain(self.shaped(heads["action"]))

    def explore(self, heads: Heads, ask: Ask) -> Tensor:
        low, high = (float(one) for one in self.noise)
        deviation = torch.from_numpy(deviations(low, high, ask.ids)).to(self.device)[:, None]
        noise = torch.from_numpy(ask.rng.normal(self.size)).to(self.device)
        return self.shaped(torch.addcmul(heads["action"], deviation, noise[None]).clamp(-1.0, 1.0))

    def numpy_twin(self) -> str | None:
        return "srl.nets.numpy_continuous:NumpyDeterministic" if type(self) is Deterministic else None


class _Certain:
    """An action without doubt."""

    def __init__(self, action: Tensor) -> None:
        self._action = action

    def mode(self) -> Tensor:
        return self._action


def _flat(obs: Any, spec: Any) -> Tensor:
    """`[..., inputs]`: all leaves, flattened."""
    parts = []
    for path, leaf in leaves(spec):
        part = obs
        for key in path.split("/") if path else ():
            part = part[key]
        flat = part.reshape(*part.shape[: part.ndim - len(leaf.shape)], math.prod(leaf.shape))
        parts.append(flat.float() * SCALE if part.dtype == torch.uint8 else flat.float())
    return parts[0] if len(parts) == 1 else torch.cat(parts, -1)


def _check(spec: PolicySpec, name: str) -> None:
    """Raise if this policy cannot act here."""
    action = spec.action
    if not isinstance(action, Box):
        found = type(action).__name__ if not isinstance(action, dict) else "Dict"
        raise UserError(
            f"policy {name} needs real actions (Box)", ("found", found), ("try", "algorithm=dqn, or algorithm=ppo"), code="E10"
        )
    if not all(map(math.isfinite, (*action.low, *action.high))):
        raise UserError(
            f"policy {name} needs actions with finite bounds",
            ("because", "its actions are within [-1, 1], which is mapped onto the bounds"),
            ("try", "gymnasium.wrappers.RescaleAction or another env with bounds, or algorithm=ppo"),
            code="E10",
        )
    if pictures := [path or "obs" for path, leaf in leaves(spec.obs) if is_picture(leaf)]:
        raise UserError(
            f"policy {name} cannot read images",
            ("found", ", ".join(pictures)),
            ("try", "algorithm=ppo, or a policy of your own"),
            code="E10",
        )
