"""Algorithms: the one class to write for a new way of learning."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, Protocol, TypeAlias, TypeVar

import torch
from torch import Tensor, nn

from srl.api.batch import Batch, Feedback
from srl.api.neural import Dist, Heads, NeuralPolicy
from srl.api.policy import NoConfig, PolicySpec
from srl.api.slab import Replayed, Window
from srl.core.schedule import Schedule

__all__ = [
    "Algorithm", "Batch", "Clock", "Dist", "Feedback", "Heads", "Metrics", "Needs", "NeuralPolicy", "NoConfig", "Optimizer",
    "Replayed", "Window",
]  # fmt: skip

Metrics: TypeAlias = "Mapping[str, float | Tensor]"
"""Numbers of one update; tensors stay on the device until a report is due."""
_R = TypeVar("_R")


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """What an algorithm asks of everything around it; `check` names who gives each."""

    extra: tuple[str, ...] = ()
    """Leaves of Act.extra, env signals, or a Transform's."""
    window: Window = field(default_factory=Window)
    """The rows that are trained together: memory is recorded where windows begin."""
    joint: bool = False
    """The batch keeps agents apart, `[T, B, A, ...]`."""
    replay: Replayed | None = None
    """Batches are drawn from a replay; None: they are the newest rows, each used once."""


@dataclass(slots=True)
class Clock:
    """How far the run is; the trainer sets it before every update."""

    env_steps: int = 0
    updates: int = 0
    progress: float = 0.0
    """0 at the start, 1 at the end of the run."""
    steps: int = field(default=0, compare=False)
    """Of the optimizer that made most, in this process."""
    rows: int = field(default=0, compare=False)
    """That were trained on in this process, once for each pass."""


class Optimizer(Protocol):
    """What `Algorithm.optimizer` returns."""

    norm: Tensor
    """Of the last gradient, before it was clipped."""

    def step(self, loss: Tensor) -> None:
        """Backward, sum over ranks, clip, schedule, step."""
        ...

    def backward(self, loss: Tensor) -> None:
        """The first half of `step`, for parts that run together."""
        ...

    def apply(self) -> None:
        """The second half."""
        ...


class Algorithm(nn.Module, ABC):
    """`setup` and `update` are enough.

    What it holds is checkpointed: networks (also in lists and dicts), optimizers of `self.optimizer` or of torch.optim,
    tensors, and numbers that change. A checkpoint that would lose something is refused by its name.
    """

    Config: ClassVar[type] = NoConfig
    """A frozen dataclass whose fields are `option(default, "help", low=, high=)`."""
    Policy: ClassVar[type] = NeuralPolicy
    """What it can train."""

    def __init__(
        self, *, config: Any, policy: NeuralPolicy, spec: PolicySpec, clock: Clock, device: torch.device,
        make_optimizer: Callable[..., Optimizer], together: Callable[[Sequence[Callable[[], Any]]], list[Any]] | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self.config = config
        self.policy = policy
        self.spec = spec
        self.clock = clock
        self.device = device
        self._make_optimizer = make_optimizer
        self._together = together or _in_turn

    @classmethod
    def needs(cls, config: Any, spec: PolicySpec) -> Needs:
        """What must be recorded and how; asked before anything is built."""
        return Needs()

    def setup(self) -> None:
        """Make critics, targets and optimizers."""

    @abstractmethod
    def update(self, batch: Batch) -> Metrics:
        """Learn from one batch. Its memory is reused afterwards."""

    def optimizer(
        self,
        *modules: nn.Module | Tensor,
        lr: float | Schedule,
        clip: float | None = None,
        kind: Literal["adam", "adamw", "rmsprop"] = "adam",
        **settings: Any,
    ) -> Optimizer:
        """One optimizer of these parameters. `step(loss)`: backward, sum over ranks, clip to the norm `clip`, step.

        `settings`: `eps` and `weight_decay`, of Adam `betas`, of RMSProp `alpha` and `momentum`. `average`: of a loss that is no
        mean over rows, so that every rank computes all of it.
        """
        return self._make_optimizer(modules, lr=lr, clip=clip, kind=kind, **settings)

    def together(self, *parts: Callable[[], _R], at_once: bool = True) -> list[_R]:
        """What the parts return. They run at the same time if the trainer has threads for them (`workers.trainer.threads`): none
        may change what another one reads, or draw random numbers. Without `at_once` they run one after the other."""
        return (self._together if at_once else _in_turn)(parts)

    def published(self) -> nn.Module:
        """The module whose parameters and buffers travel to the policies."""
        return self.policy

    def resumable(self) -> bool:
        """False amid a phase: the checkpoint waits."""
        return True

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, _registered(value))


def _in_turn(parts: Sequence[Callable[[], Any]]) -> list[Any]:
    return [part() for part in parts]


def _registered(value: Any) -> Any:
    """Lists and dicts of networks as torch's own, so that they are in `state_dict()` and `parameters()`."""
    if isinstance(value, list | tuple) and value:
        items = [_registered(one) for one in value]
        if all(isinstance(one, nn.Module) for one in items):
            return nn.ModuleList(items)
        if all(isinstance(one, nn.Parameter) for one in items):
            return nn.ParameterList(items)
    elif isinstance(value, dict) and value and all(isinstance(key, str) for key in value):
        members = {key: _registered(one) for key, one in value.items()}
        if all(isinstance(one, nn.Module) for one in members.values()):
            return nn.ModuleDict(members)
        if all(isinstance(one, nn.Parameter) for one in members.values()):
            return nn.ParameterDict(members)
    return value
