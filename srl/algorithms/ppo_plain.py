"""PPO's minibatch on CPU by hand: loss and gradients. Same numbers as `PPO.loss`, less than half the time."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from torch import Tensor

from srl.api.algorithm import Batch
from srl.api.neural import HandPass, Recall
from srl.core.tree import Array, map_tree


class Weights(NamedTuple):
    """The numbers of the loss at this moment."""

    clip: float
    dual_clip: float | None
    value_clip: float | None
    value_weight: float
    entropy: float
    normalize: bool
    """Advantages within the minibatch."""


def plain_pass(run: HandPass, batch: Batch, weights: Weights) -> dict[str, float]:
    """Fill the gradients of one minibatch; what to show of it."""
    x: Array = _rows(batch.features)
    action = map_tree(_rows, batch.action)
    mask = None if batch.mask is None else map_tree(_rows, batch.mask)
    valid = _rows(batch.valid)
    each = np.float32(1.0 / len(x)) if valid.all() else _share(valid)
    share: Any = each if batch.choice is batch.valid else _share(_rows(batch.choice) & valid)
    shown: dict[str, float] = {}

    def policy_loss(log_prob: Array, entropy: Array) -> tuple[Array, Array | None]:
        advantage = _rows(batch.advantage)
        if weights.normalize:
            advantage = _normalized(advantage, share)
        log_ratio = log_prob - _rows(batch.extra["log_prob"])
        if np.ndim(share):  # what stands in rows that are not trained must not overflow
            log_ratio *= share > 0
        numbers, grad = _surrogate(log_ratio, advantage, share, weights)
        shown.update(numbers, entropy=float(np.sum(entropy * share)))
        return grad, np.broadcast_to(np.float32(-weights.entropy) * share, entropy.shape) if weights.entropy else None

    def value_loss(value: Array) -> Array:
        shown["value_loss"], grad = _value(value, _rows(batch.target), _rows(batch.old_value), each, weights)
        return grad

    run.run(x, action, mask, policy_loss, value_loss, _recall(batch))
    return shown


def _rows(leaf: Tensor) -> Array:
    """`[T, B, ...]` -> `[T * B, ...]`."""
    return leaf.numpy().reshape(-1, *leaf.shape[2:])


def _share(rows: Array) -> Array:
    """The weight of every row in a mean over these."""
    share: Array = rows * np.float32(1.0 / max(rows.sum(), 1))
    return share


def _recall(batch: Batch) -> Recall | None:
    if batch.memory == {}:
        return None
    stop = None if batch.stop is None else batch.stop.numpy()
    return Recall(batch.first.numpy(), map_tree(lambda leaf: leaf.numpy(), batch.memory), stop)


def _surrogate(log_ratio: Array, advantage: Array, share: Any, weights: Weights) -> tuple[dict[str, float], Array]:
    clip = weights.clip
    ratio = np.exp(log_ratio)
    free = ratio * advantage
    bound = np.maximum(ratio, np.float32(1.0 - clip))
    np.minimum(bound, np.float32(1.0 + clip), out=bound)
    outside = bound != ratio
    bound *= advantage
    live = free <= bound
    gain = np.minimum(free, bound)
    if weights.dual_clip is not None:
        floor = np.float32(weights.dual_clip) * advantage
        held = (advantage < 0) & (gain < floor)
        gain = np.where(held, floor, gain)
        live &= ~held
    grad = free
    grad *= live
    grad *= -share
    ratio -= 1.0
    ratio -= log_ratio
    if np.ndim(share):
        shown = {"policy_loss": -np.dot(gain, share), "kl": np.dot(ratio, share), "clip_fraction": np.dot(outside, share)}
    else:
        shown = {"policy_loss": -gain.sum() * share, "kl": ratio.sum() * share, "clip_fraction": outside.sum() * share}
    return {name: float(number) for name, number in shown.items()}, grad


def _value(value: Array, target: Array, old: Array, share: Any, weights: Weights) -> tuple[float, Array]:
    away = value - target
    loss, grad = away * away, away
    if weights.value_clip is not None:
        width = np.float32(weights.value_clip)
        moved = value - old
        near = old + np.clip(moved, -width, width) - target
        worse = near * near > loss
        loss = np.where(worse, near * near, loss)
        grad = np.where(worse, near * (np.abs(moved) <= width), away)
    return float(np.sum(loss * share)), grad * (np.float32(2.0 * weights.value_weight) * share)


def _normalized(advantage: Array, share: Any) -> Array:
    away = advantage - np.sum(advantage * share)
    normal: Array = away / (np.sqrt(np.sum(away * away * share)) + np.float32(1e-8))
    return normal
