"""CartPole that observes positions only: a policy must infer the velocities from past observations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

import numpy as np

from srl.api.env import TEAM, BatchEnv, Block, TeamBlock
from srl.core.seeds import Seeds
from srl.core.spec import Leaf
from srl.core.tree import Array, Tree
from srl.envs.gym_vector import GymVectorEnv

_POSITIONS = (0, 2)  # of the cart, of the pole


class CartPolePositions(BatchEnv):
    """CartPole-v1 without its two velocities."""

    def __init__(self, count: int, seeds: Seeds, render: bool = False) -> None:
        super().__init__(count, seeds)
        self._env = GymVectorEnv(count, seeds, id="CartPole-v1", render=render)
        team = self._env.spec.teams[TEAM]
        self.spec = replace(self._env.spec, teams={TEAM: replace(team, obs=Leaf((len(_POSITIONS),), "float32"))})
        self._whole: Array = np.zeros((count, 1, 4), np.float32)

    def reset(self, out: Block) -> None:
        self._env.reset(self._inner(out))
        self._show(out)

    def step(self, actions: Mapping[str, Tree], out: Block) -> None:
        self._env.step(actions, self._inner(out))
        self._show(out)

    def render(self, env: int) -> Array:
        return self._env.render(env)

    def save(self) -> Tree | None:
        return self._env.save()

    def load(self, saved: Tree) -> None:
        self._env.load(saved)

    def close(self) -> None:
        self._env.close()

    def _inner(self, out: Block) -> Block:
        """The same block, with room for the whole observation."""
        team: TeamBlock = replace(out.teams[TEAM], obs=self._whole)
        return Block(teams={TEAM: team}, state=out.state, stats=out.stats)

    def _show(self, out: Block) -> None:
        shown = cast(Any, out.teams[TEAM].obs)
        shown[...] = self._whole[..., _POSITIONS]
