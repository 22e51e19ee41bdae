"""The rows of a slab as one policy meets them: views that are made once for each slot, and the check of their numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from srl.api.env import BatchEnv, TeamBlock
from srl.api.slab import SlabShape
from srl.core.errors import UserError
from srl.core.readings import Reading
from srl.core.tree import Array, Tree, leaves, map_tree
from srl.plan.specs import PolicyInfo


@dataclass(slots=True, eq=False)
class Row:
    """Views of one row; row T has only what is asked."""

    question: dict[str, Any]
    first: Array
    extra: Any
    state: Any
    action: Any = None
    blocks: dict[str, TeamBlock] = field(default_factory=dict)
    reward: Any = None
    terminated: Any = None
    truncated: Any = None
    valid: Any = None
    mask: Any = None
    choice: Array | None = None
    memory: Any = None
    """Where the memory that the row is asked with is recorded."""


def rows_of(
    tree: dict[str, Any], info: PolicyInfo, shape: SlabShape, asked: Mapping[str, Any], slices: Mapping[str, slice], active: Array
) -> list[Row]:
    """Rows 0..T of a slab. `asked`: what every question has beside them."""
    reads = [name for name in ("obs", "mask", "state") if name in info.reads and name in tree]
    rows = []
    for number in range(shape.steps + 1):
        at = {name: _at(part, number) for name, part in tree.items() if name in ("obs", "mask", "state", "extra", "first")}
        question = {**{name: at[name] for name in (*reads, "first")}, **asked}
        row = Row(question, at["first"], at.get("extra"), at.get("state"))
        rows.append(row)
        if number == shape.steps:
            break
        for name in ("action", "reward", "terminated", "truncated", "valid"):
            setattr(row, name, _at(tree[name], number))
        if "mask" in tree:
            row.mask, row.choice = at["mask"], tree["choice"][number]
        after = _at(tree["mask"], number + 1) if "mask" in tree else None
        signals = {name: _at(tree["signals"][name], number) for name in info.signals}
        obs = _at(tree["obs"], number + 1)
        row.blocks = team_blocks(slices, active, obs, after, row.reward, row.terminated, row.truncated, signals)
        every = shape.memory_every
        if "memory" in tree and (number == 0 or (every is not None and number % every == 0)):
            row.memory = _at(tree["memory"], number // (every or 1))
    return rows


def team_blocks(
    slices: Mapping[str, slice], active: Array, obs: Tree, mask: Tree | None, reward: Array, terminated: Array, truncated: Array,
    signals: Mapping[str, Tree],
) -> dict[str, TeamBlock]:  # fmt: skip
    """Team -> its agents' part of each."""

    def part(tree: Any, agents: slice) -> Any:
        return map_tree(lambda leaf: leaf[:, agents], tree)

    return {
        team: TeamBlock(
            obs=part(obs, agents),
            mask=part(mask, agents) if mask is not None else None,
            active=active[:, agents],
            reward=reward[:, agents],
            terminated=terminated[:, agents],
            truncated=truncated[:, agents],
            signals={name: part(leaf, agents) for name, leaf in signals.items()},
        )
        for team, agents in slices.items()
    }


def purge(env: BatchEnv, tree: Any, reading: Reading) -> None:
    """Rows of episodes that a failure of their copy cut off are not valid."""
    steps = len(tree["valid"])
    for copy, ago, played in env.lost():
        last = steps - 1 - ago
        if last < 0:
            continue
        rows = tree["valid"][max(last - played + 1, 0) : last + 1, copy]
        reading.count("env/purged_rows", float(np.count_nonzero(rows)))
        rows[...] = False
        if "choice" in tree:
            tree["choice"][max(last - played + 1, 0) : last + 1, copy] = False


def check_finite(tree: Any, policy: str, first_env: int, tick: int, seed: int) -> None:
    """Refuse a slab with a number that is not finite: a single nan would make all weights nan. `tick` is that of row 0."""
    with np.errstate(all="ignore"):
        for name in ("reward", "obs", "state"):
            for path, leaf in leaves(tree[name], name) if name in tree else ():
                # one sum finds a nan or an infinity; a sum that overflows is looked at again
                if leaf.dtype.kind != "f" or np.isfinite(np.add.reduce(leaf, axis=None)):
                    continue
                found = np.argwhere(~np.isfinite(leaf))
                if not len(found):
                    continue
                row, env, *rest = found[0]
                whose = f"for agent {rest[0]} of policy '{policy}'" if rest and path != "state" else "as its state"
                what = "reward" if path == "reward" else "observation"
                raise UserError(
                    f"env {first_env + env} wrote the {what} {leaf[tuple(found[0])]} {whose}",
                    ("key", path),
                    ("step", f"{tick + row:,} of this env, seed {seed}"),
                    ("expected", "finite numbers: a single NaN makes all weights NaN"),
                    code="E05",
                )


def _at(tree: Any, row: int) -> Any:
    return map_tree(lambda leaf: leaf[row], tree)
