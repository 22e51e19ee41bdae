"""A group: E copies of an env that step together, with a recorder for each policy in them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from srl.api.env import BatchEnv, Block
from srl.api.slab import SlabShape
from srl.core.readings import Reading
from srl.core.seeds import Seeds, word
from srl.core.tree import Array, Tree, copy_into
from srl.envs.resolve import make_env
from srl.graph.spec import Graph
from srl.plan.specs import Derived, PolicyInfo
from srl.workers.recorder import Recorder


class Group:
    """Env and recorders move from row to row together."""

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
        place: str = "",
        policies: Mapping[str, PolicyInfo] | None = None,
        title: str = "episode",
    ) -> None:
        self.spec = derived.env
        self._title = title
        """What the numbers of its episodes are called."""
        self.reading = reading
        self.row = 0
        self.tick = 0
        """Env steps so far: part of the key of every noise."""
        self._graph, self._role, self._first_env, self._place = graph, role, first_env, place
        self._envs = envs
        self.env: BatchEnv = self._new_env(barrier)
        seed = graph.seed if role == "env" else graph.seed ^ word(role)
        self.recorders = {
            name: Recorder(
                info,
                derived.env,
                SlabShape(steps=steps, envs=envs, agents=info.spec.agents, memory_every=info.memory_every),
                seed=seed,
                first_env=first_env,
            )
            for name, info in (policies or derived.players).items()
        }
        self._stats = np.zeros((envs, len(self.spec.stats)))
        self._means = [(index, name) for index, name in enumerate(self.spec.stats) if name not in self.spec.labels]
        self._state = next((recorder for recorder in self.recorders.values() if recorder.next_state is not None), None)
        self._only = next(iter(self.recorders.values())) if len(self.recorders) == 1 else None
        self._blocks: dict[tuple[int, int], Block] = {}
        self._learners = [one for name, one in self.recorders.items() if graph.policies[name].algorithm is not None]

    def reset(self) -> None:
        """Start an episode in every env; the first rows go to the carry rows."""
        teams = {team: block for recorder in self.recorders.values() for team, block in recorder.first_blocks().items()}
        for recorder in self.recorders.values():
            recorder.active[...] = True
        state = self._state.next_state if self._state is not None else None
        self.env.reset(Block(teams=teams, state=state, stats=self._stats))
        for recorder in self.recorders.values():
            recorder.begin()
            recorder.reset_memory()
            if recorder is not self._state and self._state is not None:
                copy_into(recorder.next_state, state)
        self.row = 0

    def step(self, counting: Array | None = None) -> Array | None:
        """All recorders have the answers of this row: act, record, and come to the next row.

        `[E]` bool: the envs whose episode ended, None if none did. Only episodes of the envs in `counting` are reported.
        """
        row = self.row
        actions: dict[str, Tree] = {}
        for recorder in self.recorders.values():
            actions.update(recorder.actions(row))
        self.env.step(actions, self._block(row))
        self.tick += 1
        ended = False
        for recorder in self.recorders.values():
            ended |= recorder.stepped(row)
        if self._state is not None and self._only is None:
            for recorder in self.recorders.values():
                if recorder is not self._state:
                    copy_into(recorder.state_at(row + 1), self._state.state_at(row + 1))
        over = self._count_episodes(counting) if ended else None
        for recorder in self.recorders.values():
            recorder.advance()
        self.row = row + 1
        return over

    def save(self) -> dict[str, Any]:
        """All that a later run needs to go on at the next slab."""
        saved: dict[str, Any] = {name: recorder.save() for name, recorder in self.recorders.items()}
        state: dict[str, Any] = {"recorders": saved, "tick": np.array([self.tick])}
        env = self.env.save()
        if env is not None:
            state["env"] = env
        return state

    def load(self, saved: Mapping[str, Any], barrier: int) -> None:
        """The inverse of `save`. An env that cannot be saved starts new episodes, seeded by the barrier."""
        self.tick = int(saved["tick"][0])
        for name, recorder in self.recorders.items():
            recorder.load(saved["recorders"][name])
        if "env" in saved:
            self.env.load(saved["env"])
        else:
            self.renew(barrier)

    def renew(self, barrier: int) -> None:
        """New envs with seeds of their own, at a barrier that they cannot be carried over."""
        self.env.close()
        self.env = self._new_env(barrier)
        self.reset()

    def close(self) -> None:
        self.env.close()

    def _new_env(self, barrier: int) -> BatchEnv:
        seeds = Seeds(self._graph.seed, self._role, self._first_env, barrier)
        return make_env(self._graph.env.flat, self._envs, seeds, place=self._place)

    def _block(self, row: int) -> Block:
        if self._only is not None:
            key = (self._only.slot, row)
            teams = self._only.blocks(row)
            block = self._blocks.get(key)
            if block is None:
                block = self._blocks[key] = Block(teams=teams, state=self._only.state_at(row + 1), stats=self._stats)
            return block
        teams = {team: block for recorder in self.recorders.values() for team, block in recorder.blocks(row).items()}
        state = self._state.state_at(row + 1) if self._state is not None else None
        return Block(teams=teams, state=state, stats=self._stats)

    def _count_episodes(self, counting: Array | None) -> Array:
        """An env's episode is over when agents were there and none goes on."""
        recorders: Sequence[Recorder] = list(self.recorders.values())
        ended = _in_any_agent([recorder.valid for recorder in recorders])
        ended &= ~_in_any_agent([recorder.next_valid for recorder in recorders])
        over = np.flatnonzero(ended if counting is None else ended & counting)
        several = len(self.spec.teams) > 1
        for opponent in recorders:
            if opponent.outcomes is not None and self._learners:
                opponent.outcomes.ended(ended, self._won(opponent))
        for recorder in recorders:
            lived, returns = recorder.rows_lived[over], recorder.returns[over]
            took_part = lived > 0  # an agent that was never there has no return
            for team, agents in recorder.slices.items():
                name = f"{self._title}/return/{team}" if several else f"{self._title}/return"
                took = took_part[:, agents]
                self.reading.episode(name, float(returns[:, agents][took].sum()), float(np.count_nonzero(took)))
            if "length" not in self.spec.stats:
                self.reading.episode(
                    f"{self._title}/length", float(lived.max(1).sum()) / len(recorders), len(over) / len(recorders)
                )
            recorder.forget(over if counting is None else ended)
        for index, name in self._means:
            self.reading.episode(f"{self._title}/{name}", float(self._stats[over, index].sum()), len(over))
        self.reading.count("episodes", len(over))
        return ended

    def _won(self, opponent: Recorder) -> Array:
        """`[E]`: 1 where those who learn here beat this opponent, 0.5 where nobody won, 0 where they lost."""
        declared = [f"win/{team}" for learner in self._learners for team in learner.info.teams]
        columns = [self.spec.stats.index(name) for name in declared if name in self.spec.stats]
        if columns:
            share: Array = self._stats[:, columns].mean(1)
            return share
        ours = np.mean([learner.mean_return() for learner in self._learners], axis=0)
        won: Array = 0.5 + 0.5 * np.sign(ours - opponent.mean_return())
        return won


def _in_any_agent(flags: Sequence[Array]) -> Array:
    """`[E]`: where one of these `[E, A]` flags is set."""
    found: Array = np.logical_or.reduce(flags[0], 1)
    for more in flags[1:]:
        found |= more.any(1)
    return found
