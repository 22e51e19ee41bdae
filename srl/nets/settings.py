"""Settings of the actor-critic, apart from its module so that reading them needs no torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from srl.core.load import option


@dataclass(frozen=True, kw_only=True)
class ActorCriticConfig:
    """Sizes of the actor-critic."""

    hidden: tuple[int, ...] = option((64, 64), "sizes of the hidden layers", low=1)
    activation: Literal["tanh", "relu", "elu"] = option("tanh", "after every hidden layer")
    shared: bool = option(False, "one tower for actor and critic instead of one each")
    normalize_obs: bool = option(False, "running mean and variance of vector observations, learned on the way")
    log_std: float = option(0.0, "of Box actions, at the start; then it is learned")
    compile: bool = option(False, "torch.compile the networks: pays for pictures, not for plain towers")
    features: int = option(512, "numbers that a picture is encoded to", low=1)
