"""Returns and advantages on the row layout. T steps, B sequences, time first; extra axes after B are allowed.

A row's bootstrap is always `values[t + 1]`: after an end the next row holds the episode's last observation.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


def gae(
    rewards: Tensor,  # [T, B]
    values: Tensor,  # [T+1, B]
    terminated: Tensor,  # [T, B] the episode really ended: no value beyond
    cut: Tensor,  # [T, B] no later reward may be credited to this row
    gamma: float,
    lam: float,
) -> Tensor:  # [T, B]
    """Generalized advantages; a truncated step keeps its bootstrap value, a terminated one does not."""
    delta = rewards + gamma * values[1:] * ~terminated - values[:-1]
    return discounted(delta, gamma * lam * ~cut)


class VTrace(NamedTuple):
    """The results of `vtrace`, each `[T, B]`."""

    targets: Tensor
    advantages: Tensor


def vtrace(
    rewards: Tensor,  # [T, B]
    values: Tensor,  # [T+1, B] of the policy that learns
    terminated: Tensor,  # [T, B]
    cut: Tensor,  # [T, B]
    log_ratio: Tensor,  # [T, B] log of learner's over actor's probability
    gamma: float,
    *,
    lam: float = 1.0,
    clip_rho: float = 1.0,
    clip_c: float = 1.0,
    clip_advantage: float | None = 1.0,
) -> VTrace:
    """Espeholt et al. 2018, with two discounts: a terminated row has no value beyond, a cut row takes nothing from later rows.

    Without `clip_advantage`, advantages have no weight.
    """
    ratio = log_ratio.exp()
    discount = gamma * ~terminated
    delta = ratio.clamp(max=clip_rho) * (rewards + discount * values[1:] - values[:-1])
    targets = values[:-1] + discounted(delta, gamma * lam * ratio.clamp(max=clip_c) * ~cut)
    beyond = torch.cat([targets[1:], values[-1:]])
    beyond = torch.where(cut, values[1:], beyond)
    advantages = rewards + discount * beyond - values[:-1]
    return VTrace(targets, advantages if clip_advantage is None else ratio.clamp(max=clip_advantage) * advantages)


def n_step(
    rewards: Tensor,  # [T, B]
    values: Tensor,  # [T+1, B]
    terminated: Tensor,  # [T, B]
    cut: Tensor,  # [T, B]
    gamma: float,
    steps: int,
) -> Tensor:  # [T, B]
    """n-step returns with at most `steps` rewards, then the bootstrap value; fewer before a cut and at the end of the slab."""
    returns = rewards + gamma * values[1:] * ~terminated
    target = returns
    for _ in range(steps - 1):
        beyond = torch.cat([target[1:], values[-1:]])
        target = torch.where(cut, returns, rewards + gamma * beyond)
    return target


def squash(x: Tensor, slope: float = 1e-3) -> Tensor:
    """A scale on which large returns lie closer together: `sign(x) * (sqrt(|x| + 1) - 1) + slope * x` (Pohlen et al. 2018)."""
    return x.sign() * ((x.abs() + 1.0).sqrt() - 1.0) + slope * x


def unsquash(y: Tensor, slope: float = 1e-3) -> Tensor:
    """The inverse of `squash`."""
    above = y.abs() + 1.0 + slope
    root = 2.0 * above / ((1.0 + 4.0 * slope * above).sqrt() + 1.0)
    return y.sign() * (root.square() - 1.0)


def project(
    points: Tensor,  # [atoms] evenly spaced
    chance: Tensor,  # [..., atoms] of the returns beyond
    reward: Tensor,  # [...]
    discount: Tensor,  # [...] 0 where nothing lies beyond
) -> Tensor:  # [..., atoms]
    """The distribution of `reward + discount * point`, on the same points: each chance is shared by its two neighbours
    (Bellemare et al. 2017)."""
    step = points[1] - points[0]
    moved = (reward.unsqueeze(-1) + discount.unsqueeze(-1) * points).clamp(points[0], points[-1])
    place = ((moved - points[0]) / step).clamp(max=len(points) - 1)
    low = place.floor().clamp(max=len(points) - 2)
    above = place - low
    out = torch.zeros_like(chance)
    out.scatter_add_(-1, low.long(), chance * (1.0 - above))
    return out.scatter_add_(-1, low.long() + 1, chance * above)


def discounted(x: Tensor, discount: Tensor) -> Tensor:
    """`y[t] = x[t] + discount[t] * y[t + 1]`, with zero after the end."""
    out = x.clone(memory_format=torch.contiguous_format)
    if x.device.type == "cpu" and not x.requires_grad:
        rows, factors = out.numpy(), discount.to(out.dtype).numpy()  # a numpy step costs a fifth of a torch step
        for t in range(len(rows) - 2, -1, -1):
            rows[t] += factors[t] * rows[t + 1]
        return out
    later = torch.zeros_like(x[0])
    steps = []
    for t in range(len(x) - 1, -1, -1):
        later = x[t] + discount[t] * later
        steps.append(later)
    return torch.stack(steps[::-1])
