"""Algorithms: the one class to write for a new way of learning. The only door, with its batch and policy, that knows torch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, Protocol, TypeAlias

import torch
from torch import Tensor, nn

from srl.api.batch import Batch
from srl.api.neural import Dist, Heads, NeuralPolicy
from srl.api.policy import PolicySpec
from srl.core.schedule import Schedule

__all__ = [
    "Algorithm", "Batch", "Clock", "Dist", "Driver", "Heads", "Metrics", "Needs", "NeuralPolicy", "Optimizer", "Window",
]  # fmt: skip

Metrics: TypeAlias = "Mapping[str, float | Tensor]"
"""Numbers of one update; tensors stay on the device until a report is due."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """Rows around the `length` trained ones: burn-in before; bootstrap, n-step or unroll after."""

    length: int | None = None
    """None: the whole slab."""
    before: int = 0
    after: int = 1
    stride: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """What an algorithm asks of everything around it; `check` names who gives each."""

    extra: tuple[str, ...] = ()
    """Leaves of Act.extra, env signals, or a Transform's."""
    heads: tuple[str, ...] = ()
    window: Window = field(default_factory=Window)
    memory_every: int | None = None
    """Memory recorded at every k-th row: chunked training inside a slab."""
    chunk: int | None = None
    """Rows of the sequences that `update` cuts with `batch.minibatches`, for `check`; None: it takes slabs as they are."""
    burn_in: int = 0
    """Rows in front of each sequence."""
    joint: bool = False
    """The batch keeps agents apart, `[T, B, A, ...]`."""
    replay: Literal[None, "uniform", "prioritised"] = None


@dataclass(slots=True)
class Clock:
    """How far the run is; the trainer sets it before every update."""

    env_steps: int = 0
    updates: int = 0
    progress: float = 0.0
    """0 at the start, 1 at the end of the run."""


class Optimizer(Protocol):
    """What `Algorithm.optimizer` gives."""

    norm: Tensor
    """Of the last gradient, before it was clipped."""

    def step(self, loss: Tensor) -> None:
        """Backward, sum over ranks, clip, schedule, step."""
        ...

    def apply(self) -> None:
        """The same without backward: the gradient is there already."""
        ...


class Driver(Protocol):
    """What a learner gives the algorithm that it drives."""

    device: torch.device

    def optimizer(self, modules: tuple[nn.Module | Tensor, ...], lr: float | Schedule, clip: float | None) -> Optimizer: ...


class Algorithm(ABC):
    """`setup` and `update` are enough. Modules, optimizers and tensors set on self are checkpointed."""

    Config: ClassVar[type]
    """A frozen dataclass whose fields are `option(default, "help", low=, high=, choices=)`."""

    def __init__(self, *, config: Any, policy: NeuralPolicy, spec: PolicySpec, clock: Clock, driver: Driver) -> None:
        self.config = config
        self.policy = policy
        self.spec = spec
        self.clock = clock
        self.device = driver.device
        self._driver = driver

    @classmethod
    def needs(cls, config: Any, spec: PolicySpec) -> Needs:
        """What must be recorded and how; asked before anything is built."""
        return Needs()

    def setup(self) -> None:
        """Make critics, targets and optimizers."""

    @abstractmethod
    def update(self, batch: Batch) -> Metrics:
        """Learn from one batch. Its memory is reused afterwards."""

    def optimizer(self, *modules: nn.Module | Tensor, lr: float | Schedule, clip: float | None = None) -> Optimizer:
        """Adam on one flat tensor; `step(loss)` does backward, sum over ranks, clip to the norm `clip`, schedule, step."""
        return self._driver.optimizer(modules, lr, clip)

    def reconfigure(self, config: Any) -> None:
        """Take changed live settings."""
        self.config = config

    def published(self) -> nn.Module:
        """The module whose parameters and buffers travel to the policies."""
        return self.policy

    def resumable(self) -> bool:
        """False amid a phase: the checkpoint waits."""
        return True
