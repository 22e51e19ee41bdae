"""Matching pennies for two teams, and a scripted player: a policy that never imports torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from srl.api.env import BatchEnv, Block, Discrete, EnvSpec, TeamSpec
from srl.api.policy import Act, Ask, Bounds, PolicySpec
from srl.core.seeds import Seeds
from srl.core.spec import Leaf, TreeSpec
from srl.core.tree import Tree


class Pennies(BatchEnv):
    """`even` wins a round if both show the same side, otherwise `odd` wins. Both observe the previous round."""

    ROUNDS = 16

    def __init__(self, count: int, seeds: Seeds) -> None:
        super().__init__(count, seeds)
        self.spec = EnvSpec(
            teams={name: TeamSpec(agents=(name,), obs=Leaf((3,), "float32"), action=Discrete(2)) for name in ("even", "odd")}
        )
        self.round = 0

    def reset(self, out: Block) -> None:
        self._show(out, np.zeros((self.count, 3), np.float32))

    def step(self, actions: Mapping[str, Tree], out: Block) -> None:
        if self.round == self.ROUNDS:  # the step after the last round begins the next episode
            self.round = 0
            self.reset(out)
            return
        self.round += 1
        even, odd = actions["even"][:, 0], actions["odd"][:, 0]
        won = np.where(even == odd, 1.0, -1.0)
        for name, reward in (("even", won), ("odd", -won)):
            out.teams[name].reward[:, 0] = reward
            out.teams[name].terminated[...] = self.round == self.ROUNDS
        self._show(out, np.stack([np.ones_like(won), even, odd], axis=1))

    def _show(self, out: Block, seen: np.ndarray) -> None:
        for team in out.teams.values():
            team.obs[:, 0] = seen


class Repeat:
    """Repeat what the other side showed last, except for a few mistakes. A learner can win nearly every round."""

    memory: ClassVar[TreeSpec] = {}
    reads = ("obs",)
    bounds: ClassVar[Bounds] = "none"

    def __init__(self, config: Mapping[str, Any], spec: PolicySpec) -> None:
        self.mistakes = float(config.get("mistakes", 0.1))

    def load(self, params: Tree, version: int) -> None:
        """There is nothing to load."""

    def act(self, ask: Ask) -> Act:
        last = ask.obs[:, 1].astype(np.int64)  # [N]: what `even` showed
        slip = ask.rng.uniform()[:, 0] < (0.0 if ask.greedy else self.mistakes)
        return Act(action=np.where(slip, 1 - last, last), memory={}, extra={})
