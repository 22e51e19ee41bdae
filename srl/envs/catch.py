"""Catch: a ball falls over a small grid of uint8, and a paddle in the last row has to be under it when it lands."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, cast

import numpy as np

from srl.api.env import TEAM, BatchEnv, Block, Discrete, EnvSpec, TeamSpec
from srl.core.load import load, option
from srl.core.seeds import Seeds
from srl.core.spec import Leaf, TreeSpec
from srl.core.tree import Array, Tree

_BRIGHT, _DIM = 255, 128
_ZOOM = 24
_SAVED = ("_ball", "_drift", "_paddle", "_row", "_episode", "_ended")


@dataclass(frozen=True, kw_only=True)
class CatchConfig:
    height: int = option(10, "rows of the grid: a ball lands after height - 1 steps", low=3, high=1000)
    width: int = option(10, "columns of the grid", low=3, high=1000)
    told: bool = option(False, "observations are {picture, drift} instead of an image that also shows the ball's last place")


class Catch(BatchEnv):
    """Actions: left, stay, right. Balls drift by -1, 0 or 1 columns a row and bounce off walls. Reward 1, or -1 for a miss."""

    Config: ClassVar[type] = CatchConfig

    def __init__(self, count: int, seeds: Seeds, render: bool = False, **args: Any) -> None:
        super().__init__(count, seeds)
        self.config: CatchConfig = load(CatchConfig, args, path="env")
        shape = (self.config.height, self.config.width)
        obs: TreeSpec = Leaf((*shape, 1), "uint8")
        if self.config.told:
            obs = {"picture": obs, "drift": Leaf((1,), "float32")}
        self.spec = EnvSpec(teams={TEAM: TeamSpec(agents=(TEAM,), obs=obs, action=Discrete(3))}, fps=6.0)
        self._envs = np.arange(count)
        self._ball, self._drift, self._paddle, self._row = (np.zeros(count, np.int64) for _ in range(4))
        self._episode = np.full(count, -1)
        self._ended = np.zeros(count, bool)
        self._grid = np.zeros((count, *shape), np.uint8)

    def reset(self, out: Block) -> None:
        self._begin(self._envs)
        self._show(out)

    def step(self, actions: Mapping[str, Tree], out: Block) -> None:
        team, last = out.teams[TEAM], self.config.width - 1
        self._paddle += cast(Array, actions[TEAM])[:, 0] - 1
        self._paddle.clip(0, last, out=self._paddle)
        ahead = self._ball + self._drift
        self._drift[(ahead < 0) | (ahead > last)] *= -1
        self._ball += self._drift
        self._row += 1
        landed = (self._row == self.config.height - 1) & ~self._ended
        team.reward[:, 0] = landed * np.where(self._ball == self._paddle, 1.0, -1.0)
        team.terminated[:, 0] = landed
        self._begin(self._envs[self._ended])
        self._ended = landed
        self._show(out)

    def render(self, env: int) -> Array:
        picture = np.kron(self._grid[env], np.ones((_ZOOM, _ZOOM), np.uint8))
        return np.repeat(picture[..., None], 3, axis=2)

    def save(self) -> Tree:
        return {name.strip("_"): getattr(self, name).copy() for name in _SAVED} | {"grid": self._grid.copy()}

    def load(self, saved: Tree) -> None:
        arrays = cast("dict[str, Array]", saved)
        for name in _SAVED:
            setattr(self, name, np.array(arrays[name.strip("_")]))
        self._grid[...] = arrays["grid"]

    def _begin(self, envs: Array) -> None:
        """The next episode of these."""
        self._episode[envs] += 1
        for env in envs:
            rng = self.seeds.rng(int(env), int(self._episode[env]))
            self._ball[env], self._drift[env] = rng.integers(self.config.width), rng.integers(-1, 2)
        self._paddle[envs], self._row[envs] = self.config.width // 2, 0

    def _show(self, out: Block) -> None:
        """Draw the grids. Where the ball was one row above says where it goes."""
        self._grid[...] = 0
        if not self.config.told:
            fallen = self._envs[self._row > 0]
            self._grid[fallen, self._row[fallen] - 1, self._ball[fallen] - self._drift[fallen]] = _DIM
        self._grid[self._envs, -1, self._paddle] = _BRIGHT
        self._grid[self._envs, self._row, self._ball] = _BRIGHT
        obs = cast(Any, out.teams[TEAM].obs)
        (obs["picture"] if self.config.told else obs)[:, 0, ..., 0] = self._grid
        if self.config.told:
            obs["drift"][:, 0, 0] = self._drift
