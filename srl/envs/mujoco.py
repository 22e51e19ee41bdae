"""MuJoCo tasks on `mujoco.batch`: one call steps E simulations; everything else works on arrays."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from srl.api.env import TEAM, BatchEnv, Block, Box, EnvSpec, TeamSpec
from srl.core.errors import NotImportable, UserError
from srl.core.load import load, nearest, option
from srl.core.seeds import Seeds
from srl.core.spec import Leaf
from srl.core.tree import Array, Tree
from srl.envs.drawing import require_gl
from srl.envs.mujoco_task import Task
from srl.envs.mujoco_tasks import TASKS

STATS = ("x_position", "y_position", "distance_from_origin")
"""Of gymnasium's info, what makes sense once an episode."""


@dataclass(frozen=True, kw_only=True)
class MujocoConfig:
    id: str = option(help="HalfCheetah-v5, Ant-v5, ...")
    args: Mapping[str, Any] = option({}, "settings of the task, named as in gymnasium")
    stats: tuple[str, ...] = option((), "x_position, y_position, distance_from_origin: `episode/<name>` in every log")
    threads: int = option(1, "threads that step the simulations of one group", low=1)
    max_episode_steps: int | None = option(None, "time limit instead of the task's own", low=1)
    render: bool = option(False, "render images")
    width: int = option(480, "of images, in pixels", low=16)
    height: int = option(480, "of images, in pixels", low=16)


class MujocoEnv(BatchEnv):
    """Reproduces the episodes of gymnasium's env of that name for the same seeds and actions."""

    Config: ClassVar[type] = MujocoConfig

    def __init__(self, count: int, seeds: Seeds, **args: Any) -> None:
        super().__init__(count, seeds)
        self.config: MujocoConfig = load(MujocoConfig, args, path="env")
        kind = _task(self.config.id)
        _check_stats(self.config)
        if self.config.render:
            require_gl()
        import mujoco
        from mujoco.batch import Batch

        self._mujoco = mujoco
        model = _model(mujoco, kind.file)
        model.vis.global_.offwidth, model.vis.global_.offheight = self.config.width, self.config.height
        self._batch = Batch(model, count, self.config.threads, persistent=kind.contacts)
        self._task: Task = kind(load(kind.Settings, dict(self.config.args), path="env.args"), self._batch)
        self._limit = self.config.max_episode_steps or kind.limit
        self._ctrl = self._batch.bind("ctrl")
        self._scratch = mujoco.MjData(model) if kind.contacts else None
        self._renderer: Any = None
        self._episode = np.full(count, -1, np.int64)
        self._elapsed = np.zeros(count, np.int64)
        self._ended = np.zeros(count, bool)
        columns = sum(part.shape[1] for part in self._task.parts())
        low, high = (tuple(bound.astype(np.float32).astype(float).tolist()) for bound in model.actuator_ctrlrange.T)
        team = TeamSpec(agents=(TEAM,), obs=Leaf((columns,), "float32"), action=Box((model.nu,), low, high))
        self.spec = EnvSpec(teams={TEAM: team}, stats=self.config.stats, fps=1 / self._task.dt)

    def reset(self, out: Block) -> None:
        self._begin(np.arange(self.count, dtype=np.int32))
        self._observe(out)

    def step(self, actions: Mapping[str, Tree], out: Block) -> None:
        action = np.asarray(actions[TEAM])[:, 0]
        fresh = np.flatnonzero(self._ended).astype(np.int32)
        self._ctrl[...] = action
        self._batch.step(~self._ended if fresh.size else None, nstep=self._task.frame_skip)
        if self._scratch is not None:
            self._pull_forces()
        self._elapsed += 1
        team = out.teams[TEAM]
        reward = self._task.reward(action)
        terminated = self._task.terminated()
        truncated = self._elapsed >= self._limit
        team.reward[:, 0] = reward
        if terminated is not None:
            team.terminated[:, 0] = terminated
        team.truncated[:, 0] = truncated
        ended = truncated if terminated is None else terminated | truncated
        if fresh.size:
            team.reward[fresh] = 0.0
            team.terminated[fresh] = team.truncated[fresh] = False
            ended[fresh] = False
            self._begin(fresh)
        self._ended = ended
        if self.config.stats and ended.any():
            self._write_stats(out)
        self._observe(out)

    def render(self, env: int) -> Array:
        if not self.config.render:
            raise UserError(f"env '{self.config.id}' was made without rendering", ("try", "env.render=true"))
        if self._renderer is None:
            self._renderer = self._mujoco.Renderer(self._batch.model, self.config.height, self.config.width)
        data = self._batch.get_data(env)
        self._mujoco.mj_forward(self._batch.model, data)
        self._renderer.update_scene(data, camera=0 if self._batch.model.ncam else -1)
        return np.asarray(self._renderer.render()).copy()

    def save(self) -> Tree | None:
        return {
            "state": self._batch.state.copy(),
            "place": self._task.place.copy(),
            "episode": self._episode.copy(),
            "elapsed": self._elapsed.copy(),
            "ended": self._ended.copy(),
        }

    def load(self, saved: Tree) -> None:
        assert isinstance(saved, dict)
        self._batch.state[...] = saved["state"]
        self._task.place[...] = saved["place"]
        self._episode[...] = saved["episode"]
        self._elapsed[...] = saved["elapsed"]
        self._ended = np.array(saved["ended"], bool)

    def close(self) -> None:
        if self._renderer is not None:
            self._renderer.close()
            self._renderer = None

    def _begin(self, fresh: Array) -> None:
        """New episodes, with the draws that gymnasium makes for the same seed."""
        self._batch.reset(fresh, stage=self._mujoco.mjtStage.mjSTAGE_NONE.value)
        self._episode[fresh] += 1
        self._elapsed[fresh] = 0
        self._ended[fresh] = False
        for env in fresh.tolist():
            rng = np.random.Generator(np.random.PCG64(self.seeds.seed(env, int(self._episode[env]))))
            self._task.qpos[env], self._task.qvel[env] = self._task.start(rng)
        self._batch.forward(fresh)
        self._task.forces[fresh] = 0.0

    def _observe(self, out: Block) -> None:
        obs: Any = out.teams[TEAM].obs
        np.concatenate(self._task.parts(), axis=1, out=obs[:, 0], casting="same_kind")
        now = self._task.where()
        if now is not None:
            self._task.place[...] = now

    def _pull_forces(self) -> None:
        """External forces are not part of a step: as in gymnasium, they are computed after each one."""
        for env in range(self.count):
            self._batch.get_data(env, self._scratch)
            self._mujoco.mj_rnePostConstraint(self._batch.model, self._scratch)
            self._task.forces[env] = self._scratch.cfrc_ext  # type: ignore[union-attr]

    def _write_stats(self, out: Block) -> None:
        x, y = self._task.qpos[:, 0], self._task.qpos[:, 1]
        values = {"x_position": x, "y_position": y, "distance_from_origin": np.hypot(x, y)}
        for column, name in enumerate(self.config.stats):
            out.stats[self._ended, column] = values[name][self._ended]


