"""A learner of your own: policies act with a running average of the weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from srl.core.load import option
from srl.learners.single import SingleLearner


@dataclass(frozen=True)
class AveragedConfig:
    decay: float = option(0.5, "weight of the old average at each update", low=0, below=1)


class Averaged(SingleLearner):
    Config = AveragedConfig

    def __init__(self, task: Any, config: AveragedConfig) -> None:
        super().__init__(task, config)
        self.average = {name: array.copy() for name, array in super().params().items()}

    def update(self, rows: Any) -> Any:
        feedback = super().update(rows)
        for name, array in super().params().items():
            self.average[name] += (1.0 - self.config.decay) * (array - self.average[name])
        return feedback

    def params(self) -> Any:
        return self.average

    def state(self) -> Any:
        groups, rest = super().state()
        return {**groups, "average": {name: array.copy() for name, array in self.average.items()}}, rest

    def restore(self, groups: Any, state: Any) -> None:
        super().restore(groups, state)
        self.average = {name: array.copy() for name, array in groups["average"].items()}
