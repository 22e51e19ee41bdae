"""Noise on the actions of deterministic policies: scheduled, and perhaps different for each env."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from srl.core.load import option
from srl.core.schedule import Schedule


@dataclass(frozen=True, kw_only=True)
class NoiseConfig:
    """Settings of the noise."""

    noise: Schedule = option(Schedule(0.1), "standard deviation of the noise on actions, which are within [-1, 1]", low=0)
    least_noise: float | None = option(
        None, "smallest standard deviation: envs get values from this up to `noise`; null: `noise` in all envs", low=0
    )


def explore(policy: Any, config: NoiseConfig, progress: float) -> None:
    """From now on the policy acts, with this noise."""
    most = config.noise.at(progress)
    policy.random.zero_()
    policy.noise[0] = most if config.least_noise is None else min(config.least_noise, most)
    policy.noise[1] = most
