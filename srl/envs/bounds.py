"""From recorded actions to those of the env: boxes are clipped to their bounds or mapped onto them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from srl.api.env import ActionSpec, Box


def action_map(action: ActionSpec, bounds: str) -> Callable[[Any], Any]:
    """The function for one action space; the identity where nothing is to do."""
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


def _same(tree: Any) -> Any:
    return tree
