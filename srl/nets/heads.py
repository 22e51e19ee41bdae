"""How a row of head numbers becomes an action: sizes and constants that the torch and the numpy side share."""

from __future__ import annotations

import math

from srl.api.env import ActionSpec, Box, MultiDiscrete

FORBIDDEN = -1e9
"""The logit of a masked choice: finite, so that nothing becomes nan."""
LOG_2PI = math.log(2.0 * math.pi)
LIMIT = 10.0
"""Normalised inputs are clipped to this many deviations."""


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
