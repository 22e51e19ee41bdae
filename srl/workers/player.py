"""One policy in a group: views of its slab, the flags that the engine derives, and what outlives a slab.

Shapes: E envs, A agents of the policy, rows [E, A, ...].
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from srl.api.actions import action_map, has_choice
from srl.api.env import EnvSpec, TeamBlock, mask_leaves
from srl.api.slab import SlabShape, slab_spec
from srl.core.errors import UserError
from srl.core.seeds import row_keys, word
from srl.core.spec import lead, zeros
from srl.core.tree import Array, Tree, copy_into, leaves, map_tree
from srl.plan.specs import PolicyInfo
from srl.streams.base import Version
from srl.streams.sample import Slab


class Player:
    """The rows of one policy: what is asked, answered and recorded."""

    def __init__(self, info: PolicyInfo, env: EnvSpec, *, envs: int, steps: int, seed: int, first_env: int) -> None:
        self.info = info
        agents = info.spec.agents
        rows = (envs, agents)
        self.shape = SlabShape(steps=steps, envs=envs, agents=agents, memory_every=info.memory_every)
        self.slab = Slab(tree={}, slot=-1, credit=-1, min_version=0)
        self.ids = first_env * agents + np.arange(envs * agents, dtype=np.int64).reshape(rows)
        self.valid, self.next_valid = np.zeros(rows, bool), np.zeros(rows, bool)
        """Of the row that is asked now, and of the next one."""
        self.active = np.ones(rows, bool)
        self.returns, self.rows_lived = np.zeros(rows), np.zeros(rows, np.int64)
        self._recurrent = info.memory != {}
        self.memory: Tree = zeros(lead(info.memory, envs, agents)) if self._recurrent else {}
        self.carry: dict[str, Any] = {"obs": zeros(lead(info.spec.obs, *rows)), "first": np.zeros(rows, bool)}
        if info.spec.mask:
            self.carry["mask"] = map_tree(lambda leaf: np.ones(leaf.shape, bool), lead(mask_leaves(info.spec.action), *rows))
        if info.spec.state is not None:
            self.carry["state"] = zeros(lead(info.spec.state, envs))
        self.slices = _team_slices(env, info.teams)
        self._first_env, self._root = first_env, seed ^ word(info.name)
        self._map = action_map(info.spec.action, info.bounds)
        self._scratch: Slab | None = None
        self._views: dict[int, list[_Row]] = {}
        self._rows: list[_Row] = []

    def open(self, slab: Slab | None) -> None:
        """Use this slab, or memory that is never sent; its row 0 is the carry row."""
        if slab is None:
            slab = self._scratch = self._scratch or self._new_scratch()
        self.slab = slab
        tree: Any = slab.tree
        rows = self._views.get(slab.slot)
        self._rows = rows if rows is not None else self._views.setdefault(slab.slot, self._new_views(tree))
        for name in self.carry:
            copy_into(map_tree(lambda leaf: leaf[0], tree[name]), self.carry[name])
        tree["reward"][...] = 0.0
        tree["terminated"][...] = False
        tree["truncated"][...] = False
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

    def check(self, tick: int, seed: int) -> None:
        """Refuse a slab with a number that is not finite: a single nan would make all weights nan. `tick` is that of row 0."""
        tree: Any = self.slab.tree
        with np.errstate(all="ignore"):
            for name in ("reward", "obs", "state"):
                for path, leaf in leaves(tree[name], name) if name in tree else ():
                    # one sum finds a nan or an infinity; a sum that overflows is looked at again
                    if leaf.dtype.kind == "f" and not np.isfinite(np.add.reduce(leaf, axis=None)):
                        self._refuse(path, leaf, tick, seed)

    def keep(self, row: int) -> None:
        """Keep this row as the carry row."""
        tree: Any = self.slab.tree
        for name in self.carry:
            copy_into(self.carry[name], map_tree(lambda leaf: leaf[row], tree[name]))

    # episodes -----------------------------------------------------------------------------------------------------

    def first_blocks(self) -> dict[str, TeamBlock]:
        """Where a reset writes the first rows: the carry row."""
        rows = (self.shape.envs, self.shape.agents)
        reward, terminated, truncated = np.zeros(rows, np.float32), np.zeros(rows, bool), np.zeros(rows, bool)
        signals = {name: zeros(lead(leaf, *rows)) for name, leaf in self.info.signals.items()}
        return self._team_blocks(self.carry["obs"], self.carry.get("mask"), reward, terminated, truncated, signals)

    def begin(self) -> None:
        """The env was reset: every active agent starts an episode."""
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

    def save(self) -> dict[str, Any]:
        """A copy of all that outlives a slab."""
        copied: dict[str, Any] = map_tree(np.copy, self._outliving)
        return copied

    def load(self, saved: Mapping[str, Any]) -> None:
        """The inverse of `save`."""
        copy_into(self._outliving, saved)

    @property
    def _outliving(self) -> dict[str, Any]:
        kept: dict[str, Any] = {"valid": self.valid, "returns": self.returns, "lived": self.rows_lived, "carry": self.carry}
        if self._recurrent:
            kept["memory"] = self.memory
        return kept

    # views --------------------------------------------------------------------------------------------------------

    def _new_scratch(self) -> Slab:
        info = self.info
        return Slab(
            tree=zeros(slab_spec(self.shape, info.spec, memory={}, extra={}, signals=info.signals)),
            slot=-1,
            credit=-1,
            min_version=0,
        )

    def _new_views(self, tree: dict[str, Any]) -> list[_Row]:
        reads = [name for name in ("obs", "mask", "state") if name in self.info.reads and name in tree]
        rows = []
        for number in range(self.shape.steps + 1):
            row = _Row({name: _at(tree[name], number) for name in (*reads, "first")})
            row.question["ids"] = self.ids
            if self._recurrent:
                row.question["memory"] = self.memory
            row.first = tree["first"][number]
            row.extra = _at(tree["extra"], number) if "extra" in tree else None
            row.state = _at(tree["state"], number) if "state" in tree else None
            rows.append(row)
            if number == self.shape.steps:
                return rows
            row.action = _at(tree["action"], number)
            row.valid, row.reward = tree["valid"][number], tree["reward"][number]
            row.terminated, row.truncated = tree["terminated"][number], tree["truncated"][number]
            after = _at(tree["mask"], number + 1) if "mask" in tree else None
            if after is not None:
                row.mask, row.choice = _at(tree["mask"], number), tree["choice"][number]
            signals = {name: _at(tree["signals"][name], number) for name in self.info.signals}
            obs = _at(tree["obs"], number + 1)
            row.blocks = self._team_blocks(obs, after, row.reward, row.terminated, row.truncated, signals)
            every = self.shape.memory_every
            if "memory" in tree and (number == 0 or (every is not None and number % every == 0)):
                row.memory = _at(tree["memory"], number // (every or 1))
        return rows

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

    def _remember(self, row: _Row) -> None:
        """Record the memory that this row is asked with, if the slab has a place for it."""
        if row.memory is not None:
            copy_into(row.memory, self.memory)

    def _refuse(self, path: str, leaf: Array, tick: int, seed: int) -> None:
        found = np.argwhere(~np.isfinite(leaf))
        if not len(found):
            return
        row, env, *rest = found[0]
        value = leaf[tuple(found[0])]
        whose = f"for agent {rest[0]} of policy '{self.info.name}'" if rest and path != "state" else "as its state"
        what = "reward" if path == "reward" else "observation"
        raise UserError(
            f"env {self._first_env + env} wrote the {what} {value} {whose}",
            ("key", path),
            ("step", f"{tick + row:,} of this env, seed {seed}"),
            ("expected", "finite numbers: a single nan makes all weights nan"),
            code="E05",
        )


class _Row:
    """Views of one row of a slab, made once for each slot."""

    __slots__ = (
        "action", "blocks", "choice", "extra", "first", "mask", "memory", "question", "reward", "state", "terminated",
        "truncated", "valid",
    )  # fmt: skip
    action: Any
    blocks: dict[str, TeamBlock]
    choice: Array | None
    extra: Any
    first: Array
    mask: Any
    memory: Any
    reward: Array
    state: Any
    terminated: Array
    truncated: Array
    valid: Array

    def __init__(self, question: dict[str, Any]) -> None:
        self.question = question
        self.action = self.choice = self.extra = self.mask = self.memory = self.state = None


def _at(tree: Any, row: int) -> Any:
    return map_tree(lambda leaf: leaf[row], tree)


def _team_slices(env: EnvSpec, teams: Sequence[str]) -> dict[str, slice]:
    slices, start = {}, 0
    for team in teams:
        size = len(env.teams[team].agents)
        slices[team] = slice(start, start + size)
        start += size
    return slices
