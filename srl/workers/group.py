"""A group: E copies of an env that step together, and the rows of every policy that acts in them.

A slab is opened, then for every row: questions, an answer of each policy, a step; after row T it is finished (workers/actor.py).
Row T is kept as the carry row, which is row 0 of the next slab. Shapes: E envs, A agents of a policy, rows [E, A, ...].
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from srl.api.env import BatchEnv, Block
from srl.core.readings import Reading
from srl.core.seeds import Seeds, word
from srl.core.tree import Array, Tree, copy_into
from srl.envs.resolve import make_env
from srl.graph.spec import Graph
from srl.plan.specs import Derived
from srl.streams.base import Version
from srl.streams.sample import Slab
from srl.workers.episodes import EpisodeLog, EpisodeMetrics
from srl.workers.player import Player
from srl.workers.rows import check_finite, purge

EPISODES = ""
"""Beside the names of policies: the slab that records of ended episodes are written into."""


class Group:
    """One life cycle for the envs and all policies in them: open, questions, answer, step, finish."""

    def __init__(
        self,
        graph: Graph,
        derived: Derived,
        *,
        envs: int,
        steps: int,
        first_env: int,
        reading: Reading,
        role: str = "env",
        barrier: int = 0,
        worker: str = "",
        title: str = "episode",
        log: bool = False,
    ) -> None:
        self.spec, self.reading = derived.env, reading
        self.episodes = EpisodeMetrics(derived.env, reading, title)
        self.row = 0
        """The row that is asked now."""
        self.tick = 0
        """Env steps so far: part of the key of every noise."""
        self.waiting: set[str] = set()
        """Policies whose answers to this row are missing."""
        self._graph, self._envs, self._first_env = graph, envs, first_env
        self._role, self._worker = role, worker
        self.env: BatchEnv = self._new_env(barrier)
        seed = graph.seed if role == "env" else graph.seed ^ word(role)
        self.players = {
            name: Player(info, derived.env, envs=envs, steps=steps, seed=seed, first_env=first_env, incarnation=barrier)
            for name, info in derived.policies.items()
        }
        self._all = list(self.players.values())
        self._asked_last = {name: player for name, player in self.players.items() if player.info.replay is None}
        self._steps = steps
        self.log = EpisodeLog(envs, self.players) if log else None
        self._state = next((player for player in self._all if "state" in player.carry), None)
        """The player whose slab the env writes its state into; the others get a copy."""
        self._slabs: dict[str, Slab] = {}
        self._blocks: dict[tuple[int, int], Block] = {}
        self._stats = np.zeros((envs, len(derived.env.stats)))

    # the life of a slab -------------------------------------------------------------------------------------------

    def open(self, slabs: Mapping[str, Slab]) -> None:
        """Take memory for the next rows of these policies; those of the others are not recorded."""
        self.row, self._slabs = 0, dict(slabs)
        for name, player in self.players.items():
            player.open(slabs.get(name))
        if self.log is not None:
            self.log.open(slabs[EPISODES].tree)

    def questions(self) -> list[tuple[str, dict[str, Any], Version]]:
        """Of this row: (policy, rows, the oldest version that may answer). Row T is asked for its value: a replay needs none."""
        row, tick = self.row, self.tick
        asked = self.players if row < self._steps else self._asked_last
        self.waiting = set(asked)
        return [(name, player.question(row, tick), player.slab.min_version) for name, player in asked.items()]

    def answer(self, policy: str, tree: Tree, version: Version) -> None:
        """Write the answer of one policy into this row."""
        self.players[policy].answer(self.row, tree, version)
        if self.log is not None and self.row < self._steps:
            self.log.answered(policy, version)
        self.waiting.discard(policy)

    def step(self, counting: Array | None = None) -> Array | None:
        """All policies have answered: step the envs and come to the next row.

        `[E]` bool: the envs whose episode ended, None if none did. Only episodes of the envs in `counting` are reported.
        """
        row = self.row
        actions: dict[str, Tree] = {}
        for player in self._all:
            actions.update(player.actions(row))
        self.env.step(actions, self._block(row))
        self.tick += 1
        ended = False
        for player in self._all:
            ended |= player.stepped(row)
        if self._state is not None and len(self._all) > 1:
            state = self._state.state_at(row + 1)
            for player in self._all:
                if player is not self._state:
                    copy_into(player.state_at(row + 1), state)
        over = self._count_episodes(counting) if ended else None
        for player in self._all:
            player.valid, player.next_valid = player.next_valid, player.valid
        self.row = row + 1
        return over

    def finish(self) -> dict[str, Slab]:
        """The slab is full and row T is answered: the slabs to hand on."""
        for player in self._all:
            purge(self.env, player.slab.tree, self.reading)
            check_finite(player.slab.tree, player.info.name, self._first_env, self.tick - self.row, self._graph.seed)
            player.keep(self.row)
        self.env.report(self.reading)
        return self._close()

    def abandon(self) -> dict[str, Slab]:
        """Abandon the slab at this row; the envs continue from here. Returns the slabs to discard."""
        if self.row > 0:
            for player in self._all:
                player.keep(self.row, lost=True)
        return self._close()

    def _close(self) -> dict[str, Slab]:
        slabs, self._slabs = self._slabs, {}
        self.row = 0
        self.waiting.clear()
        return slabs

    # the life of the envs -----------------------------------------------------------------------------------------

    def reset(self) -> None:
        """Start an episode in every env; its first row is the carry row."""
        teams = {team: block for player in self._all for team, block in player.first_blocks().items()}
        for player in self._all:
            player.active[...] = True
        state = self._state.carry["state"] if self._state is not None else None
        self.env.reset(Block(teams=teams, state=state, stats=self._stats))
        for player in self._all:
            player.begin()
            if player is not self._state and state is not None:
                copy_into(player.carry["state"], state)
        if self.log is not None:
            self.log.begin()
        self._close()

    def renew(self, barrier: int) -> None:
        """New envs, whose seeds depend on the number of the barrier."""
        self.env.close()
        self.env = self._new_env(barrier)
        self.reset()

    def close(self) -> None:
        self.env.close()

    def _new_env(self, barrier: int) -> BatchEnv:
        seeds = Seeds(self._graph.seed, self._role, self._first_env, barrier)
        return make_env(self._graph.env.flat, self._envs, seeds, place=self._worker)

    def _block(self, row: int) -> Block:
        """Where the env writes; with one policy, made once for each row of each slab."""
        if len(self._all) > 1:
            teams = {team: block for player in self._all for team, block in player.blocks(row).items()}
            state = self._state.state_at(row + 1) if self._state is not None else None
            return Block(teams=teams, state=state, stats=self._stats)
        (player,) = self._all
        teams = player.blocks(row)
        block = self._blocks.get((player.slab.slot, row))
        if block is None:
            block = Block(teams=teams, state=player.state_at(row + 1), stats=self._stats)
            self._blocks[player.slab.slot, row] = block
        return block

    def _count_episodes(self, counting: Array | None) -> Array:
        """An env's episode is over when agents took part and none continues."""
        ended = _in_any_agent([player.valid for player in self._all])
        ended &= ~_in_any_agent([player.next_valid for player in self._all])
        if self.log is not None:
            means = {name: player.mean_return() for name, player in self.players.items()}
            self.log.ended(self.row, ended, means, self._stats)
        self.episodes.count(self._all, self._stats, self.env.whole(ended if counting is None else ended & counting))
        for player in self._all:
            player.returns[ended] = 0.0
            player.rows_lived[ended] = 0
        return ended


def _in_any_agent(flags: Sequence[Array]) -> Array:
    """`[E]`: where one of these `[E, A]` flags is set."""
    found: Array = np.logical_or.reduce(flags[0], 1)
    for more in flags[1:]:
        found |= more.any(1)
    return found
