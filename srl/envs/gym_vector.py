"""Envs that step all their copies at once, such as gymnasium's CartPoleVectorEnv."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode

from srl.api.env import TEAM, Block, EnvSpec, TeamSpec
from srl.core.errors import SrlError, UserError
from srl.core.load import load, option
from srl.core.registry import import_path
from srl.core.seeds import Seeds
from srl.core.tree import Array, Tree, leaves, map_tree
from srl.envs.drawing import choose_gl
from srl.envs.faults import Copies, FaultConfig, Lost, RestartableEnv, Spot, bad_observation, bad_step, name_of
from srl.envs.gym import is_path
from srl.envs.saving import pack_rng, unpack_rng
from srl.envs.spaces import Fault, actions_of, obs_of


@dataclass(frozen=True, kw_only=True)
class GymVectorConfig(FaultConfig):
    id: Any = option(
        help="a gymnasium id with a vector entry point, or a function or pkg.mod:function (num_envs=, ...) that makes a VectorEnv"
    )
    args: Mapping[str, Any] = option({}, "keywords of the env")
    stats: tuple[str, ...] = option((), "info keys read when an episode ends: `episode/<name>` in every log")
    render: bool = option(False, "render images (render_mode rgb_array)")
    checked: int = option(100, "number of first ticks whose observations are checked", low=0)


class GymVectorEnv(RestartableEnv):
    """An env that steps all its E copies at once, such as gymnasium's CartPoleVectorEnv. One seed for all copies.

    If one fails, all of them are made anew: there is no telling which are whole.
    """

    Config: ClassVar[type[GymVectorConfig]] = GymVectorConfig
    config: GymVectorConfig
    _env: gymnasium.vector.VectorEnv[Any, Any, Any]
    _srl_place = ""

    def __init__(self, count: int, seeds: Seeds, **args: Any) -> None:
        super().__init__(count, seeds)
        self.config = load(self.Config, args, path="env")
        self.name = name_of(self.config.id)
        if self.config.render:
            choose_gl()
        self._copies = Copies(self.config, seeds.first)
        self._made = 0
        """How often the copies were made anew."""
        self._seed = seeds.seed(0, 0)
        self._env = self._make()
        self._mode = self._autoreset()
        self._obs = obs_of(self._env.single_observation_space, self.name)
        self._actions = actions_of(self._env.single_action_space, self.name)
        team = TeamSpec(agents=(TEAM,), obs=self._obs.spec, action=self._actions.spec)
        self.spec = EnvSpec(teams={TEAM: team}, stats=self.config.stats)
        self._ended = np.zeros(count, bool)
        self._played = np.zeros(count, np.int64)
        """Steps of the present episodes, with the last one."""
        self._broken = False
        """The copies are new: the next step begins their episodes."""
        self._tick = 0

    def reset(self, out: Block) -> None:
        while (obs := self._tried(self._begin)) is None:
            pass
        self._ended[:] = self._broken = False
        self._played[:] = 0
        self._look(obs)
        self._write(obs, out)

    def step(self, actions: Mapping[str, Tree], out: Block) -> None:
        self._tick += 1
        taken = self._actions.batch(map_tree(lambda leaf: leaf[:, 0], actions[TEAM]))
        answer = self._tried(self._anew) if self._broken else self._tried(self._advance, taken)
        if answer is None:
            self._cut_off(out)
            return
        obs, reward, terminated, truncated, info = answer
        if self._tick <= self.config.checked:
            self._look(obs)
            if self._tick == self.config.checked:
                _trust(self._env)
        try:
            self._write(obs, out)
        except Exception:
            self._look(obs)
            raise
        team = out.teams[TEAM]
        team.reward[:, 0] = reward
        team.terminated[:, 0] = terminated
        team.truncated[:, 0] = truncated
        self._played += 1
        self._played[self._ended] = 0
        np.logical_or(terminated, truncated, out=self._ended)
        if self.config.stats and self._ended.any():
            self._write_stats(info, out)

    def render(self, env: int) -> Array:
        if not self.config.render:
            raise UserError(f"env '{self.name}' was made without rendering", ("try", "env.render=true"))
        pictures: Any = self._env.render()
        return np.asarray(pictures[env])

    def save(self) -> Tree | None:
        env: Any = self._env
        if not _is_cartpole(env):
            return None
        return {
            "state": env.state.copy(),
            "steps": env.steps.copy(),
            "ended": env.prev_done.copy(),
            "rng": pack_rng(env.np_random),
            "tick": np.array(self._tick),
        }

    def load(self, saved: Tree) -> None:
        env: Any = self._env
        if not _is_cartpole(env):
            return super().load(saved)
        assert isinstance(saved, dict)
        env.state, env.steps, env.prev_done = (np.array(saved[key]) for key in ("state", "steps", "ended"))
        env.np_random = unpack_rng(saved["rng"])
        self._ended[:] = saved["ended"]
        self._played[:] = saved["steps"]
        self._tick = int(saved["tick"])
        return None

    def close(self) -> None:
        self._env.close()

    def _make(self) -> gymnasium.vector.VectorEnv[Any, Any, Any]:
        mode: dict[str, Any] = {"render_mode": "rgb_array"} if self.config.render else {}
        make: Any = import_path(self.config.id, "env") if is_path(self.config.id) else self.config.id
        try:
            if isinstance(make, str):
                kind = gymnasium.VectorizeMode.VECTOR_ENTRY_POINT
                return gymnasium.make_vec(make, self.count, vectorization_mode=kind, **mode, **self.config.args)
            return make(num_envs=self.count, **mode, **self.config.args)  # type: ignore[no-any-return]
        except (gymnasium.error.Error, TypeError) as problem:
            raise UserError(
                f"cannot make vectorised env '{self.name}'",
                ("cause", f"{type(problem).__name__}: {problem}"),
                ("try", "use: gym, which loops over single envs"),
            ) from problem

    def _begin(self) -> Any:
        """The first observations."""
        obs, _ = self._copies.limited(self._env.reset)(seed=self._seed)
        return obs

    def _anew(self) -> Any:
        """As a step of new copies, which begins their episodes."""
        obs, none = self._begin(), np.zeros(self.count, bool)
        self._ended[:], self._broken = True, False
        return obs, np.zeros(self.count), none, none, {}

    def _advance(self, taken: Any) -> Any:
        """What the envs answer; episodes that ended before begin anew."""
        obs, reward, terminated, truncated, info = self._copies.limited(self._env.step)(taken)
        if self._mode is AutoresetMode.DISABLED and self._ended.any():
            obs, _ = self._env.reset(options={"reset_mask": self._ended.copy()})
            reward, terminated, truncated = (np.where(self._ended, 0, part) for part in (reward, terminated, truncated))
        return obs, reward, terminated, truncated, info

    def _tried(self, call: Callable[..., Any], *args: Any) -> Any:
        """What it returns; None if it failed and the copies were made anew, with other seeds."""
        try:
            return call(*args)
        except SrlError:
            raise
        except (Exception, SystemExit) as problem:
            if not self._copies.restarted(self._spot(0), problem):
                raise
            with contextlib.suppress(Exception):
                self._copies.limited(self._env.close)()
            self._made += 1
            self._seed = self.seeds.seed(0, self._made)
            self._env = self._make()
            return None

    def _cut_off(self, out: Block) -> None:
        """All episodes end with this step, and their rows are not used; the next step begins others."""
        team = out.teams[TEAM]
        for _, leaf in leaves(team.obs):
            leaf[...] = 0
        begun = ~(self._ended | self._broken)
        team.truncated[:, 0] = team.active[:, 0] = begun
        self._copies.lost += [Lost(env, self._tick, int(self._played[env]) + 1) for env in np.flatnonzero(begun).tolist()]
        self._played[:], self._ended[:], self._broken = 0, True, True

    def _autoreset(self) -> AutoresetMode:
        mode = self._env.metadata.get("autoreset_mode", AutoresetMode.NEXT_STEP)
        mode = AutoresetMode(mode) if not isinstance(mode, AutoresetMode) else mode
        if mode is AutoresetMode.SAME_STEP:
            raise UserError(
                f"env '{self.name}' begins the next episode within the step that ends one",
                ("expected", "metadata['autoreset_mode'] NEXT_STEP or DISABLED, since the last observation needs a separate row"),
                ("try", "args: {autoreset_mode: NextStep}, if the env has it, or use: gym"),
            )
        return mode

    def _write(self, obs: Any, out: Block) -> None:
        self._obs.write_all(map_tree(lambda leaf: leaf[:, 0], out.teams[TEAM].obs), obs)

    def _write_stats(self, info: Mapping[str, Any], out: Block) -> None:
        for column, key in enumerate(self.config.stats):
            if key not in info:
                raise bad_step(self._spot(0), f"has no info['{key}']", f"it has {', '.join(map(str, info)) or 'nothing'}")
            out.stats[self._ended, column] = np.asarray(info[key], np.float64)[self._ended]

    def _look(self, obs: Any) -> None:
        row = _first(obs)
        try:
            self._obs.check(row)
        except Fault as fault:
            raise bad_observation(self._spot(0), fault.key, fault.expected, fault.found, fault.likely) from None

    def _spot(self, env: int) -> Spot:
        return Spot(self.name, self._srl_place, self.seeds.first + env, self._seed, self._tick)


class _Trusted(spaces.MultiDiscrete):
    """Contains every action: the check alone takes a sixth of a step of 64 CartPoles."""

    def contains(self, x: Any) -> bool:
        return True


def _trust(env: Any) -> None:
    """After the checked ticks, let gymnasium's env skip its own action check."""
    if _is_cartpole(env) and type(env.action_space) is spaces.MultiDiscrete:
        env.action_space = _Trusted(env.action_space.nvec)


def _is_cartpole(env: Any) -> bool:
    """The only vectorized env whose state can be saved."""
    return type(env).__name__ == "CartPoleVectorEnv" and env.state is not None


def _first(batched: Any) -> Any:
    """The observation of the first copy."""
    if isinstance(batched, Mapping):
        return {key: _first(part) for key, part in batched.items()}
    return tuple(_first(part) for part in batched) if isinstance(batched, tuple) else batched[0]
