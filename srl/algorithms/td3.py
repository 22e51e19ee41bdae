"""Twin delayed deep deterministic policy gradient (Fujimoto et al. 2018): DDPG with three changes."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from srl.algorithms.ddpg import DDPG, DDPGConfig
from srl.api.algorithm import Batch
from srl.core.load import option


@dataclass(frozen=True, kw_only=True)
class TD3Config(DDPGConfig):
    """Settings of TD3."""

    critics: int = option(2, "number of critics; the smallest value is used", low=1)
    actor_every: int = option(2, "updates of the critics for each update of actor and targets", low=1)
    target_noise: float = option(0.2, "standard deviation of the noise on the target's actions", low=0)
    target_noise_clip: float = option(0.5, "bound of this noise", low=0)


class TD3(DDPG):
    """Two critics, of which the smaller value counts; an actor that moves less often; noise on the target's actions."""

    Config = TD3Config
    config: TD3Config

    @property
    def count(self) -> int:
        return self.config.critics

    @property
    def actor_every(self) -> int:
        return self.config.actor_every

    def next_actions(self, batch: Batch, vector: Tensor) -> tuple[Tensor]:
        """`pi'(s') + clipped noise`."""
        (action,) = super().next_actions(batch, vector)
        noise = batch.normal("next actions", self.policy.size) * self.config.target_noise
        limit = self.config.target_noise_clip
        return ((action + noise.clamp_(-limit, limit)).clamp_(-1.0, 1.0),)
