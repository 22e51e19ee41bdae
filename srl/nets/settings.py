"""Settings of the actor-critic, apart from its module so that reading them needs no torch."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from srl.core.errors import SettingError
from srl.core.load import option

WIDEST = 1 << 16
"""The largest size of a layer."""
_MOST = 1 << 28
"""Weights between the layers of one tower: 1 GiB."""


def check_weights(setting: str, widths: Sequence[int]) -> None:
    """Refuse layers that no machine could build, before anything tries to."""
    if (weights := sum(a * b for a, b in itertools.pairwise(widths))) > _MOST:
        raise SettingError(setting, f"must not make more than {_MOST:,} weights, and {list(widths)} makes {weights:,}")


@dataclass(frozen=True, kw_only=True)
class ActorCriticConfig:
    """Sizes of the actor-critic."""

    hidden: tuple[int, ...] = option((64, 64), "sizes of the hidden layers", low=1, high=WIDEST)
    activation: Literal["tanh", "relu", "elu"] = option("tanh", "after every hidden layer")
    shared: bool = option(False, "one tower for actor and critic instead of one each")
    normalize_obs: bool = option(False, "running mean and variance of vector observations, learned on the way")
    log_std: float = option(0.0, "of Box actions, at the start; then it is learned")
    compile: bool = option(False, "torch.compile the networks: pays for pictures, not for plain towers")
    features: int = option(512, "numbers that a picture is encoded to", low=1, high=WIDEST)

    def __post_init__(self) -> None:
        check_weights("hidden", self.hidden)
