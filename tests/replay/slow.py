"""The store again, slowly: lists of rows, one at a time. And slabs of made-up episodes: every observation is another number."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from srl.api.slab import Window
from srl.core.spec import Leaf, zeros
from srl.core.tree import copy_into, map_tree


@dataclass
class Row:
    number: int
    obs: float
    first: bool
    begin: int
    """Number of the first row of its stretch."""
    valid: bool = False
    reward: float = 0.0
    terminated: bool = False
    truncated: bool = False
    action: float = 0.0
    version: int = -1
    memory: float | None = None
    head: bool = True


@dataclass
class SlowStore:
    """What is drawn of one start is worked out row by row."""

    columns: int
    rows: int
    every: int
    window: Window
    n_step: int
    gamma: float
    rings: list[list[Row]] = field(init=False)

    def __post_init__(self) -> None:
        self.rings = [[] for _ in range(self.columns)]

    def insert(self, slab: Any, first: int, continues: bool) -> None:
        steps, envs, agents = slab["reward"].shape
        for env in range(envs):
            for agent in range(agents):
                self._append(self.rings[first + env * agents + agent], slab, steps, env, agent, continues)

    def _append(self, ring: list[Row], slab: Any, steps: int, env: int, agent: int, continues: bool) -> None:
        number = begin = 0
        if ring:
            head = ring[-1]
            if continues:
                ring.pop()
                number, begin = head.number, head.begin
            else:
                number = head.number + 1
                while number % self.every:
                    number += 1
                begin = number
        for step in range(steps + 1):
            row = Row(number + step, slab["obs"]["a"][step, env, agent, 0], slab["first"][step, env, agent], begin)
            if step < steps:
                row.head = False
                row.version = int(slab["version"][0])
                row.action = slab["action"][step, env, agent, 0]
                for name in ("valid", "reward", "terminated", "truncated"):
                    setattr(row, name, slab[name][step, env, agent].item())
                if "memory" in slab and step % self.every == 0:
                    row.memory = slab["memory"]["h"][step // self.every, env, agent, 0]
            ring.append(row)
        newest = ring[-1].number
        ring[:] = [row for row in ring if row.number > newest - self.rows]

    def starts(self) -> dict[float, tuple[int, int]]:
        """Observation of every row that a window may start with -> (column, index in its ring)."""
        found = {}
        for column, ring in enumerate(self.rings):
            for index, row in enumerate(ring):
                if row.number % self.every == 0 and self._whole(ring, index):
                    found[row.obs] = (column, index)
        return found

    def _whole(self, ring: list[Row], index: int) -> bool:
        rows = ring[index : index + self.window.rows + 1]
        if len(rows) <= self.window.rows or any(row.head for row in rows[:-1]):
            return False
        low = self.window.burn_in
        return any(row.valid for row in rows[low : low + (self.window.length or 1)])

    def single(self, column: int, index: int) -> dict[str, Any]:
        """The sum of rewards from this row on, step by step."""
        ring = self.rings[column]
        total, factor, at = 0.0, 1.0, index
        while True:
            row = ring[at]
            total += factor * row.reward
            factor *= self.gamma
            at += 1
            if at - index == self.n_step or not ring[at].valid:
                break
        return {
            "obs": (ring[index].obs, ring[at].obs),
            "first": (ring[index].first, ring[at].first),
            "reward": total,
            "discount": 0.0 if row.terminated else factor,
            "terminated": row.terminated,
            "truncated": row.truncated,
        }


def slab_record(
    steps: int, envs: int, agents: int, *, every: int | None = None, full: bool = False, stack: int = 0
) -> dict[str, Any]:
    """Observations are a Dict of a number and a picture; `full`: with masks, states, extras and signals too.

    `stack`: and of the newest numbers, twice each.
    """
    rows, asked = (steps, envs, agents), (steps + 1, envs, agents)
    record: dict[str, Any] = {
        "obs": {"a": Leaf((*asked, 1), "float64"), "picture": Leaf((*asked, 2, 3), "uint8")},
        "action": Leaf((*rows, 2), "float32"),
        "reward": Leaf(rows, "float32"),
        "terminated": Leaf(rows, "bool"),
        "truncated": Leaf(rows, "bool"),
        "first": Leaf(asked, "bool"),
        "valid": Leaf(rows, "bool"),
        "version": Leaf((1,), "int64"),
        "reused": Leaf((1,), "bool"),
    }
    if full:
        record["mask"] = Leaf((*asked, 3), "bool")
        record["choice"] = Leaf(rows, "bool")
        record["state"] = Leaf((steps + 1, envs, 2), "float32")
        record["extra"] = {"value": Leaf(asked, "float32")}
        record["signals"] = {"cost": Leaf(rows, "float32")}
    if stack:
        record["obs"]["stack"] = Leaf((*asked, stack, 2), "float64")
    if every is not None:
        record["memory"] = {"h": Leaf((-(-steps // every), envs, agents, 2), "float32")}
    return record


class Episodes:
    """Slabs as a group of envs would record them: the last observation of an episode has a row that is not valid."""

    def __init__(
        self, record: Any, rng: np.random.Generator, first: int, every: int | None = None, ends: float = 0.2, again: bool = True
    ) -> None:
        self.record, self.rng, self.every, self.ends = record, rng, every, ends
        self.again = again
        """A stack begins with its first frame again, or with zeros."""
        self.steps, self.envs, self.agents = record["reward"].shape
        self.clock = (first + 1) * 1_000_000
        self.version = 0
        self.begin()

    def begin(self) -> None:
        self.valid = np.ones((self.envs, self.agents), bool)
        self.carry = self._asked(np.ones((self.envs, self.agents), bool))

    def slab(self) -> dict[str, Any]:
        slab = zeros(self.record)
        self.version += 1
        slab["version"][0] = self.version
        _put(slab, self.carry, 0)
        rng, shape = self.rng, (self.envs, self.agents)
        for step in range(self.steps):
            ended = self.valid & (rng.random(shape) < self.ends)
            slab["valid"][step] = self.valid
            slab["reward"][step] = rng.normal(size=shape)
            slab["terminated"][step] = ended & (rng.random(shape) < 0.5)
            slab["truncated"][step] = ended & ~slab["terminated"][step]
            slab["action"][step] = rng.normal(size=(*shape, 2))
            if "choice" in slab:
                slab["choice"][step] = self.valid & (rng.random(shape) < 0.5)
                slab["signals"]["cost"][step] = rng.normal(size=shape)
            if self.every is not None and step % self.every == 0:
                slab["memory"]["h"][step // self.every] = slab["obs"]["a"][step] + [0.25, 0.5]
            back = ~self.valid & (rng.random(shape) < 0.8)
            self.valid = (self.valid & ~ended) | back
            self.carry = self._asked(back)
            _put(slab, self.carry, step + 1)
        return slab

    def _asked(self, first: Any) -> dict[str, Any]:
        shape = (self.envs, self.agents)
        size = self.envs * self.agents
        numbers = (self.clock + np.arange(size)).reshape(*shape, 1)
        self.clock += size
        row: dict[str, Any] = {
            "obs": {"a": numbers, "picture": np.broadcast_to((numbers % 251)[..., None], (*shape, 2, 3))},
            "first": first,
        }
        if "stack" in self.record["obs"]:
            newest = np.repeat(numbers[..., None], 2, -1).astype(float)
            count = self.record["obs"]["stack"].shape[3]
            older = np.concatenate([newest] * (count - 1), 2) if self.again else np.zeros((*shape, count - 1, 2))
            if not first.all():
                older = np.where(first[..., None, None], older, self.carry["obs"]["stack"][:, :, 1:])
            row["obs"]["stack"] = np.concatenate([older, newest], 2)
        if "mask" in self.record:
            row["mask"] = self.rng.random((*shape, 3)) < 0.5
            row["state"] = numbers[:, 0] + np.array([0.0, 1.0])
            row["extra"] = {"value": self.rng.normal(size=shape)}
        return row


def _put(slab: Any, row: Any, step: int) -> None:
    for name, tree in row.items():
        copy_into(map_tree(lambda leaf: leaf[step], slab[name]), tree)
