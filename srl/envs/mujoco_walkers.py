"""Gymnasium's v5 locomotion tasks, with its settings and constants: cheetah, swimmer, hopper, walker, ant, humanoids."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from srl.core.tree import Array
from srl.envs.mujoco_task import Task, between, squares

INF = float("inf")


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
    """Columns of qpos with the position; excluded by default."""

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
        return settings.forward_reward_weight * self._speed() - settings.ctrl_cost_weight * squares(action)  # type: ignore[no-any-return]


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
        return between(z, self.settings.healthy_z_range) & between(angle, self.settings.healthy_angle_range)


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
        contact = self.settings.contact_cost_weight * squares(self._clipped())
        return super().reward(action) + self.settings.healthy_reward * self.healthy() - contact  # type: ignore[no-any-return]

    def terminated(self) -> Array | None:
        return ~self.healthy() if self.settings.terminate_when_unhealthy else None

    def _clipped(self) -> Array:
        low, high = self.settings.contact_force_range
        return np.clip(self.forces, low, high)


@dataclass(frozen=True, kw_only=True)
class BodySettings:
    """Parts of a humanoid's observation."""

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
        contact = np.clip(settings.contact_cost_weight * squares(self.forces), *settings.contact_cost_range)
        forward = settings.forward_reward_weight * self._speed() + settings.healthy_reward * self.healthy()
        return forward - settings.ctrl_cost_weight * squares(self._ctrl) - contact  # type: ignore[no-any-return]

    def healthy(self) -> Array:
        return between(self.qpos[:, 2], self.settings.healthy_z_range)

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
        impact = np.clip(settings.impact_cost_weight * squares(self.forces), *settings.impact_cost_range)
        return height - settings.ctrl_cost_weight * squares(self._ctrl) - impact + 1.0  # type: ignore[no-any-return]

    def terminated(self) -> Array | None:
        return None
