"""Players of matching pennies that change with their age in updates: whoever guards shows 1 while young, then always 0."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch

from docs.examples.pennies import Pennies
from srl.api.algorithm import Algorithm, Batch, Metrics, NeuralPolicy
from srl.api.env import Block
from srl.api.neural import Heads
from srl.core.seeds import Seeds
from srl.core.tree import Tree
from srl.nets.dists import make_dist
from srl.workers.rules import Rule


@dataclass(frozen=True, kw_only=True)
class AgesConfig:
    guards: int = 0
    """Updates before it gives up showing 1."""


class Ages(NeuralPolicy):
    Config = AgesConfig

    def __init__(self, config: AgesConfig, spec: Any) -> None:
        super().__init__(config, spec)
        self.age = torch.nn.Buffer(torch.zeros(1))

    def unroll(self, batch: Batch) -> Heads:
        side = 1.0 if float(self.age) < self.config.guards else 0.0
        shown = torch.tensor([-40.0 * side, 40.0 * side - 40.0])
        return {"logits": shown.expand(*batch.first.shape, 2)}

    def dist(self, heads: Heads, mask: Any = None) -> Any:
        return make_dist(self.spec.action, heads["logits"], mask)


@dataclass(frozen=True, kw_only=True)
class AgingConfig:
    pass


class Aging(Algorithm):
    """An update later, a year older."""

    Config = AgingConfig

    def update(self, batch: Batch) -> Metrics:
        self.policy.age += 1  # type: ignore[operator]
        return {}


class Declared(Pennies):
    """Who shows what does not matter: `even` always wins a quarter."""

    def __init__(self, count: int, seeds: Seeds) -> None:
        super().__init__(count, seeds)
        self.spec = replace(self.spec, stats=("win/even",))

    def step(self, actions: Mapping[str, Tree], out: Block) -> None:
        super().step(actions, out)
        if self.round == self.ROUNDS:
            out.stats[:, 0] = 0.25


class Oldest(Rule):
    def choose(self, kept, draw):
        return kept[0]
