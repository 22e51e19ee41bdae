"""A MuJoCo task on arrays of simulations: resets, observations, rewards, terminations. No gymnasium, no physics."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from srl.core.tree import Array


@dataclass(frozen=True, kw_only=True)
class NoSettings:
    """A task without settings."""


class Task(ABC):
    """One task over all copies."""

    file: ClassVar[str]
    frame_skip: ClassVar[int]
    limit: ClassVar[int] = 1000
    contacts: ClassVar[bool] = False
    """The task needs external forces after the step, which are computed one simulation at a time."""
    Settings: ClassVar[type] = NoSettings

    def __init__(self, settings: Any, batch: Any) -> None:
        self.settings = settings
        self.batch = batch
        self.model = batch.model
        self.dt = float(self.model.opt.timestep) * self.frame_skip
        self.qpos: Array = batch.bind("qpos")
        self.qvel: Array = batch.bind("qvel")
        self.forces: Array = np.zeros((batch.nsim, self.model.nbody, 6))
        """External forces on each body; zero after a reset, as in gymnasium."""
        self.place: Array = np.zeros((batch.nsim, 2))
        """Position of each copy before the step."""

    @abstractmethod
    def start(self, rng: np.random.Generator) -> tuple[Array, Array]:
        """qpos and qvel of a new episode, drawn as gymnasium draws them."""

    @abstractmethod
    def parts(self) -> list[Array]:
        """The observation of all copies, as blocks of columns."""

    @abstractmethod
    def reward(self, action: Array) -> Array:
        """[E] of the step from `place` to now."""

    def terminated(self) -> Array | None:
        """[E], or None for tasks that end only by the time limit."""
        return None

    def where(self) -> Array | None:
        """[E, 2] the position that counts as progress, if the reward needs it."""
        return None

    def _uniform(self, rng: np.random.Generator, scale: float, size: int) -> Array:
        return rng.uniform(low=-scale, high=scale, size=size)

    def _speed(self) -> Array:
        """[E] forward speed since `place`."""
        now = self.where()
        assert now is not None
        return (now[:, 0] - self.place[:, 0]) / self.dt


def squares(values: Array) -> Array:
    """[E] sum of squares of each copy."""
    flat = values.reshape(len(values), -1)
    return np.einsum("ij,ij->i", flat, flat)  # type: ignore[no-any-return]


def between(values: Array, bounds: tuple[float, float]) -> Array:
    return (bounds[0] < values) & (values < bounds[1])
