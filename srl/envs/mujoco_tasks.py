"""The MuJoCo tasks of gymnasium v5 on arrays of simulations: starts, observations, rewards, ends. No gymnasium, no physics.

Names, settings and numbers are gymnasium's; every task reads a `mujoco.batch.Batch`, one row per copy.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from srl.core.tree import Array

INF = float("inf")


@dataclass(frozen=True, kw_only=True)
class NoSettings:
    """A task with nothing to choose."""


class Task(ABC):
    """One task over all copies."""

    file: ClassVar[str]
    frame_skip: ClassVar[int]
    limit: ClassVar[int] = 1000
    contacts: ClassVar[bool] = False
    """Needs external forces after the step, which takes the simulations one by one."""
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
        """Where each copy was before the step."""

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
        """[E], or None for tasks that only run out of time."""
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


@dataclass(frozen=True, kw_only=True)
class CheetahSettings:
    forward_reward_weight: float = 1.0
    ctrl_cost_weight: float = 0.1
    reset_noise_scale: float = 0.1
    exclude_current_positions_from_observation: bool = True


class HalfCheetah(Task):
    file, frame_skip = "half_cheetah.xml", 5
    Settings: ClassVar[type] = CheetahSettings
    skipped = 1
    """Columns of qpos that say where it is; left out by default."""

    def start(self, rng: np.random.Generator) -> tuple[Array, Array]:
        scale = self.settings.reset_noise_scale
        qpos = self.model.qpos0 + self._uniform(rng, scale, self.model.nq)
        return qpos, scale * rng.standard_normal(self.model.nv)

    def parts(self) -> list[Array]:
        skipped = self.skipped * self.settings.exclude_current_positions_from_observation
        return [self.qpos[:, skipped:], self.qvel]

    def where(self) -> Array:
        return self.qpos[:, :2]

    def reward(self, action: Array) -> Array:
        settings = self.settings
        return settings.forward_reward_weight * self._speed() - settings.ctrl_cost_weight * _squares(action)  # type: ignore[no-any-return]


@dataclass(frozen=True, kw_only=True)
class SwimmerSettings(CheetahSettings):
    ctrl_cost_weight: float = 1e-4


class Swimmer(HalfCheetah):
    file, frame_skip = "swimmer.xml", 4
    Settings: ClassVar[type] = SwimmerSettings
    skipped = 2

    def start(self, rng: np.random.Generator) -> tuple[Array, Array]:
        scale = self.settings.reset_noise_scale
        qpos = self.model.qpos0 + self._uniform(rng, scale, self.model.nq)
        return qpos, self._uniform(rng, scale, self.model.nv)


@dataclass(frozen=True, kw_only=True)
class HopperSettings:
    forward_reward_weight: float = 1.0
    ctrl_cost_weight: float = 1e-3
    healthy_reward: float = 1.0
    terminate_when_unhealthy: bool = True
    healthy_state_range: tuple[float, float] = (-100.0, 100.0)
    healthy_z_range: tuple[float, float] = (0.7, INF)
    healthy_angle_range: tuple[float, float] = (-0.2, 0.2)
    reset_noise_scale: float = 5e-3
    exclude_current_positions_from_observation: bool = True


class Hopper(Swimmer):
    file, frame_skip = "hopper.xml", 4
    Settings: ClassVar[type] = HopperSettings
    skipped = 1

    def parts(self) -> list[Array]:
        skipped = self.skipped * self.settings.exclude_current_positions_from_observation
        return [self.qpos[:, skipped:], np.clip(self.qvel, -10, 10)]

    def healthy(self) -> Array:
        low, high = self.settings.healthy_state_range
        rest = np.concatenate([self.qpos[:, 2:], self.qvel], axis=1)
        return ((low < rest) & (rest < high)).all(axis=1) & self._upright()  # type: ignore[no-any-return]

    def reward(self, action: Array) -> Array:
        return super().reward(action) + self.settings.healthy_reward * self.healthy()  # type: ignore[no-any-return]

    def terminated(self) -> Array | None:
        return ~self.healthy() if self.settings.terminate_when_unhealthy else None

    def _upright(self) -> Array:
        z, angle = self.qpos[:, 1], self.qpos[:, 2]
        return _between(z, self.settings.healthy_z_range) & _between(angle, self.settings.healthy_angle_range)


@dataclass(frozen=True, kw_only=True)
class WalkerSettings:
    forward_reward_weight: float = 1.0
    ctrl_cost_weight: float = 1e-3
    healthy_reward: float = 1.0
    terminate_when_unhealthy: bool = True
    healthy_z_range: tuple[float, float] = (0.8, 2.0)
    healthy_angle_range: tuple[float, float] = (-1.0, 1.0)
    reset_noise_scale: float = 5e-3
    exclude_current_positions_from_observation: bool = True


class Walker2d(Hopper):
    file, frame_skip = "walker2d_v5.xml", 4
    Settings: ClassVar[type] = WalkerSettings

    def healthy(self) -> Array:
        return self._upright()


@dataclass(frozen=True, kw_only=True)
class AntSettings:
    forward_reward_weight: float = 1.0
    ctrl_cost_weight: float = 0.5
    contact_cost_weight: float = 5e-4
    healthy_reward: float = 1.0
    terminate_when_unhealthy: bool = True
    healthy_z_range: tuple[float, float] = (0.2, 1.0)
    contact_force_range: tuple[float, float] = (-1.0, 1.0)
    reset_noise_scale: float = 0.1
    exclude_current_positions_from_observation: bool = True
    include_cfrc_ext_in_observation: bool = True


class Ant(HalfCheetah):
    file, frame_skip, contacts = "ant.xml", 5, True
    Settings: ClassVar[type] = AntSettings
    skipped = 2

    def __init__(self, settings: Any, batch: Any) -> None:
        super().__init__(settings, batch)
        self._xpos: Array = batch.bind("xpos")

    def parts(self) -> list[Array]:
        parts = super().parts()
        if self.settings.include_cfrc_ext_in_observation:
            parts.append(self._clipped()[:, 1:].reshape(len(self.qpos), -1))
        return parts

    def where(self) -> Array:
        return self._xpos[:, 1, :2]

    def healthy(self) -> Array:
        low, high = self.settings.healthy_z_range
        z = self.qpos[:, 2]
        finite = np.isfinite(self.qpos).all(axis=1) & np.isfinite(self.qvel).all(axis=1)
        return finite & (low <= z) & (z <= high)  # type: ignore[no-any-return]

    def reward(self, action: Array) -> Array:
        contact = self.settings.contact_cost_weight * _squares(self._clipped())
        return super().reward(action) + self.settings.healthy_reward * self.healthy() - contact  # type: ignore[no-any-return]

    def terminated(self) -> Array | None:
        return ~self.healthy() if self.settings.terminate_when_unhealthy else None

    def _clipped(self) -> Array:
        low, high = self.settings.contact_force_range
        return np.clip(self.forces, low, high)  # type: ignore[no-any-return]


@dataclass(frozen=True, kw_only=True)
class BodySettings:
    """What an observation of a humanoid holds."""

    ctrl_cost_weight: float = 0.1
    reset_noise_scale: float = 1e-2
    exclude_current_positions_from_observation: bool = True
    include_cinert_in_observation: bool = True
    include_cvel_in_observation: bool = True
    include_qfrc_actuator_in_observation: bool = True
    include_cfrc_ext_in_observation: bool = True


@dataclass(frozen=True, kw_only=True)
class HumanoidSettings(BodySettings):
    forward_reward_weight: float = 1.25
    contact_cost_weight: float = 5e-7
    contact_cost_range: tuple[float, float] = (-INF, 10.0)
    healthy_reward: float = 5.0
    terminate_when_unhealthy: bool = True
    healthy_z_range: tuple[float, float] = (1.0, 2.0)


class Humanoid(Swimmer):
    file, frame_skip, contacts = "humanoid.xml", 5, True
    Settings: ClassVar[type] = HumanoidSettings
    skipped = 2

    def __init__(self, settings: Any, batch: Any) -> None:
        super().__init__(settings, batch)
        self._cinert, self._cvel = batch.bind("cinert"), batch.bind("cvel")
        self._actuator, self._xipos = batch.bind("qfrc_actuator"), batch.bind("xipos")
        self._ctrl = batch.bind("ctrl")

    def parts(self) -> list[Array]:
        settings, copies = self.settings, len(self.qpos)
        wanted = [
            (settings.include_cinert_in_observation, self._cinert[:, 1:]),
            (settings.include_cvel_in_observation, self._cvel[:, 1:]),
            (settings.include_qfrc_actuator_in_observation, self._actuator[:, 6:]),
            (settings.include_cfrc_ext_in_observation, self.forces[:, 1:]),
        ]
        return super().parts() + [part.reshape(copies, -1) for shown, part in wanted if shown]

    def where(self) -> Array:
        mass = self.model.body_mass[:, None]
        return ((mass * self._xipos).sum(axis=1) / mass.sum())[:, :2]  # type: ignore[no-any-return]

    def reward(self, action: Array) -> Array:
        settings = self.settings
        contact = np.clip(settings.contact_cost_weight * _squares(self.forces), *settings.contact_cost_range)
        forward = settings.forward_reward_weight * self._speed() + settings.healthy_reward * self.healthy()
        return forward - settings.ctrl_cost_weight * _squares(self._ctrl) - contact  # type: ignore[no-any-return]

    def healthy(self) -> Array:
        return _between(self.qpos[:, 2], self.settings.healthy_z_range)

    def terminated(self) -> Array | None:
        return ~self.healthy() if self.settings.terminate_when_unhealthy else None


@dataclass(frozen=True, kw_only=True)
class StandupSettings(BodySettings):
    uph_cost_weight: float = 1.0
    impact_cost_weight: float = 0.5e-6
    impact_cost_range: tuple[float, float] = (-INF, 10.0)


class HumanoidStandup(Humanoid):
    file = "humanoidstandup.xml"
    Settings: ClassVar[type] = StandupSettings

    def reward(self, action: Array) -> Array:
        settings = self.settings
        height = self.qpos[:, 2] / float(self.model.opt.timestep)
        impact = np.clip(settings.impact_cost_weight * _squares(self.forces), *settings.impact_cost_range)
        return height - settings.ctrl_cost_weight * _squares(self._ctrl) - impact + 1.0  # type: ignore[no-any-return]

    def terminated(self) -> Array | None:
        return None


@dataclass(frozen=True, kw_only=True)
class PendulumSettings:
    reset_noise_scale: float = 0.01


class InvertedPendulum(Task):
    file, frame_skip = "inverted_pendulum.xml", 2
    Settings: ClassVar[type] = PendulumSettings

    def start(self, rng: np.random.Generator) -> tuple[Array, Array]:
        scale = self.settings.reset_noise_scale
        qpos = self.model.qpos0 + self._uniform(rng, scale, self.model.nq)
        return qpos, self._uniform(rng, scale, self.model.nv)

    def parts(self) -> list[Array]:
        return [self.qpos, self.qvel]

    def reward(self, action: Array) -> Array:
        return 1.0 - self.terminated()

    def terminated(self) -> Array:
        finite = np.isfinite(self.qpos).all(axis=1) & np.isfinite(self.qvel).all(axis=1)
        return ~finite | (np.abs(self.qpos[:, 1]) > 0.2)


@dataclass(frozen=True, kw_only=True)
class DoublePendulumSettings:
    healthy_reward: float = 10.0
    reset_noise_scale: float = 0.1


class InvertedDoublePendulum(Task):
    file, frame_skip = "inverted_double_pendulum.xml", 5
    Settings: ClassVar[type] = DoublePendulumSettings

    def __init__(self, settings: Any, batch: Any) -> None:
        super().__init__(settings, batch)
        self._tip, self._constraint = batch.bind("site_xpos"), batch.bind("qfrc_constraint")

    def start(self, rng: np.random.Generator) -> tuple[Array, Array]:
        scale = self.settings.reset_noise_scale
        qpos = self.model.qpos0 + self._uniform(rng, scale, self.model.nq)
        return qpos, rng.standard_normal(self.model.nv) * scale

    def parts(self) -> list[Array]:
        angles = self.qpos[:, 1:]
        constraint = np.clip(self._constraint[:, :1], -10, 10)
        return [self.qpos[:, :1], np.sin(angles), np.cos(angles), np.clip(self.qvel, -10, 10), constraint]

    def reward(self, action: Array) -> Array:
        x, y = self._tip[:, 0, 0], self._tip[:, 0, 2]
        distance = 0.01 * x**2 + (y - 2) ** 2
        speed = 1e-3 * self.qvel[:, 1] ** 2 + 5e-3 * self.qvel[:, 2] ** 2
        return self.settings.healthy_reward * ~self.terminated() - distance - speed  # type: ignore[no-any-return]

    def terminated(self) -> Array:
        return self._tip[:, 0, 2] <= 1  # type: ignore[no-any-return]


@dataclass(frozen=True, kw_only=True)
class ReacherSettings:
    reward_dist_weight: float = 1.0
    reward_control_weight: float = 1.0


class Reacher(Task):
    file, frame_skip, limit = "reacher.xml", 2, 50
    Settings: ClassVar[type] = ReacherSettings

    def __init__(self, settings: Any, batch: Any) -> None:
        super().__init__(settings, batch)
        self._finger, self._target = batch.body("fingertip"), batch.body("target")

    def start(self, rng: np.random.Generator) -> tuple[Array, Array]:
        qpos = self._uniform(rng, 0.1, self.model.nq) + self.model.qpos0
        while np.linalg.norm(goal := rng.uniform(low=-0.2, high=0.2, size=2)) >= 0.2:
            pass
        qpos[-2:] = goal
        qvel = self._uniform(rng, 0.005, self.model.nv)
        qvel[-2:] = 0
        return qpos, qvel

    def parts(self) -> list[Array]:
        theta = self.qpos[:, :2]
        return [np.cos(theta), np.sin(theta), self.qpos[:, 2:], self.qvel[:, :2], self._gap()[:, :2]]

    def reward(self, action: Array) -> Array:
        settings = self.settings
        distance = np.linalg.norm(self._gap(), axis=1)
        return -settings.reward_dist_weight * distance - settings.reward_control_weight * _squares(action)  # type: ignore[no-any-return]

    def _gap(self) -> Array:
        return self._finger.xpos - self._target.xpos  # type: ignore[no-any-return]


@dataclass(frozen=True, kw_only=True)
class PusherSettings:
    reward_near_weight: float = 0.5
    reward_dist_weight: float = 1.0
    reward_control_weight: float = 0.1


class Pusher(Task):
    file, frame_skip, limit = "pusher_v5.xml", 5, 100
    Settings: ClassVar[type] = PusherSettings

    def __init__(self, settings: Any, batch: Any) -> None:
        super().__init__(settings, batch)
        self._tips, self._object, self._goal = (batch.body(name) for name in ("tips_arm", "object", "goal"))

    def start(self, rng: np.random.Generator) -> tuple[Array, Array]:
        qpos = np.array(self.model.qpos0)
        while True:
            cylinder = np.concatenate([rng.uniform(-0.3, 0, 1), rng.uniform(-0.2, 0.2, 1)])
            if np.linalg.norm(cylinder) > 0.17:
                break
        qpos[-4:-2], qpos[-2:] = cylinder, 0.0
        qvel = self._uniform(rng, 0.005, self.model.nv)
        qvel[-4:] = 0
        return qpos, qvel

    def parts(self) -> list[Array]:
        return [self.qpos[:, :7], self.qvel[:, :7], self._tips.xpos, self._object.xpos, self._goal.xpos]

    def reward(self, action: Array) -> Array:
        settings = self.settings
        near = np.linalg.norm(self._object.xpos - self._tips.xpos, axis=1)
        far = np.linalg.norm(self._object.xpos - self._goal.xpos, axis=1)
        cost = settings.reward_control_weight * _squares(action)
        return -settings.reward_dist_weight * far - cost - settings.reward_near_weight * near  # type: ignore[no-any-return]


TASKS: dict[str, type[Task]] = {
    f"{task.__name__}-v5": task
    for task in (
        HalfCheetah, Hopper, Walker2d, Swimmer, Ant, Humanoid, HumanoidStandup,
        InvertedPendulum, InvertedDoublePendulum, Reacher, Pusher,
    )
}  # fmt: skip


def _squares(values: Array) -> Array:
    """[E] sum of squares of each copy."""
    flat = values.reshape(len(values), -1)
    return np.einsum("ij,ij->i", flat, flat)  # type: ignore[no-any-return]


def _between(values: Array, bounds: tuple[float, float]) -> Array:
    return (bounds[0] < values) & (values < bounds[1])
