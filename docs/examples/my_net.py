"""A custom network: a policy with layer norm after every hidden layer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import nn

from srl.api.actions import head_size
from srl.api.batch import Batch
from srl.api.neural import Heads, NeuralPolicy
from srl.api.policy import PolicySpec
from srl.core.load import option
from srl.nets.dists import make_dist


@dataclass(frozen=True, kw_only=True)
class NormedConfig:
    width: int = option(64, "units of each of the two hidden layers", low=1)


class Normed(NeuralPolicy):
    """For vector observations and discrete actions. Run it with `policy=docs/examples/my_net.py:Normed`."""

    Config = NormedConfig

    def __init__(self, config: NormedConfig, spec: PolicySpec) -> None:
        super().__init__(config, spec)
        inputs, width = spec.obs.shape[0], config.width
        layers = [
            nn.Linear(inputs, width),
            nn.LayerNorm(width),
            nn.Tanh(),
            nn.Linear(width, width),
            nn.LayerNorm(width),
            nn.Tanh(),
        ]
        self.body = nn.Sequential(*layers)
        self.logits = nn.Linear(width, head_size(spec.action))
        self.value = nn.Linear(width, 1)

    def unroll(self, batch: Batch) -> Heads:
        hidden = self.body(batch.obs)  # [T, B, width]
        return {"logits": self.logits(hidden), "value": self.value(hidden).squeeze(-1)}

    def dist(self, heads: Heads, mask: Any = None) -> Any:
        return make_dist(self.spec.action, heads["logits"], mask)
