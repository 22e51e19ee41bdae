"""A synthetic env with configurable step time, shapes, episode lengths, teams and deaths. Every row identifies itself."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from srl.api.env import ActionSpec, BatchEnv, Block, Box, Discrete, EnvSpec, MultiDiscrete, TeamBlock, TeamSpec
from srl.core.errors import SettingError, UserError
from srl.core.load import load, option
from srl.core.seeds import Seeds, mix
from srl.core.spec import Leaf
from srl.core.tree import Array, Tree

FIELDS = ("env", "episode", "step", "agent", "action")
"""The first columns of every observation; `action` is the sum of the action that led there. The rest is noise."""


@dataclass(frozen=True, kw_only=True)
class FakeConfig:
    obs: tuple[int, ...] = option((8,), "shape of one observation")
    dtype: Literal["float32", "uint8"] = option("float32", "kind of numbers; uint8 columns wrap at 256")
    action: int | tuple[int, ...] = option(2, "choices: a number, or one number for each entry", low=1)
    box: int = option(0, "a Box action of that many numbers in -1..1 instead", low=0)
    teams: Mapping[str, int] = option({"agent": 1}, "team -> number of agents")
    length: tuple[int, int] = option((20, 20), "shortest and longest episode, in steps", low=1)
    end: Literal["terminated", "truncated", "both", "random"] = option("terminated", "how episodes end")
    dying: bool = option(False, "all agents but the first end at different steps, and leave the env")
    late: bool = option(False, "all agents but the first appear at different steps")
    mask: bool = option(False, "some choices are forbidden; a forbidden action is an error")
    state: int = option(0, "numbers of global state: env, episode, step, noise", low=0)
    step_us: float = option(0.0, "time of one step of one copy, in microseconds", low=0)
    clock: Literal["cpu", "wall"] = option("cpu", "how that time is spent: computing, or sleeping (an env that waits)")

    def __post_init__(self) -> None:
        if self.length[0] > self.length[1]:
            raise SettingError("length", f"must be [shortest, longest], not {list(self.length)}")
        if self.mask and self.box:
            raise SettingError("mask", "cannot be combined with box: a Box has no masks")


class FakeEnv(BatchEnv):
    """Everything follows from (env, episode, step, agent), so that every receiver can verify a row."""

    Config: ClassVar[type] = FakeConfig

    def __init__(self, count: int, seeds: Seeds, **args: Any) -> None:
        super().__init__(count, seeds)
        self.config: FakeConfig = load(FakeConfig, args, path="env")
        config = self.config
        self._size = int(np.prod(config.obs))
        leaf = Leaf(config.obs, config.dtype)
        action = _action(config)
        teams, first = {}, 0
        self._slots: dict[str, slice] = {}
        for name, size in config.teams.items():
            agents = (name,) if size == 1 else tuple(f"{name}_{i}" for i in range(size))
            teams[name] = TeamSpec(agents=agents, obs=leaf, action=action, mask=config.mask)
            self._slots[name] = slice(first, first + size)
            first += size
        state = Leaf((config.state,), "float32") if config.state else None
        self.spec = EnvSpec(teams=teams, state=state, stats=("length", "score"))
        self._ids = np.arange(count, dtype=np.int64) + seeds.first
        self._episode = np.full(count, -1, np.int64)
        self._step = np.zeros(count, np.int64)
        self._length = np.zeros(count, np.int64)
        self._how = np.zeros(count, np.int64)
        self._ended = np.ones(count, bool)
        self._score = np.zeros(count)
        self._birth = np.zeros((count, first), np.int64)
        self._death = np.zeros((count, first), np.int64)
        self._last = np.zeros((count, first))

    def reset(self, out: Block) -> None:
        self._begin(np.ones(self.count, bool))
        self._show(out)

    def step(self, actions: Mapping[str, Tree], out: Block) -> None:
        began = self._now()
        fresh = self._ended.copy()
        playing = ~fresh
        here = self._present() & playing[:, None]
        self._take(actions, here)
        self._step[playing] += 1
        over = playing & (self._step >= self._length)
        self._flag(out, here, over)
        self._ended = over
        self._begin(fresh)
        self._show(out)
        self._spend(began)

    def save(self) -> Tree | None:
        return {name: getattr(self, f"_{name}").copy() for name in _SAVED}

    def load(self, saved: Tree) -> None:
        assert isinstance(saved, dict)
        for name in _SAVED:
            getattr(self, f"_{name}")[...] = saved[name]

    def expected(self, env: int, episode: int, step: int, agent: int, action: float = 0.0) -> Array:
        """The observation of one row; `env` counts through the role, `agent` through all teams."""
        one, two, three, four = (np.array([[number]]) for number in (env, episode, step, agent))
        row: Array = self._rows(one, two, three, four, np.array([[action]]))[0, 0]
        return row

    @staticmethod
    def reward_of(env: Any, episode: Any, step: Any, agent: Any, action: Any = 0.0) -> Any:
        """The reward of the action taken at a row."""
        return (env * 31 + episode * 17 + step * 7 + agent * 3) % 101 / 100.0 + 0.01 * action

    def _begin(self, which: Array) -> None:
        config = self.config
        self._episode[which] += 1
        self._step[which] = 0
        self._score[which] = 0.0
        self._last[which] = 0.0
        self._ended[which] = False
        for env in np.flatnonzero(which):
            rng = self.seeds.rng(int(env), int(self._episode[env]))
            length = int(rng.integers(config.length[0], config.length[1] + 1))
            agents = self._birth.shape[1]
            self._length[env] = length
            self._how[env] = rng.integers(3) if config.end == "random" else _ENDS.index(config.end)
            self._birth[env] = rng.integers(0, length // 2 + 1, agents) if config.late else 0
            self._death[env] = rng.integers(self._birth[env] + 1, length + 1) if config.dying else length
            self._birth[env, 0], self._death[env, 0] = 0, length

    def _present(self) -> Array:
        """[E, agents] whether the agent acts at the current row."""
        step = self._step[:, None]
        return (step >= self._birth) & (step < self._death)

    def _take(self, actions: Mapping[str, Tree], here: Array) -> None:
        for name, slot in self._slots.items():
            taken = np.asarray(actions[name])
            if self.config.mask:
                self._allowed(taken, slot, here[:, slot])
            self._last[:, slot] = np.where(here[:, slot], taken.reshape(*here[:, slot].shape, -1).sum(axis=2), 0.0)

    def _allowed(self, taken: Array, slot: slice, here: Array) -> None:
        mask = self._masks(slot)
        offsets = np.concatenate([[0], np.cumsum(self._counts())[:-1]])
        chosen = np.take_along_axis(mask, taken.reshape(*here.shape, -1) + offsets, axis=2).all(axis=2)
        if (here & ~chosen).any():
            env, agent = np.argwhere(here & ~chosen)[0]
            raise UserError(
                f"fake env {self._ids[env]}: agent {slot.start + agent} took the forbidden action {taken[env, agent]}"
            )

    def _flag(self, out: Block, here: Array, over: Array) -> None:
        grid = (self._ids[:, None], self._episode[:, None], self._step[:, None] - 1, np.arange(here.shape[1]))
        reward = np.where(here, self.reward_of(*grid, self._last), 0.0)
        self._score += reward.sum(axis=1)
        gone = here & (self._step[:, None] >= self._death)
        last = gone & over[:, None]
        early = gone & ~over[:, None]
        terminated = early | (last & (self._how[:, None] != 1))
        truncated = last & (self._how[:, None] != 0)
        for name, slot in self._slots.items():
            team = out.teams[name]
            team.reward[...] = reward[:, slot]
            team.terminated[...] = terminated[:, slot]
            team.truncated[...] = truncated[:, slot]
        out.stats[over, 0] = self._step[over]
        out.stats[over, 1] = self._score[over]

    def _show(self, out: Block) -> None:
        """The row t+1. An agent that just ended is shown once more: its last observation has a separate row."""
        step = self._step[:, None]
        active = (step >= self._birth) & (step <= self._death)
        for name, slot in self._slots.items():
            team = out.teams[name]
            agents = np.arange(slot.start, slot.stop)[None, :]
            rows = self._rows(self._ids[:, None], self._episode[:, None], step, agents, self._last[:, slot])
            np.copyto(team.obs, np.where(_wide(active[:, slot], rows), rows, 0), casting="unsafe")  # type: ignore[arg-type]
            team.active[...] = active[:, slot]
            self._show_mask(team, slot)
        if out.state is not None:
            noise = self._noise(self._ids, self._episode, self._step, np.int64(99), self.config.state)
            noise[:, :3] = np.stack([self._ids, self._episode, self._step], axis=1)[:, : noise.shape[1]]
            out.state[...] = noise  # type: ignore[index]

    def _show_mask(self, team: TeamBlock, slot: slice) -> None:
        if team.mask is not None:
            team.mask[...] = self._masks(slot)  # type: ignore[index]

    def _masks(self, slot: slice) -> Array:
        """[E, agents, choices]: about half of them; one of each entry always."""
        counts = self._counts()
        agents = np.arange(slot.start, slot.stop)[None, :]
        noise = self._noise(self._ids[:, None], self._episode[:, None], self._step[:, None], agents + 1000, sum(counts))
        mask = noise < 0.5
        for start, count in zip(np.concatenate([[0], np.cumsum(counts)[:-1]]), counts, strict=True):
            sure = start + (noise[..., start] * count).astype(np.int64)
            np.put_along_axis(mask, sure[..., None], True, axis=2)
        return mask

    def _counts(self) -> tuple[int, ...]:
        action = self.config.action
        return (action,) if isinstance(action, int) else tuple(action)

    def _rows(self, env: Array, episode: Array, step: Array, agent: Array, action: Array) -> Array:
        """[E, agents, *obs] float64, or already wrapped for uint8."""
        env, episode, step, agent = np.broadcast_arrays(env, episode, step, agent)
        rows = self._noise(env, episode, step, agent, self._size)
        rows = np.floor(rows * 256) if self.config.dtype == "uint8" else rows
        columns = np.stack([env, episode, step, agent, action], axis=-1)
        known = min(self._size, len(FIELDS))
        rows[..., :known] = columns[..., :known]
        rows = rows % 256 if self.config.dtype == "uint8" else rows
        return rows.reshape(*env.shape, *self.config.obs).astype(self.config.dtype)

    def _noise(self, env: Array, episode: Array, step: Array, agent: Any, columns: int) -> Array:
        """[..., columns] in [0, 1): a hash of its arguments."""
        with np.errstate(over="ignore"):
            key = ((env * 1_000_003 + episode) * 1_000_003 + step) * 1_000_003 + agent
            words = mix(key[..., None].astype(np.uint64) * np.uint64(_ODD) + np.arange(columns, dtype=np.uint64))
        return (words >> np.uint64(11)) * 2.0**-53

    def _now(self) -> int:
        return time.thread_time_ns() if self.config.clock == "cpu" else time.perf_counter_ns()

    def _spend(self, began: int) -> None:
        until = began + int(self.config.step_us * 1000.0 * self.count)
        if self.config.clock == "wall":
            time.sleep(max(0, until - self._now()) * 1e-9)
        while self._now() < until:  # computes
            pass


_ENDS = ("terminated", "truncated", "both")
_SAVED = ("episode", "step", "length", "how", "ended", "score", "birth", "death", "last")
_ODD = 0x9E3779B97F4A7C15


def _action(config: FakeConfig) -> ActionSpec:
    if config.box:
        return Box((config.box,), (-1.0,) * config.box, (1.0,) * config.box)
    return Discrete(config.action) if isinstance(config.action, int) else MultiDiscrete(tuple(config.action))


def _wide(flags: Array, rows: Array) -> Array:
    return flags.reshape(flags.shape + (1,) * (rows.ndim - flags.ndim))


def fields_of(obs: Array) -> dict[str, Array]:
    """Decode the identity of rows: `[..., *obs]` -> name -> `[...]`, for flat observations."""
    return {name: obs[..., column] for column, name in enumerate(FIELDS[: obs.shape[-1]])}
