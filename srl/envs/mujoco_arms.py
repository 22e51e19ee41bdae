"""Gymnasium's v5 tasks with a fixed base, with its settings and constants: pendulums, reacher, pusher."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from srl.core.tree import Array
from srl.envs.mujoco_task import Task, squares


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
        return -settings.reward_dist_weight * distance - settings.reward_control_weight * squares(action)  # type: ignore[no-any-return]

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
        cost = settings.reward_control_weight * squares(action)
        return -settings.reward_dist_weight * far - cost - settings.reward_near_weight * near  # type: ignore[no-any-return]
