"""A corridor: walk to the right end before the time limit. A complete vectorized env."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from srl.api.env import BatchEnv, Block, Discrete, EnvSpec, TeamBlock, TeamSpec
from srl.core.seeds import Seeds
from srl.core.spec import Leaf
from srl.core.tree import Tree


class Corridor(BatchEnv):
    """`length` squares; episodes start at a random square in the left half. Run with `env=docs/examples/my_env.py:Corridor`."""

    def __init__(self, count: int, seeds: Seeds, length: int = 12, limit: int = 60) -> None:
        super().__init__(count, seeds)
        self.length, self.limit = length, limit
        walker = TeamSpec(agents=("walker",), obs=Leaf((2,), "float32"), action=Discrete(2))
        self.spec = EnvSpec(teams={"walker": walker}, stats=("reached",))
        self.square = np.zeros(count, np.int64)
        self.steps = np.zeros(count, np.int64)
        self.episode = np.zeros(count, np.int64)
        self.over = np.zeros(count, bool)

    def reset(self, out: Block) -> None:
        self._start(np.ones(self.count, bool))
        self._show(out.teams["walker"])

    def step(self, actions: Mapping[str, Tree], out: Block) -> None:
        walker, begin = out.teams["walker"], self.over
        move = np.where(actions["walker"][:, 0] == 1, 1, -1)  # [E, A] with one agent
        self.square = np.where(begin, self.square, np.maximum(self.square + move, 0))
        self.steps += ~begin
        self._start(begin)  # the step after an episode's end begins the next one; rewards and flags stay zero there
        arrived = ~begin & (self.square == self.length - 1)
        late = ~begin & ~arrived & (self.steps >= self.limit)
        walker.reward[:, 0] = np.where(arrived, 1.0, np.where(begin, 0.0, -0.01))
        walker.terminated[:, 0], walker.truncated[:, 0] = arrived, late
        out.stats[:, 0] = arrived
        self.over = arrived | late
        self._show(walker)

    def _start(self, envs: np.ndarray) -> None:
        for env in np.flatnonzero(envs):
            self.square[env] = self.seeds.rng(int(env), int(self.episode[env])).integers(self.length // 2)
            self.steps[env] = 0
            self.episode[env] += 1

    def _show(self, walker: TeamBlock) -> None:
        walker.obs[:, 0, 0] = self.square / self.length
        walker.obs[:, 0, 1] = self.steps / self.limit
