"""Gymnasium envs: a loop over E copies that writes rows in place."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.wrappers import OrderEnforcing, PassiveEnvChecker, TimeLimit

from srl.api.env import TEAM, Block, EnvSpec, TeamBlock, TeamSpec
from srl.core.errors import SrlError, UserError
from srl.core.load import load, nearest, option
from srl.core.registry import import_path
from srl.core.seeds import Seeds
from srl.core.spec import Leaf
from srl.core.tree import Array, Tree, leaves, map_tree
from srl.envs.faults import (
    EVERY,
    Copies,
    FaultConfig,
    Lost,
    RestartableEnv,
    Spot,
    bad_answer,
    bad_observation,
    bad_reward,
    bad_step,
    describe,
    is_reward,
    name_of,
)
from srl.envs.spaces import Actions, Fault, Obs, actions_of, frame_rate, obs_of

_EIGHTH = 8
_NEVER = sys.maxsize
_FINAL = ("final_obs", "final_observation", "terminal_observation", "final_info")


@dataclass(frozen=True, kw_only=True)
class GymConfig(FaultConfig):
    id: Any = option(help="a gymnasium id, or a class or function that makes a gymnasium.Env")
    args: Mapping[str, Any] = option({}, "keywords of the env")
    stats: tuple[str, ...] = option((), "info keys read when an episode ends: `episode/<name>` in every log")
    signals: tuple[str, ...] = option((), "info keys recorded with every step (cost, ...)")
    mask: bool | None = option(None, "action masks from info or the observation's `action_mask`; null: if they are there")
    render: bool = option(False, "render images (render_mode rgb_array)")
    checked: int = option(1000, "number of first rows that are all checked; after that one row every eighth tick", low=0)


class GymEnv(RestartableEnv):
    """E copies of a gymnasium env, stepped one after the other."""

    Config: ClassVar[type] = GymConfig
    _srl_place = ""

    def __init__(self, count: int, seeds: Seeds, **args: Any) -> None:
        super().__init__(count, seeds)
        self.config: GymConfig = load(GymConfig, args, path="env")
        self.name = name_of(self.config.id)
        if self.config.render:
            from srl.envs.drawing import choose_gl

            choose_gl()
        self._copies = Copies(self.config, seeds.first)
        made = [self._make() for _ in range(count)]
        self._envs = [env for env, _ in made]
        self._limit = made[0][1]
        env = self._envs[0]
        self._actions: Actions = actions_of(env.action_space, self.name)
        space, self._mask_from = self._find_mask(env)
        self._nested = space is not env.observation_space
        self._obs: Obs = obs_of(space, self.name)
        self._bare = isinstance(self._obs.spec, Leaf) and isinstance(space, spaces.Box) and not self._nested
        self.spec = EnvSpec(
            teams={TEAM: TeamSpec(agents=(TEAM,), obs=self._obs.spec, action=self._actions.spec, mask=self._mask_from != "")},
            signals={name: Leaf((), "float32") for name in self.config.signals},
            stats=self.config.stats,
            fps=frame_rate(env),
            about=getattr(env, "about", ""),
        )
        self._steps = [self._copies.limited(one.step) for one in self._envs]
        self._timed = [self._copies.timed(env, step) for env, step in enumerate(self._steps)]
        self._episode = [-1] * count
        self._elapsed = [0] * count
        self._seed = [0] * count
        self._ended = [False] * count
        self._tick = 0
        self._trusted = False
        self.warnings: list[str] = []
        """Warnings about harmless deviations from the declared spaces."""

    def reset(self, out: Block) -> None:
        team = out.teams[TEAM]
        obs = map_tree(lambda leaf: leaf[:, 0], team.obs)
        mask = map_tree(lambda leaf: leaf[:, 0], team.mask) if team.mask is not None else None
        for env in range(self.count):
            while True:
                try:
                    self._begin(env, obs, mask)
                    break
                except SrlError:
                    raise
                except (Exception, SystemExit) as problem:
                    if not self._copies.restarted(self._spot(env), problem):
                        raise
                    self._remake(env)

    def step(self, actions: Mapping[str, Tree], out: Block) -> None:
        team = out.teams[TEAM]
        values = self._actions.split(map_tree(lambda leaf: leaf[:, 0], actions[TEAM]))
        bare = self._bare
        obs: Any = team.obs[:, 0] if bare else map_tree(lambda leaf: leaf[:, 0], team.obs)  # type: ignore[index]
        mask = map_tree(lambda leaf: leaf[:, 0], team.mask) if team.mask is not None else None
        full, looked = self._looks()
        ended, elapsed, limit, signals = self._ended, self._elapsed, self._limit, self.config.signals
        rewards = [0.0] * self.count
        steps = self._steps if self._tick % EVERY else self._timed
        start = 0
        while start < self.count:
            env, answer = start, None
            try:
                for env, step in enumerate(steps[start:], start):
                    if ended[env]:
                        self._begin(env, obs, mask)
                        continue
                    answer = step(values[env])
                    row, reward, terminated, truncated, info = answer
                    elapsed[env] = played = elapsed[env] + 1
                    if full or env == looked:
                        self._look(env, row, reward, bounds=full)
                    if bare:
                        obs[env] = row
                    else:
                        self._write(env, row, obs)
                    rewards[env] = reward  # type: ignore[call-overload]
                    if mask is not None:
                        self._write_mask(env, row, info, mask)
                    if signals:
                        self._write_signals(env, info, team)
                    if terminated or truncated or played >= limit:
                        ended[env] = True
                        team.terminated[env, 0] = terminated
                        team.truncated[env, 0] = truncated or played >= limit
                        self._finish(env, info, out)
                break
            except SrlError:
                raise
            except (Exception, SystemExit) as problem:
                self._look_again(env, answer)
                if not self._copies.restarted(self._spot(env), problem):
                    raise
                self._restart(env, team)
                rewards[env], start = 0.0, env + 1
        team.reward[:, 0] = rewards

    def render(self, env: int) -> Array:
        if not self.config.render:
            raise UserError(f"env '{self.name}' was made without rendering", ("try", "env.render=true"))
        return np.asarray(self._envs[env].render())

    def save(self) -> Tree | None:
        if not self._is_simple():
            return None
        from srl.envs.saving import pack_classic

        counters = np.array([self._episode, self._elapsed, self._seed, self._ended], np.int64)
        saved: dict[str, Any] = {"counters": counters, "tick": np.array(self._tick)}
        return saved | {"envs": {f"{i:06d}": pack_classic(env) for i, env in enumerate(self._envs)}}

    def load(self, saved: Tree) -> None:
        if not self._is_simple():
            return super().load(saved)
        from srl.envs.saving import unpack_classic

        assert isinstance(saved, dict)
        episode, elapsed, seed, ended = np.asarray(saved["counters"]).tolist()
        self._episode, self._elapsed, self._seed = episode, elapsed, seed
        self._ended = [bool(flag) for flag in ended]
        self._tick = int(saved["tick"])
        for i, env in enumerate(self._envs):
            unpack_classic(env, saved["envs"][f"{i:06d}"])
        return None

    def close(self) -> None:
        for env in self._envs:
            env.close()
        self._envs, self._steps = [], []

    def _restart(self, env: int, team: TeamBlock) -> None:
        """A new copy, which begins an episode in the next step. The rows of the one that was cut off are not used."""
        self._remake(env)
        for _, leaf in leaves(team.obs):
            leaf[env] = 0
        if team.mask is not None:
            for _, leaf in leaves(team.mask):
                leaf[env] = True
        if self._ended[env]:  # it failed to begin
            team.active[env] = False
            return
        self._copies.lost.append(Lost(env, self._tick, self._elapsed[env] + 1))
        team.terminated[env], team.truncated[env] = False, True
        self._ended[env] = True

    def _remake(self, env: int) -> None:
        with contextlib.suppress(Exception):
            self._copies.limited(self._envs[env].close)()
        self._envs[env], _ = self._make()
        self._steps[env] = self._copies.limited(self._envs[env].step)
        self._timed[env] = self._copies.timed(env, self._steps[env])

    def _is_simple(self) -> bool:
        """True if the envs are known ones without wrappers, whose state can be saved."""
        from srl.envs.saving import is_classic

        return all(is_classic(env) and env.unwrapped is env for env in self._envs)

    def _make(self) -> tuple[gymnasium.Env[Any, Any], int]:
        env, limit = _peeled(_made(self.config, self.name))
        if self.name.startswith(("MinAtar/", "MiniGrid-")):
            from srl.envs.boards import as_planes

            env = as_planes(env, self.name)
        return env, limit

    def _find_mask(self, env: gymnasium.Env[Any, Any]) -> tuple[spaces.Space[Any], str]:
        """The space of the observation itself, and where masks come from: "", "info" or "obs"."""
        space = env.observation_space
        wanted = self.config.mask
        if wanted is not False and isinstance(space, spaces.Dict) and set(space.spaces) == {"observation", "action_mask"}:
            return space.spaces["observation"], "obs"
        if wanted is False or isinstance(env.action_space, spaces.Box):
            return space, ""
        if type(env).__module__.startswith("gymnasium.envs.classic_control."):
            return space, ""
        _, info = _answer(env.reset(seed=self.seeds.seed(0, 0)), Spot(self.name, self._srl_place, 0, self.seeds.seed(0, 0), 0))
        if "action_mask" in info:
            return space, "info"
        if wanted:
            raise UserError(
                f"env '{self.name}' gives no action masks",
                ("expected", "info['action_mask'], or a Dict observation of 'observation' and 'action_mask'"),
                ("try", "env.mask=false"),
            )
        return space, ""

    def _begin(self, env: int, obs: Tree, mask: Tree | None) -> None:
        self._episode[env] += 1
        self._elapsed[env] = 0
        self._seed[env] = self.seeds.seed(env, self._episode[env])
        reset = self._copies.limited(self._envs[env].reset)
        row, info = _answer(reset(seed=self._seed[env]), self._spot(env))
        self._ended[env] = False
        self._look(env, row, 0.0, bounds=self._episode[env] == 0)
        self._write(env, row, obs)
        if mask is not None:
            self._write_mask(env, row, info, mask)

    def _finish(self, env: int, info: Mapping[str, Any], out: Block) -> None:
        for key in _FINAL:
            if key in info:
                raise bad_step(
                    self._spot(env),
                    f"resets itself within the step that ends an episode (info has '{key}')",
                    "an autoreset wrapper inside; take it away, episodes are begun here",
                )
        for column, key in enumerate(self.config.stats):
            out.stats[env, column] = self._number(env, info, key)

    def _write(self, env: int, row: Any, obs: Tree) -> None:
        self._obs.write(obs, env, row["observation"] if self._nested else row)

    def _write_mask(self, env: int, row: Any, info: Mapping[str, Any], mask: Tree) -> None:
        value = row["action_mask"] if self._nested else info.get("action_mask")
        if value is None:
            raise bad_step(self._spot(env), "gave no info['action_mask']", "masks must come with every step, the last too")
        self._actions.write_mask(mask, env, value)

    def _write_signals(self, env: int, info: Mapping[str, Any], team: TeamBlock) -> None:
        for key in self.config.signals:
            team.signals[key][env, 0] = self._number(env, info, key)  # type: ignore[index]

    def _number(self, env: int, info: Mapping[str, Any], key: str) -> float:
        if key not in info:
            near = nearest(key, [str(one) for one in info])
            likely = f"did you mean '{near}'?" if near else f"it has {', '.join(map(str, info)) or 'nothing'}"
            raise bad_step(self._spot(env), f"has no info['{key}']", likely)
        return float(info[key])

    def _look(self, env: int, row: Any, reward: Any, *, bounds: bool) -> None:
        """Catch what numpy would silently cast or broadcast, at the env that returned it."""
        value = row["observation"] if self._nested else row
        try:
            self._obs.check(value)
        except Fault as fault:
            raise bad_observation(self._spot(env), fault.key, fault.expected, fault.found, fault.likely) from None
        if not is_reward(reward):
            raise bad_reward(self._spot(env), reward)
        if bounds and not self.warnings and (stray := self._obs.outside(value)) is not None:
            found = f"key {list(stray.key)} expected {stray.expected} got {describe(stray.found)}"
            self.warnings.append(f"{self._spot(env)} left its declared bounds: {found}")

    def _look_again(self, env: int, answer: Any) -> None:
        """After an exception: raise a clearer error if this copy returned invalid values. (Earlier copies are not checked.)"""
        if answer is None:
            return
        if not isinstance(answer, tuple) or len(answer) != 5:
            raise bad_answer(self._spot(env), answer)
        self._look(env, answer[0], answer[1], bounds=False)

    def _looks(self) -> tuple[bool, int]:
        """Whether to check all rows of this tick, and the one row to check otherwise."""
        tick = self._tick
        self._tick += 1
        full = tick * self.count < self.config.checked
        if not full and not self._trusted:
            self._trusted = True
            for env in self._envs:
                _trust(env)
        return full, -1 if tick % _EIGHTH else tick // _EIGHTH % self.count

    def _spot(self, env: int) -> Spot:
        return Spot(self.name, self._srl_place, self.seeds.first + env, self._seed[env], self._elapsed[env])


def _made(config: GymConfig, name: str) -> gymnasium.Env[Any, Any]:
    mode: dict[str, Any] = {"render_mode": "rgb_array"} if config.render else {}
    make = import_path(config.id, "env") if is_path(config.id) else config.id
    try:
        if isinstance(make, str):
            return gymnasium.make(make, disable_env_checker=True, **mode, **config.args)
        env = make(**mode, **config.args)
    except (gymnasium.error.Error, TypeError) as problem:
        raise UserError(f"cannot make env '{name}'", ("cause", f"{type(problem).__name__}: {problem}")) from problem
    if not isinstance(env, gymnasium.Env):
        raise UserError(
            f"'{name}' made a {type(env).__name__}", ("expected", "a gymnasium.Env, a PettingZoo ParallelEnv or a BatchEnv")
        )
    return env


def is_path(name: Any) -> bool:
    """`pkg.mod:Make`, and not gymnasium's own `pkg.mod:Name-v0`."""
    return isinstance(name, str) and ":" in name and not name.rpartition("-v")[2].isdigit()