def plays(name: str, args: Mapping[str, Any]) -> bool:
    """True if this env supports the gymnasium id with these settings; otherwise gymnasium's own env is used."""
    if name not in TASKS or not _has_batch():
        return False
    known = {one.name for kind in (MujocoConfig, TASKS[name].Settings) for one in fields(kind)}
    inner = args.get("args", {})
    return set(args) <= known and set(inner) <= known and set(args.get("stats", ())) <= set(STATS)


def _has_batch() -> bool:
    """True if this MuJoCo version steps batches. Does not import it: MUJOCO_GL may not be set yet."""
    spec = importlib.util.find_spec("mujoco")
    return spec is not None and any((Path(folder) / "batch.py").is_file() for folder in spec.submodule_search_locations or ())


def _model(mujoco: Any, file: str) -> Any:
    """Gymnasium's model, without the deprecation warnings about its XML and without a MUJOCO_LOG.TXT in the working folder."""
    before = mujoco.get_mju_user_warning()
    mujoco.set_mju_user_warning(lambda text: None)
    try:
        return mujoco.MjModel.from_xml_path(str(_assets() / file))
    finally:
        mujoco.set_mju_user_warning(before)


def _task(name: str) -> type[Task]:
    if name not in TASKS:
        error = NotImportable(f"no MuJoCo task is called '{name}'")
        if near := nearest(name, list(TASKS)):
            error.add("did you mean", f"{near}?")
        error.add("known", ", ".join(TASKS))
        raise error
    return TASKS[name]


def _check_stats(config: MujocoConfig) -> None:
    for name in config.stats:
        if name not in STATS:
            raise UserError(f"'{config.id}' has no stat '{name}' here", ("known", ", ".join(STATS)), ("try", "use: gym"))


def _assets() -> Path:
    spec = importlib.util.find_spec("gymnasium.envs.mujoco")
    assert spec is not None and spec.origin is not None
    return Path(spec.origin).parent / "assets"
