"""Rows of one (group, policy): what is asked, answered and recorded, and the flags that the engine derives.

A recorder is filled slab after slab. Row T of a slab is kept as the carry row, which is row 0 of the next one.
Shapes: E envs, A agents of the policy, rows [E, A, ...].
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from srl.api.env import EnvSpec, TeamBlock, mask_leaves
from srl.api.slab import SlabShape
from srl.core.errors import UserError
from srl.core.seeds import row_keys, word
from srl.core.spec import lead, zeros
from srl.core.tree import Array, Tree, copy_into, map_tree
from srl.envs.bounds import action_map
from srl.plan.specs import PolicyInfo
from srl.workers.outcomes import Outcomes


class Recorder:
    """Writes the slabs of one policy in one group of envs."""

    def __init__(self, info: PolicyInfo, env: EnvSpec, shape: SlabShape, *, seed: int, first_env: int) -> None:
        self.info, self.shape = info, shape
        envs, agents = shape.envs, shape.agents
        self.steps, self._first_env = shape.steps, first_env
        self.tree: dict[str, Any] = {}
        self.ids = first_env * agents + np.arange(envs * agents, dtype=np.int64).reshape(envs, agents)
        self.valid = np.zeros((envs, agents), bool)
        """Of the row that is asked now."""
        self.next_valid = np.zeros((envs, agents), bool)
        self.active = np.ones((envs, agents), bool)
        self.returns = np.zeros((envs, agents))
        self.rows_lived = np.zeros((envs, agents), np.int64)
        self.memory: Tree = zeros(lead(info.memory, envs, agents)) if info.memory != {} else {}
        self.outcomes = Outcomes(envs) if info.source is not None else None
        """Of episodes against a past version, which this policy then is."""
        self._root = seed ^ word(info.name)
        self._carry: dict[str, Any] = self._new_carry(env)
        self.slices = _team_slices(env, info.teams)
        self._signals = info.signals
        self._blocks: dict[int, list[dict[str, TeamBlock]]] = {}
        self._asks: dict[int, list[dict[str, Any]]] = {}
        self._views: dict[int, list[tuple[Any, Any]]] = {}
        self._map = action_map(info.spec.action, info.bounds)
        self.slot = -1
        self._carry_in = False

    # one slab -----------------------------------------------------------------------------------------------------

    def first_blocks(self) -> dict[str, TeamBlock]:
        """Where the env writes its very first rows: the carry row."""
        carry = self._carry
        rows = (self.shape.envs, self.shape.agents)
        flags = [np.zeros(rows, bool), np.zeros(rows, bool), np.zeros(rows, np.float32)]
        signals = {name: zeros(lead(leaf, *rows)) for name, leaf in self._signals.items()}
        return self._team_blocks(carry["obs"], carry.get("mask"), flags[2], flags[0], flags[1], signals)

    def begin(self) -> None:
        """The env was reset: every active agent starts an episode."""
        self._carry["first"][...] = self.active
        self.valid[...] = self.active
        self.returns[...] = 0.0
        self.rows_lived[...] = 0
        if self.outcomes is not None:
            self.outcomes.begin()

    def open(self, tree: Tree, slot: int) -> None:
        """Take memory for the next slab; its row 0 is the carry row."""
        assert isinstance(tree, dict)
        self.tree, self.slot = tree, slot
        if slot not in self._asks:
            self._cache(slot, tree)
        for name in ("obs", "first", "mask", "state"):
            if name in self._carry:
                copy_into(map_tree(lambda leaf: leaf[0], tree[name]), self._carry[name])
        tree["reward"][...] = 0.0
        tree["terminated"][...] = False
        tree["truncated"][...] = False
        self._remember(0)

    def ask(self, row: int, tick: int) -> dict[str, Any]:
        """The question of one row, `[E, A, ...]` views."""
        question = self._asks[self.slot][row]
        question["keys"] = row_keys(self._root, self.ids, tick)
        return question

    def answer(self, row: int, tree: Tree, version: int) -> None:
        """Write an answer into its row. Row T's action and memory are thrown away: it is asked again."""
        if row == 0:
            self.tree["version"][0] = version
        if self.outcomes is not None:
            self._faced(row, version)
        action, extra = self._views[self.slot][row]
        if extra is not None:
            copy_into(extra, tree["extra"])
        if row == self.steps:
            return
        copy_into(action, tree["action"])
        if self.memory is not None and "memory" in tree:
            copy_into(self.memory, tree["memory"])

    def actions(self, row: int) -> dict[str, Tree]:
        """Team -> the env's actions of this row."""
        mapped = self._map(self._views[self.slot][row][0])
        if len(self.slices) == 1:
            return {self.info.teams[0]: mapped}
        return {team: map_tree(lambda leaf, part=part: leaf[:, part], mapped) for team, part in self.slices.items()}

    def blocks(self, row: int) -> dict[str, TeamBlock]:
        """Where the env writes: flags of `row`, observations of `row + 1`."""
        self.active[...] = True
        return self._blocks[self.slot][row]

    @property
    def next_state(self) -> Tree | None:
        """Where the env writes its state of the first row."""
        return self._carry.get("state")

    def state_at(self, row: int) -> Tree | None:
        """The state leaf of one row."""
        return map_tree(lambda leaf: leaf[row], self.tree["state"]) if "state" in self.tree else None

    def stepped(self, row: int) -> bool:
        """The env has stepped: derive the flags. True when an agent's episode ended with this row."""
        tree = self.tree
        terminated, truncated = tree["terminated"][row], tree["truncated"][row]
        ended = np.logical_or(terminated, truncated)
        any_ended = bool(ended.any())
        valid = self.valid
        tree["valid"][row] = valid
        if any_ended:
            np.logical_and(truncated, ~terminated, out=truncated)  # terminated wins
            np.logical_and(self.active, ~ended, out=self.next_valid)
        else:
            self.next_valid[...] = self.active
        np.logical_and(self.active, ~valid, out=tree["first"][row + 1])
        if "choice" in tree:
            tree["choice"][row] = valid & _has_choice(map_tree(lambda leaf: leaf[row], tree["mask"]), self.info)
        self.returns += tree["reward"][row]
        self.rows_lived += valid
        if self.info.memory != {}:
            self._zero_memory(tree["first"][row + 1])
            if row + 1 < self.steps:
                self._remember(row + 1)
        return any_ended

    def advance(self) -> None:
        """The next row is now: call after `stepped` and the episode's bookkeeping."""
        self.valid, self.next_valid = self.next_valid, self.valid

    def forget(self, envs: Array) -> None:
        """Their episodes are over: start counting anew."""
        self.returns[envs] = 0.0
        self.rows_lived[envs] = 0

    def mean_return(self) -> Array:
        """`[E]`: of the agents that took part in the present episode."""
        took_part = self.rows_lived > 0
        mean: Array = (self.returns * took_part).sum(1) / np.maximum(took_part.sum(1), 1)
        return mean

    def finish(self) -> None:
        """The slab is full: keep row T as the carry row. Envs are looked at closely in their first ticks; rewards always."""
        if not np.isfinite(self.tree["reward"]).all():
            self._refuse_reward(self.tree["reward"])
        self.keep(self.steps)

    def keep(self, row: int) -> None:
        """Keep this row as the carry row: row 0 of the next slab."""
        for name in ("obs", "first", "mask", "state"):
            if name in self._carry:
                copy_into(self._carry[name], map_tree(lambda leaf: leaf[row], self.tree[name]))

    # resume -------------------------------------------------------------------------------------------------------

    def save(self) -> dict[str, Any]:
        """All that a later run needs to go on at the next slab."""
        saved = {
            "valid": self.valid,
            "returns": self.returns,
            "lived": self.rows_lived,
            "carry": self._carry,
            "memory": self.memory,
            "outcomes": self.outcomes.arrays if self.outcomes is not None else {},
        }
        copied: dict[str, Any] = map_tree(
            np.copy, {key: tree for key, tree in saved.items() if not (isinstance(tree, dict) and not tree)}
        )
        return copied

    def load(self, saved: Mapping[str, Any]) -> None:
        """The inverse of `save`."""
        copy_into(self.valid, saved["valid"])
        copy_into(self.returns, saved["returns"])
        copy_into(self.rows_lived, saved["lived"])
        copy_into(self._carry, saved["carry"])
        if self.info.memory != {}:
            copy_into(self.memory, saved["memory"])
        if self.outcomes is not None:
            copy_into(self.outcomes.arrays, saved["outcomes"])

    def reset_memory(self) -> None:
        """All agents start anew."""
        if self.info.memory != {}:
            map_tree(lambda leaf: leaf.fill(0), self.memory)

    # private ------------------------------------------------------------------------------------------------------

    def _refuse_reward(self, rewards: Array) -> None:
        row, env, agent = np.argwhere(~np.isfinite(rewards))[0]
        whose = f"for agent {agent} of policy '{self.info.name}'"
        raise UserError(
            f"env {self._first_env + env} wrote the reward {rewards[row, env, agent]} {whose}",
            ("expected", "one finite number: a single nan makes all weights nan"),
            code="E05",
        )

    def _new_carry(self, env: EnvSpec) -> dict[str, Any]:
        rows = (self.shape.envs, self.shape.agents)
        spec = self.info.spec
        carry: dict[str, Any] = {"obs": zeros(lead(spec.obs, *rows)), "first": np.zeros(rows, bool)}
        if spec.mask:
            carry["mask"] = map_tree(lambda leaf: np.ones(leaf.shape, bool), lead(mask_leaves(spec.action), *rows))
        if spec.state is not None:
            carry["state"] = zeros(lead(spec.state, self.shape.envs))
        return carry

    def _cache(self, slot: int, tree: dict[str, Any]) -> None:
        """All views of one slot, made once."""
        reads = [name for name in ("obs", "mask", "state") if name in self.info.reads and name in tree]
        asks, views, blocks = [], [], []
        for row in range(self.steps + 1):
            at = lambda leaf, row=row: leaf[row]  # noqa: E731
            question = {name: map_tree(at, tree[name]) for name in (*reads, "first")}
            question["ids"] = self.ids
            if self.info.memory != {}:
                question["memory"] = self.memory
            if self.outcomes is not None:
                question |= self.outcomes.leaves
            asks.append(question)
            action = map_tree(at, tree["action"]) if row < self.steps else None
            views.append((action, map_tree(at, tree["extra"]) if "extra" in tree else None))
            if row < self.steps:
                after = lambda leaf, row=row: leaf[row + 1]  # noqa: E731
                blocks.append(
                    self._team_blocks(
                        map_tree(after, tree["obs"]),
                        map_tree(after, tree["mask"]) if "mask" in tree else None,
                        tree["reward"][row],
                        tree["terminated"][row],
                        tree["truncated"][row],
                        {name: map_tree(at, tree["signals"][name]) for name in self._signals},
                    )
                )
        self._asks[slot], self._views[slot], self._blocks[slot] = asks, views, blocks

    def _team_blocks(
        self, obs: Tree, mask: Tree | None, reward: Array, terminated: Array, truncated: Array, signals: Mapping[str, Tree]
    ) -> dict[str, TeamBlock]:
        def part(tree: Any, agents: slice) -> Any:
            return map_tree(lambda leaf: leaf[:, agents], tree)

        return {
            team: TeamBlock(
                obs=part(obs, agents),
                mask=part(mask, agents) if mask is not None else None,
                active=self.active[:, agents],
                reward=reward[:, agents],
                terminated=terminated[:, agents],
                truncated=truncated[:, agents],
                signals={name: part(leaf, agents) for name, leaf in signals.items()},
            )
            for team, agents in self.slices.items()
        }

    def _faced(self, row: int, version: int) -> None:
        assert self.outcomes is not None
        self.outcomes.told()
        if row < self.steps:
            self.outcomes.answered(version)

    def _zero_memory(self, first: Array) -> None:
        if first.any():
            map_tree(lambda leaf: leaf.__setitem__(first, 0), self.memory)

    def _remember(self, row: int) -> None:
        """Write the memory that row `row` is asked with, if that row is recorded."""
        if self.info.memory == {} or "memory" not in self.tree:
            return
        every = self.shape.memory_every
        if row == 0 or (every is not None and row % every == 0):
            copy_into(map_tree(lambda leaf: leaf[row // (every or 1)], self.tree["memory"]), self.memory)


def _team_slices(env: EnvSpec, teams: tuple[str, ...]) -> dict[str, slice]:
    slices, start = {}, 0
    for team in teams:
        size = len(env.teams[team].agents)
        slices[team] = slice(start, start + size)
        start += size
    return slices


def _has_choice(mask: Any, info: PolicyInfo) -> Array:
    """[E, A]: at least one part of the action leaves more than one value open."""
    from srl.api.masks import has_choice

    return has_choice(mask, info.spec.action)
