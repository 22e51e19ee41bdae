"""Checks of the first ticks of a BatchEnv, so that invalid rows raise at their source."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from srl.api.env import BatchEnv, Block, TeamBlock
from srl.core.seeds import Seeds
from srl.core.tree import Array, Tree, leaves
from srl.envs.faults import Spot, bad_observation, bad_step


def watch(env: BatchEnv, name: str, ticks: int = 100, place: str = "") -> BatchEnv:
    """Check the first `ticks` blocks of this env; the check then removes itself."""
    watcher = Watcher(env.count, env.seeds, name, place)
    inner_reset, inner_step = env.reset, env.step

    def reset(out: Block) -> None:
        leaf_ids = identities(out)
        inner_reset(out)
        watcher.began(out, leaf_ids)

    def step(actions: Mapping[str, Tree], out: Block) -> None:
        leaf_ids = identities(out)
        inner_step(actions, out)
        watcher.stepped(out, leaf_ids)
        if watcher.ticks >= ticks:
            del env.__dict__["step"], env.__dict__["reset"]

    env.__dict__.update(reset=reset, step=step)
    return env


class Watcher:
    """Follows the episodes of E copies by what they write."""

    def __init__(self, count: int, seeds: Seeds, name: str, place: str = "") -> None:
        self.seeds, self.name, self.place = seeds, name, place
        self.ticks = 0
        self.over = np.zeros(count, bool)
        """The copies whose episode ended with the last step."""
        self.ends = 0
        self._episode = np.full(count, -1, np.int64)
        self._step = np.zeros(count, np.int64)
        self._valid: dict[str, Array] = {}

    def began(self, out: Block, leaf_ids: Mapping[str, int]) -> None:
        """Check the rows that `reset` wrote."""
        self._episode += 1
        self._step[:] = 0
        self.over[:] = False
        self._in_place(out, leaf_ids)
        for team, block in out.teams.items():
            self._rows(team, block)
            self._valid[team] = block.active.copy()
        self._somebody(out, np.ones(len(self.over), bool))

    def stepped(self, out: Block, leaf_ids: Mapping[str, int]) -> None:
        """Check the rows that `step` wrote."""
        self.ticks += 1
        fresh = self.over.copy()
        self._episode[fresh] += 1
        self._step[fresh] = 0
        self._step[~fresh] += 1
        self._in_place(out, leaf_ids)
        goes_on = np.zeros(len(self.over), bool)
        for team, block in out.teams.items():
            self._rows(team, block)
            self._ends(team, block, fresh)
            ended = block.terminated | block.truncated
            self._left(team, block, fresh, ended)
            self._valid[team] = block.active & ~ended
            goes_on |= self._valid[team].any(axis=1)
        self._somebody(out, fresh)
        self.over = ~goes_on
        self.ends += int(self.over.sum())
        if self.over.any() and np.isinf(out.stats[self.over]).any():
            raise bad_step(
                self.spot(int(np.argmax(self.over))), "wrote stats that are infinite", "nan is for an episode without this number"
            )

    def spot(self, env: int) -> Spot:
        seed = self.seeds.seed(env, max(int(self._episode[env]), 0))
        return Spot(self.name, self.place, self.seeds.first + env, seed, int(self._step[env]))

    def _in_place(self, out: Block, leaf_ids: Mapping[str, int]) -> None:
        for path, number in identities(out).items():
            if leaf_ids.get(path) != number:
                likely = "write with out.teams[...].obs[...] = ..., never out.teams[...].obs = ..."
                raise bad_step(self.spot(0), f"put another array in place of '{path}'", likely)

    def _rows(self, team: str, block: TeamBlock) -> None:
        for path, leaf in leaves(block.obs):
            if leaf.dtype.kind == "f" and not np.isfinite(leaf).all():
                env = int(np.argwhere(~np.isfinite(leaf))[0][0])
                key = (team, *path.split("/")) if path else (team,)
                found = np.where(np.isfinite(leaf[env]), leaf[env], np.nan)
                expected = f"{leaf.dtype} ({','.join(map(str, leaf.shape[2:]))}), finite"
                raise bad_observation(self.spot(env), key, expected, found, "rows not written, or a simulation that blew up")
        if not np.isfinite(block.reward).all():
            env = int(np.argwhere(~np.isfinite(block.reward))[0][0])
            raise bad_step(self.spot(env), f"returned the reward {block.reward[env]}", "a reward is one finite number")

    def _ends(self, team: str, block: TeamBlock, fresh: Array) -> None:
        late = fresh[:, None] & (block.terminated | block.truncated | (block.reward != 0))
        if late.any():
            raise bad_step(
                self.spot(int(np.argwhere(late)[0][0])),
                "rewarded or ended the step that only begins the next episode",
                "next-step autoreset: the step after an end ignores the actions and writes the first observation",
            )
        absent = ~self._valid[team] & ~fresh[:, None] & (block.terminated | block.truncated | (block.reward != 0))
        if absent.any():
            env, agent = np.argwhere(absent)[0]
            who = f"rewarded or ended agent {agent} of team '{team}', who was not there"
            raise bad_step(self.spot(int(env)), who, "reward and flags belong to agents that acted")

    def _left(self, team: str, block: TeamBlock, fresh: Array, ended: Array) -> None:
        lost = self._valid[team] & ~block.active & ~ended & ~fresh[:, None]
        if lost.any():
            env, agent = np.argwhere(lost)[0]
            likely = "set terminated or truncated in the step that removes an agent"
            raise bad_step(self.spot(int(env)), f"lost agent {agent} of team '{team}' without an end", likely)

    def _somebody(self, out: Block, fresh: Array) -> None:
        here = np.zeros(len(fresh), bool)
        for block in out.teams.values():
            here |= block.active.any(axis=1)
        if (fresh & ~here).any():
            spot = self.spot(int(np.argmax(fresh & ~here)))
            raise bad_step(spot, "began an episode without any agent", "set active for those who are there")


def identities(out: Block) -> dict[str, int]:
    """The arrays of a block."""
    found: dict[str, Any] = {}
    for team, block in out.teams.items():
        parts = {"obs": block.obs, "active": block.active, "reward": block.reward}
        parts |= {"terminated": block.terminated, "truncated": block.truncated, "signals": dict(block.signals)}
        if block.mask is not None:
            parts["mask"] = block.mask
        found |= {f"{team}/{path}": id(leaf) for path, leaf in leaves(parts)}
    if out.state is not None:
        found |= {f"state/{path}": id(leaf) for path, leaf in leaves(out.state)}
    return found
