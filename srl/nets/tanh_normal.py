"""The squashed Gaussian of SAC (Haarnoja et al. 2018): `tanh(mean + deviation * noise)`, within (-1, 1)."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from srl.core.seeds import Rng
from srl.nets.numpy_dists import LOG_2PI

LOG_2 = math.log(2.0)
INSIDE = 1.0 - 2.0**-24
"""The largest action below 1: one at the edge has an infinite log-probability."""


class TanhNormal:
    """Independent numbers `[..., k]`. Log-probabilities are computed before the tanh, where they are stable at the edges."""

    def __init__(self, mean: Tensor, log_std: Tensor, shape: tuple[int, ...]) -> None:
        self.mean, self.log_std, self.shape = mean, log_std, shape

    def draw(self, noise: Tensor) -> tuple[Tensor, Tensor]:
        """(action `[..., k]`, its log-probability `[...]`) for standard normal noise; gradients flow through both."""
        return squashed(torch.cat((self.mean, self.log_std), -1), noise, (-math.inf, math.inf))

    def sample(self, rng: Rng) -> Tensor:
        noise = torch.from_numpy(rng.normal(self.mean.shape[-1])).to(self.mean.device).view(self.mean.shape)
        return self._shaped(torch.tanh(self.mean + self.log_std.exp() * noise))

    def mode(self) -> Tensor:
        return self._shaped(torch.tanh(self.mean))

    def log_prob(self, action: Tensor) -> Tensor:
        """Of actions; one at the edge counts as the nearest inside."""
        before = torch.atanh(action.reshape(self.mean.shape).clamp(-INSIDE, INSIDE))
        return _log_prob(before, (before - self.mean) * (-self.log_std).exp(), self.log_std)

    def entropy(self) -> Tensor:
        """That of the Gaussian: the squashed one has no closed form."""
        return (self.log_std + 0.5 * (1.0 + LOG_2PI)).sum(-1)

    def kl(self, other: TanhNormal) -> Tensor:
        """The same before and after the tanh."""
        ratio = (2.0 * (self.log_std - other.log_std)).exp()
        away = (self.mean - other.mean) * (-other.log_std).exp()
        return (0.5 * (ratio + away * away - 1.0) - self.log_std + other.log_std).sum(-1)

    def _shaped(self, action: Tensor) -> Tensor:
        return action.reshape(*action.shape[:-1], *self.shape)


def squashed(head: Tensor, noise: Tensor, limits: tuple[float, float]) -> tuple[Tensor, Tensor]:
    """As `TanhNormal.draw`, from means and log deviations side by side `[..., 2 k]`; the latter are held within `limits`."""
    pair: tuple[Tensor, Tensor] = _Draw.apply(head, noise, *limits)  # type: ignore[no-untyped-call]
    return pair


def _log_prob(before: Tensor, noise: Tensor, log_std: Tensor) -> Tensor:
    """Of `tanh(before)`: `log(1 - tanh(u)^2)` is `2 (log 2 - u - softplus(-2 u))`."""
    slope = nn.functional.softplus(before * -2.0).add_(before).mul_(2.0)
    total: Tensor = slope.sub_(log_std).addcmul_(noise, noise, value=-0.5).sum(-1)
    return total.sub_((0.5 * LOG_2PI + 2.0 * LOG_2) * before.shape[-1])


class _Draw(torch.autograd.Function):
    """One node for thirty operations on few numbers."""

    @staticmethod
    def forward(ctx: Any, head: Tensor, noise: Tensor, low: float, high: float) -> tuple[Tensor, Tensor]:
        mean, raw = head.chunk(2, -1)
        log_std = raw.clamp(low, high)
        spread = log_std.exp().mul_(noise)
        before = mean + spread
        action = torch.tanh(before)
        ctx.save_for_backward(action, spread, raw, log_std)
        return action, _log_prob(before, noise, log_std)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, to_action: Tensor, to_log_prob: Tensor) -> tuple[Tensor, None, None, None]:
        action, spread, raw, log_std = ctx.saved_tensors
        chance = to_log_prob.unsqueeze(-1)
        to_head = torch.cat((to_action, spread), -1)
        to_mean, to_log_std = to_head.chunk(2, -1)
        to_mean.addcmul_(action * action, to_action, value=-1.0).addcmul_(action, chance, value=2.0)
        to_log_std.mul_(to_mean).sub_(chance).mul_(raw == log_std)
        return to_head, None, None, None
