"""What follows from an action space: the map onto an env's bounds, choices under a mask, sizes of policy heads."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from srl.api.env import ActionSpec, Box, Discrete, MultiBinary, MultiDiscrete
from srl.api.policy import Ask
from srl.core.tree import Array


def action_map(action: ActionSpec, bounds: str) -> Callable[[Any], Any]:
    """From recorded actions to those of the env: boxes are clipped to their bounds, mapped onto them, or as they are."""
    if bounds == "none":
        return _same
    if isinstance(action, dict):
        parts = {key: action_map(part, bounds) for key, part in action.items()}
        if all(part is _same for part in parts.values()):
            return _same
        return lambda tree: {key: part(tree[key]) for key, part in parts.items()}
    if not isinstance(action, Box):
        return _same
    low = np.asarray(action.low, np.float32).reshape(action.shape)
    high = np.asarray(action.high, np.float32).reshape(action.shape)
    if bounds == "clip":
        return lambda array: np.clip(array, low, high)
    if not (np.isfinite(low).all() and np.isfinite(high).all()):
        raise ValueError("bounds 'affine' needs an action space with finite bounds")
    middle, half = (high + low) / 2, (high - low) / 2
    return lambda array: middle + half * np.clip(array, -1.0, 1.0)


def recorded_action(action: ActionSpec, bounds: str) -> Callable[[Any], Any]:
    """The inverse of `action_map`, for actions that others have recorded: each within its bounds has one."""
    if isinstance(action, dict):
        parts = {key: recorded_action(part, bounds) for key, part in action.items()}
        return lambda tree: {key: part(tree[key]) for key, part in parts.items()}
    if bounds != "affine" or not isinstance(action, Box):
        return _same
    low = np.asarray(action.low, np.float32).reshape(action.shape)
    high = np.asarray(action.high, np.float32).reshape(action.shape)
    middle, half = (high + low) / 2, (high - low) / 2
    return lambda array: np.clip((array - middle) / half, -1.0, 1.0)


def _same(tree: Any) -> Any:
    return tree


def has_choice(mask: Any, action: ActionSpec) -> Array:
    """`[...]` bool: some part of the action leaves more than one value open. Boxes always do."""
    if isinstance(action, dict):
        parts = [has_choice(mask[key], part) if key in mask else np.True_ for key, part in action.items()]
        return np.asarray(np.logical_or.reduce(np.broadcast_arrays(*parts)))
    if isinstance(action, Box):
        return np.asarray(True)
    if isinstance(action, Discrete):
        return np.asarray(mask.sum(-1) > 1)
    if isinstance(action, MultiBinary):
        return np.asarray(mask.any(-1))
    edges = np.cumsum((0, *action.counts[:-1]))
    return np.asarray((np.add.reduceat(mask, edges, axis=-1, dtype=np.int64) > 1).any(-1))


def choose(values: Array, epsilon: Array, ask: Ask) -> Array:
    """`[N]`: the best of the allowed actions by values `[N, n]`, or any of them with the probability of the row's rung.

    A row without any allowed action is as if all were allowed.
    """
    allowed: Any = None
    if ask.mask is not None:
        allowed = np.asarray(ask.mask)
        allowed = allowed | ~allowed.any(1, keepdims=True)
        values = np.where(allowed, values, -np.inf)
    best: Array = values.argmax(1)
    if ask.greedy:
        return best
    draws = ask.rng.uniform(2)
    if allowed is None:
        anyone = (draws[:, 1] * values.shape[1]).astype(np.int64)
    else:
        place = (draws[:, 1] * allowed.sum(1)).astype(np.int64)
        anyone = (allowed.cumsum(1) > place[:, None]).argmax(1)
    return np.where(draws[:, 0] < epsilon[ask.ids % len(epsilon)], anyone, best)


def head_size(action: ActionSpec) -> int:
    """How many numbers a policy head gives for one action."""
    if isinstance(action, dict):
        return sum(head_size(action[key]) for key in sorted(action))
    if isinstance(action, MultiDiscrete):
        return sum(action.counts)
    if isinstance(action, Box):
        return math.prod(action.shape)
    return action.n


def real_size(action: ActionSpec) -> int:
    """How many real numbers an action has: the size of `log_std`."""
    if isinstance(action, dict):
        return sum(real_size(action[key]) for key in sorted(action))
    return math.prod(action.shape) if isinstance(action, Box) else 0