def _peeled(env: gymnasium.Env[Any, Any]) -> tuple[gymnasium.Env[Any, Any], int]:
    """The env without the wrappers that this adapter replaces, and its time limit."""
    limit = _NEVER
    while type(env) in (TimeLimit, OrderEnforcing, PassiveEnvChecker):
        if isinstance(env, TimeLimit):
            limit = min(limit, env._max_episode_steps)
        env = env.env  # type: ignore[attr-defined]
    return env, limit


class _Trusted(spaces.Discrete):
    """Contains every action: the check alone takes a fifth of a CartPole step."""

    def contains(self, x: Any) -> bool:
        return True


def _trust(env: gymnasium.Env[Any, Any]) -> None:
    """After the checked rows, let gymnasium's small envs skip their own action check."""
    space = env.action_space
    if type(env).__module__.startswith("gymnasium.envs.classic_control.") and type(space) is spaces.Discrete:
        env.action_space = _Trusted(space.n, start=space.start)


def _answer(answer: Any, spot: Spot) -> tuple[Any, Mapping[str, Any]]:
    """(obs, info) of a reset."""
    if isinstance(answer, tuple) and len(answer) == 2 and isinstance(answer[1], Mapping):
        return answer
    raise bad_step(
        spot, f"returned a {type(answer).__name__} from reset()", "return (observation, info), as gymnasium >= 0.26 does"
    )
