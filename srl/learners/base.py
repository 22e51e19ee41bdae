"""The learner protocol: a learner runs one algorithm on its devices. Trainers use only this protocol."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from srl.api.policy import PolicySpec
from srl.api.slab import SlabShape
from srl.core.tree import Array

if TYPE_CHECKING:  # torch: trainers are looked at where nothing is learned
    from srl.api.algorithm import Algorithm, Clock, Feedback, NeuralPolicy
    from srl.api.batch import Ranks

Groups: TypeAlias = "dict[str, dict[str, Array]]"
"""The arrays of a checkpoint: group -> name -> array. Those of the policy are the group `policy`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """The arguments of a learner: algorithm, policy, batch sizes, device."""

    algorithm: type[Algorithm]
    config: Any
    """Of the algorithm."""
    policy: type[NeuralPolicy]
    policy_config: Any
    spec: PolicySpec
    shape: SlabShape
    """Sizes of a batch."""
    seed: int
    device: str = "cpu"
    threads: int = 1
    weights: Mapping[str, Array] | None = None
    """Initial weights of the policy; layers that are not included keep their random initialization."""
    between: Callable[[], None] | None = None
    """Called between two minibatches: the trainer reads its messages then."""
    ranks: Ranks | None = None
    """The learners that train the policy together; None: this one alone. They have not met yet when a learner is made."""


class Learner(Protocol):
    """A class with `__init__(task, config)`, and `Config` if it has settings. The trainer sets `clock` before every update.

    `knows_ranks = True` if several may train one policy together (`Task.ranks`). `tell(rows)`, if it has one that is not None, is
    called with the batch of a later update as soon as that has come; its memory stays as it is until then.
    """

    clock: Clock

    def update(self, rows: Mapping[str, Any]) -> Feedback | None:
        """Learn from a batch. Its memory is free again when this returns; the feedback goes to the source of the batch."""

    def params(self) -> Mapping[str, Array]:
        """What is published, by name; it may change at the next update."""

    def metrics(self) -> dict[str, float]:
        """Means since the last call."""

    def resumable(self) -> bool:
        """True if a checkpoint can be taken now."""

    def state(self) -> tuple[Groups, dict[str, Any]]:
        """Copies of all arrays that learning depends on, and the rest as plain data."""

    def restore(self, groups: Mapping[str, Mapping[str, Array]], state: Mapping[str, Any]) -> None:
        """Continue exactly from `state()`; nothing is taken unless everything fits."""

    def close(self) -> None:
        """Give everything back. Idempotent."""
