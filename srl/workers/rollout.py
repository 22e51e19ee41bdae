"""Rollouts: whole episodes with policies at hand, without streams: for evaluation, `play` and videos."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from srl.api.policy import Ask, Policy
from srl.api.slab import SlabShape, slab_spec
from srl.core.seeds import Rng
from srl.core.spec import zeros
from srl.core.tree import Array, map_tree
from srl.graph.derive import Derived
from srl.graph.spec import Graph
from srl.workers.base import Reading
from srl.workers.group import Group


class Rollout:
    """E envs that play with the policies they are given, counting the first episodes of each env alike."""

    def __init__(
        self, graph: Graph, derived: Derived, policies: Mapping[str, Policy], *, envs: int, role: str, first_env: int = 0
    ) -> None:
        self.envs = envs
        self._derived, self._policies = derived, policies
        self._reading = Reading()
        self.group = Group(graph, derived, envs=envs, steps=1, first_env=first_env, reading=self._reading, role=role)
        self._trees = {}
        for name, info in derived.policies.items():
            shape = SlabShape(steps=1, envs=envs, agents=info.spec.agents)
            self._trees[name] = zeros(slab_spec(shape, info.spec, memory={}, extra={}, signals=info.signals))
        self._round = 0
        self.restart()

    def restart(self) -> None:
        """Forget the episodes that are under way."""
        self._round += 1
        self.group.renew(self._round)
        self._reading.means.clear()
        self._reading.totals.clear()
        self._played = np.zeros(self.envs, np.int64)

    def step(self, *, greedy: bool, episodes: int | None = None) -> bool:
        """One step of all envs; True when every env has played its share of `episodes`."""
        share = None if episodes is None else -(-episodes // self.envs)
        group = self.group
        group.row = 0
        for name, recorder in group.recorders.items():
            recorder.open(self._trees[name], 0)
            answer = self._act(name, recorder.ask(0, group.tick), greedy)
            recorder.answer(0, answer, 0)
        counting = None if share is None else self._played < share
        over = group.step(counting)
        for recorder in group.recorders.values():
            recorder.finish()
        if over is not None:
            self._played += over
        return share is not None and bool((self._played >= share).all())

    def result(self) -> dict[str, float]:
        """Means over the episodes counted: `return`, `length`, and the env's statistics."""
        return {name.removeprefix("episode/"): total / number for name, (total, number) in self._reading.means.items() if number}

    def close(self) -> None:
        self.group.close()

    def _act(self, name: str, question: Mapping[str, Any], greedy: bool) -> dict[str, Any]:
        info = self._derived.policies[name]
        rows = self.envs * info.spec.agents
        flat = {
            key: map_tree(lambda leaf: leaf.reshape(rows, *leaf.shape[2:]), tree)
            for key, tree in question.items()
            if key != "state"
        }
        ask = Ask(
            obs=flat.get("obs", {}),
            memory=flat.get("memory", {}),
            first=flat["first"],
            mask=flat.get("mask"),
            state=question.get("state"),
            ids=flat["ids"],
            rng=Rng(flat["keys"]),
            greedy=greedy,
        )
        act = self._policies[name].act(ask)
        answer: dict[str, Any] = {"action": act.action}
        if info.memory != {}:
            answer["memory"] = act.memory
        shape = (self.envs, info.spec.agents)
        return map_tree(lambda leaf: leaf.reshape(*shape, *leaf.shape[1:]), answer)  # type: ignore[no-any-return]


def picture(rollout: Rollout, env: int = 0) -> Array:
    """What one env looks like now."""
    return rollout.group.env.render(env)
