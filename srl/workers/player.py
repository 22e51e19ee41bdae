"""One policy in a group: views of its slab, the flags that the engine derives, and what outlives a slab.

Shapes: E envs, A agents of the policy, rows [E, A, ...].
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from srl.api.actions import action_map, has_choice
from srl.api.env import EnvSpec, TeamBlock, mask_leaves
from srl.api.slab import SlabShape, slab_spec
from srl.core.seeds import row_keys, word
from srl.core.spec import lead, zeros
from srl.core.tree import Array, Tree, copy_into, map_tree
from srl.plan.specs import PolicyInfo
from srl.streams.base import Version
from srl.streams.sample import Slab
from srl.workers.rows import Row, rows_of, team_blocks


class Player:
    """The rows of one policy: what is asked, answered and recorded."""

    def __init__(
        self, info: PolicyInfo, env: EnvSpec, *, envs: int, steps: int, seed: int, first_env: int, incarnation: int = 0
    ) -> None:
        self.info = info
        agents = info.spec.agents
        rows = (envs, agents)
        self.shape = SlabShape(steps=steps, envs=envs, agents=agents, memory_every=info.window.memory_every)
        self.slab = Slab(tree={}, slot=-1, credit=-1, min_version=0)
        self.ids = first_env * agents + np.arange(envs * agents, dtype=np.int64).reshape(rows)
        self.valid, self.next_valid = np.zeros(rows, bool), np.zeros(rows, bool)
        """Flags of the current row, and of the next one."""
        self.active = np.ones(rows, bool)
        self.returns, self.rows_lived = np.zeros(rows), np.zeros(rows, np.int64)
        self._recurrent = info.memory != {}
        self.memory: Tree = zeros(lead(info.memory, envs, agents)) if self._recurrent else {}
        self.carry: dict[str, Any] = {"obs": zeros(lead(info.spec.obs, *rows)), "first": np.zeros(rows, bool)}
        if info.spec.mask:
            self.carry["mask"] = map_tree(lambda leaf: np.ones(leaf.shape, bool), lead(mask_leaves(info.spec.action), *rows))
        if info.spec.state is not None:
            self.carry["state"] = zeros(lead(info.spec.state, envs))
        self._first_env = first_env
        self._number = np.array([incarnation << 32])
        """Of the next slab: one more than that of the slab before, if no row of these envs was lost between them."""
        self.slices = _team_slices(env, info.teams)
        self._root = seed ^ word(info.name)
        self._map = action_map(info.spec.action, info.bounds)
        self._scratch: Slab | None = None
        self._views: dict[int, list[Row]] = {}
        self._rows: list[Row] = []

    def open(self, slab: Slab | None) -> None:
        """Use this slab, or memory that is never sent; its row 0 is the carry row."""
        if slab is None:
            if self._scratch is None:
                spec = slab_spec(self.shape, self.info.spec, memory={}, extra={}, signals=self.info.signals)
                self._scratch = Slab(tree=zeros(spec), slot=-1, credit=-1, min_version=0)
            slab = self._scratch
        self.slab = slab
        tree: Any = slab.tree
        rows = self._views.get(slab.slot)
        if rows is None:
            asked = {"ids": self.ids, "memory": self.memory} if self._recurrent else {"ids": self.ids}
            rows = self._views[slab.slot] = rows_of(tree, self.info, self.shape, asked, self.slices, self.active)
        self._rows = rows
        for name in self.carry:
            copy_into(map_tree(lambda leaf: leaf[0], tree[name]), self.carry[name])
        tree["reward"][...] = 0.0
        tree["terminated"][...] = False
        tree["truncated"][...] = False
        if "origin" in tree:
            tree["origin"][0], tree["origin"][1] = self._first_env, self._number[0]
        self._remember(self._rows[0])

    def question(self, row: int, tick: int) -> dict[str, Any]:
        """Views of one row, and the keys of its noise."""
        question = self._rows[row].question
        question["keys"] = row_keys(self._root, self.ids, tick)
        return question

    def answer(self, row: int, tree: Any, version: Version) -> None:
        """Write an answer. Row T's action and memory are dropped: it is asked again as row 0."""
        at = self._rows[row]
        if row == 0:
            self.slab.tree["version"][0] = version  # type: ignore[index]
        if at.extra is not None:
            copy_into(at.extra, tree["extra"])
        if at.action is not None:
            copy_into(at.action, tree["action"])
            if "memory" in tree:
                copy_into(self.memory, tree["memory"])

    def actions(self, row: int) -> dict[str, Tree]:
        """Team -> the env's actions of this row."""
        mapped = self._map(self._rows[row].action)
        if len(self.slices) == 1:
            return {self.info.teams[0]: mapped}
        return {team: map_tree(lambda leaf, part=part: leaf[:, part], mapped) for team, part in self.slices.items()}

    def blocks(self, row: int) -> dict[str, TeamBlock]:
        """Team -> where the env writes: flags of `row`, observations of `row + 1`."""
        self.active[...] = True
        return self._rows[row].blocks

    def state_at(self, row: int) -> Tree | None:
        """The env's state at one row."""
        state: Tree | None = self._rows[row].state
        return state

    def stepped(self, row: int) -> bool:
        """Derive the flags of this row from what the env wrote. True when an agent's episode ended with it."""
        at, after = self._rows[row], self._rows[row + 1]
        ended = np.logical_or(at.terminated, at.truncated)
        any_ended = bool(ended.any())
        valid, active = self.valid, self.active
        at.valid[...] = valid
        if any_ended:
            np.logical_and(at.truncated, ~at.terminated, out=at.truncated)  # terminated wins
            np.logical_and(active, ~ended, out=self.next_valid)
        else:
            self.next_valid[...] = active
        np.logical_and(active, ~valid, out=after.first)
        if at.choice is not None:
            at.choice[...] = valid & has_choice(at.mask, self.info.spec.action)
        self.returns += at.reward
        self.rows_lived += valid
        if self._recurrent:
            if after.first.any():
                map_tree(lambda leaf: leaf.__setitem__(after.first, 0), self.memory)
            self._remember(after)
        return any_ended

    def keep(self, row: int, *, lost: bool = False) -> None:
        """Keep this row as the carry row. `lost`: the rows before it are thrown away."""
        self._number += 2 if lost else 1
        tree: Any = self.slab.tree
        for name in self.carry:
            copy_into(self.carry[name], map_tree(lambda leaf: leaf[row], tree[name]))

    # episodes -----------------------------------------------------------------------------------------------------

    def first_blocks(self) -> dict[str, TeamBlock]:
        """Where a reset writes the first rows: the carry row."""
        rows = (self.shape.envs, self.shape.agents)
        reward, terminated, truncated = np.zeros(rows, np.float32), np.zeros(rows, bool), np.zeros(rows, bool)
        signals = {name: zeros(lead(leaf, *rows)) for name, leaf in self.info.signals.items()}
        obs, mask = self.carry["obs"], self.carry.get("mask")
        return team_blocks(self.slices, self.active, obs, mask, reward, terminated, truncated, signals)

    def begin(self) -> None:
        """The env was reset: every active agent starts an episode."""
        self._number += 2
        self.carry["first"][...] = self.active
        self.valid[...] = self.active
        self.returns[...] = 0.0
        self.rows_lived[...] = 0
        if self._recurrent:
            map_tree(lambda leaf: leaf.fill(0), self.memory)

    def mean_return(self) -> Array:
        """`[E]`: of the agents that took part in the present episode."""
        took_part = self.rows_lived > 0
        mean: Array = (self.returns * took_part).sum(1) / np.maximum(took_part.sum(1), 1)
        return mean

    @property
    def outliving(self) -> dict[str, Any]:
        """All that outlives a slab: to be copied, or written into."""
        kept: dict[str, Any] = {"valid": self.valid, "returns": self.returns, "lived": self.rows_lived, "carry": self.carry}
        if self.info.replay is not None:
            kept["number"] = self._number
        if self._recurrent:
            kept["memory"] = self.memory
        return kept

    def _remember(self, row: Row) -> None:
        """Record the memory that this row is asked with, if the slab has a place for it."""
        if row.memory is not None:
            copy_into(row.memory, self.memory)


def _team_slices(env: EnvSpec, teams: Sequence[str]) -> dict[str, slice]:
    slices, start = {}, 0
    for team in teams:
        size = len(env.teams[team].agents)
        slices[team] = slice(start, start + size)
        start += size
    return slices
