"""Action masks: True where a choice is allowed."""

from __future__ import annotations

from typing import Any

import numpy as np

from srl.api.env import ActionSpec, Box, Discrete, MultiBinary
from srl.core.tree import Array


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
