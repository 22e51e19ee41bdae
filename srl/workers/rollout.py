"""Rollouts: whole episodes with policies at hand, without streams: for evaluation, `play` and videos."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from srl.api.policy import Policy
from srl.core.errors import UserError
from srl.core.readings import RETURN, Reading
from srl.core.seeds import Seeds
from srl.core.tree import Array, map_tree
from srl.envs.resolve import make_env
from srl.graph.spec import Graph
from srl.plan.acting import answer
from srl.plan.specs import Derived
from srl.workers.group import Group


class Rollout:
    """E envs that play with the policies they are given, counting the first episodes of each env alike."""

    def __init__(self, graph: Graph, derived: Derived, policies: Mapping[str, Policy], *, envs: int, role: str) -> None:
        self.envs = envs
        self._policies = policies
        self._stand_ins: Mapping[str, Policy] = {}
        self._infos = {name: replace(info, extra={}) for name, info in derived.policies.items()}
        self._reading = Reading()
        self.group = Group(graph, derived, envs=envs, steps=1, first_env=0, reading=self._reading, role=role)
        self._round = 0
        self.restart()

    def restart(self, stand_ins: Mapping[str, Policy] | None = None) -> None:
        """Drop the current episodes. `stand_ins` act for whole teams instead of their policies (cross-play)."""
        self._stand_ins = stand_ins or {}
        self._round += 1
        self.group.renew(self._round)
        self._reading.metrics.clear()
        self.group.episodes.kept = {}
        self._played = np.zeros(self.envs, np.int64)

    def step(self, *, greedy: bool, episodes: int | None = None) -> bool:
        """One step of all envs; True when every env has played its share of `episodes`."""
        share = None if episodes is None else -(-episodes // self.envs)
        group = self.group
        group.open({})
        for name, rows, _ in group.questions():
            group.answer(name, self._act(name, rows, greedy), 0)
        counting = None if share is None else self._played < share
        over = group.step(counting)
        group.finish()
        if over is not None:
            self._played += over
        return share is not None and bool((self._played >= share).all())

    @property
    def episodes(self) -> int:
        """How many have been counted."""
        return int(self._reading["episodes"])

    def returns(self) -> dict[str, list[float]]:
        """The return of every agent in every episode counted, named as in `result`."""
        return {name.removeprefix("episode/"): values for name, values in (self.group.episodes.kept or {}).items()}

    def result(self) -> dict[str, float]:
        """Means over the episodes counted: `return`, `length`, and the env's statistics."""
        return {name.removeprefix("episode/"): value for name, value in self._reading.shown("episode").items()}

    def ended(self, env: int) -> int:
        """How many episodes of one env have ended since the start."""
        return int(self._played[env])

    def so_far(self, env: int) -> dict[str, float]:
        """The return of its present episode by team, mean over the agents; the team of a single agent is ``""``."""
        several = len(self.group.spec.teams) > 1
        means = {}
        for player in self.group.players.values():
            for team, agents in player.slices.items():
                took_part = player.rows_lived[env, agents] > 0
                if took_part.any():
                    means[team if several else ""] = float(player.returns[env, agents][took_part].mean())
        return means

    def last_returns(self) -> dict[str, float]:
        """The same of the episodes that have ended since the last call."""
        kept, self.group.episodes.kept = self.group.episodes.kept or {}, {}
        return {name.removeprefix(RETURN).strip("/"): float(np.mean(values)) for name, values in kept.items() if values}

    def close(self) -> None:
        self.group.close()

    def _act(self, name: str, question: Mapping[str, Any], greedy: bool) -> dict[str, Any]:
        """One policy's answer; teams with a stand-in are asked by themselves."""
        info, slices = self._infos[name], self.group.players[name].slices
        players = [self._stand_ins.get(team, self._policies[name]) for team in slices]
        if all(player is players[0] for player in players):
            return answer(players[0], info, question, greedy=greedy)
        parts = []
        for player, agents in zip(players, slices.values(), strict=True):
            rows = {key: tree if key == "state" else _columns(tree, agents) for key, tree in question.items()}
            parts.append(answer(player, info, rows, greedy=greedy))
        joined: dict[str, Any] = map_tree(lambda *leaves: np.concatenate(leaves, axis=1), *parts)
        return joined


def _columns(tree: Any, agents: slice) -> Any:
    return map_tree(lambda leaf: np.ascontiguousarray(leaf[:, agents]), tree)


def rendering(graph: Graph) -> Graph:
    """The graph with envs that render. Adapters have a setting for this, other envs do not."""
    os.environ.setdefault("SDL_VIDEODRIVER", "dummy")  # no window is needed, and no warning of SDL that there is none
    os.environ.setdefault("SDL_NO_SIGNAL_HANDLERS", "1")  # SIGTERM ends this process
    asked = replace(graph, env=replace(graph.env, args={**graph.env.args, "render": True}))
    try:
        make_env(asked.env.flat, 1, Seeds(graph.seed, "pictures")).close()
    except UserError as error:
        if error.code != "E02":
            raise
        return graph
    return asked


def picture(rollout: Rollout, env: int = 0) -> Array:
    """A picture of one env now."""
    return rollout.group.env.render(env)
