"""Action distributions with few operations. Noise comes from the given rng."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from srl.api.actions import head_size, real_size
from srl.api.env import ActionSpec, Discrete, MultiBinary, MultiDiscrete
from srl.core.seeds import Rng
from srl.nets.numpy_dists import FORBIDDEN, LOG_2PI


def make_dist(action: ActionSpec, logits: Tensor, mask: Any = None, log_std: Tensor | None = None) -> Any:
    """The distribution of an action spec. Parts of a dict take their columns in the order of their keys."""
    if isinstance(action, dict):
        return _make_joint(action, logits, mask, log_std)
    if isinstance(action, Discrete):
        return Categorical(logits, mask)
    if isinstance(action, MultiDiscrete):
        return MultiCategorical(logits, action.counts, mask)
    if isinstance(action, MultiBinary):
        return Bernoulli(logits, mask)
    if log_std is None:
        raise ValueError("a Box action needs the head log_std in addition to logits")
    return Gaussian(logits, log_std, action.shape)


class Categorical:
    """One choice out of n. A row without any allowed choice is as if all were allowed."""

    def __init__(self, logits: Tensor, mask: Tensor | None = None) -> None:
        logits = _first(logits)
        if mask is not None:
            allowed = _first(mask)
            logits = logits.masked_fill(~(allowed | ~allowed.any(0)), FORBIDDEN)
        self.log_chance = torch.log_softmax(logits, 0)

    @property
    def logits(self) -> Tensor:
        """Logarithms of the chances `[..., n]`."""
        return self.log_chance.movedim(0, -1)

    def sample(self, rng: Rng) -> Tensor:
        """Inverse transform sampling: one uniform number per row."""
        uniform = _noise(rng.uniform(1), self.logits)[..., 0]
        upto = self.log_chance.exp().cumsum(0)
        return (upto[:-1] <= uniform * upto[-1]).sum(0)

    def mode(self) -> Tensor:
        return self.log_chance.argmax(0)

    def log_prob(self, action: Tensor) -> Tensor:
        return self.log_chance.gather(0, action.unsqueeze(0)).squeeze(0)

    def entropy(self) -> Tensor:
        return -(self.log_chance.exp() * self.log_chance).sum(0)

    def kl(self, other: Categorical) -> Tensor:
        return (self.log_chance.exp() * (self.log_chance - other.log_chance)).sum(0)


class MultiCategorical:
    """Several independent choices; the mask holds theirs side by side."""

    def __init__(self, logits: Tensor, counts: tuple[int, ...], mask: Tensor | None = None) -> None:
        masks = torch.split(mask, list(counts), -1) if mask is not None else [None] * len(counts)
        self.parts = [
            Categorical(part, allowed) for part, allowed in zip(torch.split(logits, list(counts), -1), masks, strict=True)
        ]

    def sample(self, rng: Rng) -> Tensor:
        return torch.stack([part.sample(rng) for part in self.parts], -1)

    def mode(self) -> Tensor:
        return torch.stack([part.mode() for part in self.parts], -1)

    def log_prob(self, action: Tensor) -> Tensor:
        return _total([part.log_prob(action[..., i]) for i, part in enumerate(self.parts)])

    def entropy(self) -> Tensor:
        return _total([part.entropy() for part in self.parts])

    def kl(self, other: MultiCategorical) -> Tensor:
        return _total([part.kl(theirs) for part, theirs in zip(self.parts, other.parts, strict=True)])


class Bernoulli:
    """Independent bits; a masked one is 0 for sure."""

    def __init__(self, logits: Tensor, mask: Tensor | None = None) -> None:
        self.logits = _first(logits if mask is None else logits.masked_fill(~mask, FORBIDDEN))

    def sample(self, rng: Rng) -> Tensor:
        uniform = _noise(rng.uniform(len(self.logits)), self.logits.movedim(0, -1))
        return (uniform < self.logits.movedim(0, -1).sigmoid()).to(torch.int8)

    def mode(self) -> Tensor:
        return (self.logits > 0).movedim(0, -1).to(torch.int8)

    def log_prob(self, action: Tensor) -> Tensor:
        sign = 1.0 - 2.0 * _first(action).to(self.logits.dtype)
        return -torch.nn.functional.softplus(sign * self.logits).sum(0)

    def entropy(self) -> Tensor:
        chance = self.logits.sigmoid()
        return (torch.nn.functional.softplus(self.logits) - chance * self.logits).sum(0)

    def kl(self, other: Bernoulli) -> Tensor:
        chance = self.logits.sigmoid()
        plus = torch.nn.functional.softplus
        return (chance * (self.logits - other.logits) - plus(self.logits) + plus(other.logits)).sum(0)


class Gaussian:
    """Independent normals with individual deviations; the actor clips samples, not this class."""

    def __init__(self, mean: Tensor, log_std: Tensor, shape: tuple[int, ...]) -> None:
        self.mean = mean
        self.log_std = log_std
        self.shape = shape

    def sample(self, rng: Rng) -> Tensor:
        noise = _noise(rng.normal(self.mean.shape[-1]), self.mean)
        return self._shaped(self.mean + self.log_std.exp() * noise)

    def mode(self) -> Tensor:
        return self._shaped(self.mean)

    def log_prob(self, action: Tensor) -> Tensor:
        away = _first(action.reshape(self.mean.shape)) - _first(self.mean)
        spread = self.log_std.view(-1, *[1] * (away.ndim - 1))
        away = away * (-spread).exp()
        return -0.5 * (away * away).sum(0) - (self.log_std + 0.5 * LOG_2PI).sum()

    def entropy(self) -> Tensor:
        return (self.log_std + 0.5 * (1.0 + LOG_2PI)).sum().expand(self.mean.shape[:-1])

    def kl(self, other: Gaussian) -> Tensor:
        ratio = (2.0 * (self.log_std - other.log_std)).exp()
        away = (self.mean - other.mean) * (-other.log_std).exp()
        each = 0.5 * (ratio + away * away - 1.0) - self.log_std + other.log_std
        return each.expand_as(self.mean).sum(-1)

    def _shaped(self, action: Tensor) -> Tensor:
        return action.reshape(*action.shape[:-1], *self.shape)


class Joint:
    """A dict of independent actions."""

    def __init__(self, parts: dict[str, Any]) -> None:
        self.parts = parts

    def sample(self, rng: Rng) -> dict[str, Any]:
        return {key: part.sample(rng) for key, part in self.parts.items()}

    def mode(self) -> dict[str, Any]:
        return {key: part.mode() for key, part in self.parts.items()}

    def log_prob(self, action: dict[str, Any]) -> Tensor:
        return _total([part.log_prob(action[key]) for key, part in self.parts.items()])

    def entropy(self) -> Tensor:
        return _total([part.entropy() for part in self.parts.values()])

    def kl(self, other: Joint) -> Tensor:
        return _total([part.kl(other.parts[key]) for key, part in self.parts.items()])


def _make_joint(action: dict[str, Any], logits: Tensor, mask: Any, log_std: Tensor | None) -> Joint:
    keys = sorted(action)
    columns = torch.split(logits, [head_size(action[key]) for key in keys], -1)
    reals = [real_size(action[key]) for key in keys]
    spreads = torch.split(log_std, reals, -1) if log_std is not None else [None] * len(keys)
    masks = mask if mask is not None else {}
    return Joint(
        {
            key: make_dist(action[key], column, masks.get(key), spread if size else None)
            for key, column, spread, size in zip(keys, columns, spreads, reals, strict=True)
        }
    )


def _first(x: Tensor) -> Tensor:
    """`[..., k]` -> `[k, ...]` in one block: sums over a few choices are ten times faster along the rows than across."""
    return x.movedim(-1, 0).contiguous()


def _noise(draws: Any, like: Tensor) -> Tensor:
    """[N, columns] numbers in the leading sizes of `like`."""
    noise = torch.from_numpy(draws).to(like.device, like.dtype)
    return noise.view(*like.shape[:-1], draws.shape[-1])


def _total(parts: list[Tensor]) -> Tensor:
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return total
