"""Learners of an algorithm on small batches, and comparisons of what they learned."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from srl.api.algorithm import Needs
from srl.api.batch import Ranks
from srl.api.slab import SlabShape
from srl.core.errors import UserError
from srl.core.load import load
from srl.core.tree import Array, map_tree
from srl.learners.base import Groups, Task
from srl.learners.single import SingleLearner
from srl.plan.acting import named_arrays
from srl.suites.cases import Case
from srl.suites.rows import drawn, extra_of, recorded

ENVS, STEPS = 8, 16


@dataclass(frozen=True)
class Trial:
    """An algorithm with its settings, and the policy that it trains."""

    kind: Any
    settings: Mapping[str, Any]
    case: Case

    @cached_property
    def config(self) -> Any:
        return load(self.kind.Config, self.settings, path="algorithm")

    @cached_property
    def needs(self) -> Needs:
        found: Needs = self.kind.needs(self.config, self.case.spec)
        return found

    @cached_property
    def extra(self) -> dict[str, Any]:
        """What the policy records for the algorithm; UserError if neither it nor the env has it."""
        found, signals = extra_of(self.case.build(), self.case.spec), self.case.signals
        if missing := [name for name in self.needs.extra if name not in found and name not in signals]:
            raise UserError(
                f"algorithm needs '{missing[0]}', but neither the policy nor the env provides it",
                ("policy provides", ", ".join(found) or "nothing besides actions"),
                ("env gives", ", ".join(signals) or "no signals"),
                code="E10",
            )
        return {name: found[name] for name in self.needs.extra if name in found}

    @cached_property
    def _known(self) -> dict[tuple[int, float, bool], dict[str, Any]]:
        return {}

    @property
    def replayed(self) -> bool:
        return self.needs.replay is not None

    @cached_property
    def shape(self) -> SlabShape:
        window, agents = self.needs.window, self.case.spec.agents
        if self.replayed:
            return SlabShape(steps=window.within(1).rows, envs=3 * ENVS, agents=agents)
        steps = max(STEPS, -(-2 * window.rows // (window.length or 1)) * (window.length or 1))
        return SlabShape(steps=steps, envs=ENVS, agents=agents, memory_every=window.memory_every)

    def rows(self, seed: int, *, ends: float = 0.15, dense: bool = False) -> dict[str, Any]:
        """A copy of a batch that a policy with random weights has recorded. Half of single transitions end an episode."""
        key = seed, ends, dense
        if key not in self._known:
            self._known[key] = self._recorded(seed, max(ends, 0.5) if self.single else ends, dense)
        return map_tree(np.copy, self._known[key])  # type: ignore[no-any-return]

    def _recorded(self, seed: int, ends: float, dense: bool) -> dict[str, Any]:
        signals = {name: leaf for name, leaf in self.case.signals.items() if name in self.needs.extra}
        slab = recorded(
            self._recorder, self.case.spec, self.shape, self.extra, signals=signals, seen=self.case.seen, seed=seed,
            ends=ends, dense=dense,
        )  # fmt: skip
        return slab if self.needs.replay is None else drawn(slab, self.needs.replay, seed)

    @property
    def single(self) -> bool:
        """Rows are single transitions of a replay."""
        return self.replayed and self.shape.steps == 1

    @cached_property
    def _recorder(self) -> Any:
        policy = self.case.build()
        policy.load(self.weights, 0)
        return policy

    @cached_property
    def weights(self) -> dict[str, Array]:
        """Of a policy whose values differ from row to row: what is worth nothing at the start hides mistakes."""
        return shaken(self.case.build(), 0.3)

    def learner(
        self,
        seed: int = 0,
        *,
        shape: SlabShape | None = None,
        ranks: Ranks | None = None,
        weights: Mapping[str, Array] | None = None,
    ) -> SingleLearner:
        """For batches of the shape."""
        shape = shape or self.shape
        if self.replayed:  # as the trainer of a replay: every window is an env with one agent
            shape = replace(shape, envs=shape.envs * shape.agents, agents=1)
        task = Task(
            algorithm=self.kind, config=self.config, policy=self.case.kind,
            policy_config=load(self.case.kind.Config, self.case.policy.args, path="policy"),
            spec=self.case.spec, shape=shape, seed=seed, ranks=ranks, weights=weights,
        )  # fmt: skip
        return SingleLearner(task)

    def warm(self, seed: int = 0, **settings: Any) -> SingleLearner:
        """After two updates."""
        learner = self.learner(seed, **settings)
        for update in range(2):
            train(learner, self.rows(100 + update), update)
        return learner


def shaken(policy: Any, size: float = 0.1) -> dict[str, Array]:
    """The state of a policy with noise on its parameters: layers often start with zeros, and then hide what they do."""
    noise = np.random.default_rng(3)
    state = {name: np.array(array) for name, array in named_arrays(policy).items()}
    for name, _ in policy.named_parameters() if hasattr(policy, "named_parameters") else ():
        state[name] += size * noise.standard_normal(state[name].shape).astype(state[name].dtype)
    return state


def train(learner: SingleLearner, rows: Mapping[str, Any], update: int) -> None:
    """One update as a trainer makes it."""
    learner.clock.updates, learner.clock.env_steps = update, 100 * update
    learner.clock.progress = min(update / 20, 1.0)
    learner.update(map_tree(np.copy, rows))


def learned(learner: SingleLearner) -> dict[str, Array]:
    """Networks and optimizers, by name: not the rows that an algorithm keeps in plain tensors."""
    own = {f"algorithm/{name}" for name in vars(learner.algorithm)}
    return {name: array for name, array in arrays(learner.state()[0]).items() if name not in own}


def arrays(groups: Groups) -> dict[str, Array]:
    """The arrays of a checkpoint side by side, without the state of torch's generator."""
    return {f"{group}/{name}": array for group, named in groups.items() for name, array in named.items() if name != "torch_rng"}


def first_difference(
    one: Mapping[str, Array], other: Mapping[str, Array], start: Mapping[str, Array] | None = None, share: float = 0.002
) -> str | None:
    """The name of an array that is not the same in both. With `start`: by more than this share of what changed since then."""
    for name, array in one.items():
        if name not in other or other[name].shape != array.shape:
            return name
        if start is None:
            if not np.array_equal(array, other[name]):
                return name
        elif array.dtype.kind == "f" and array.size:
            moved = np.abs(array - start[name]).max() if name in start else 1.0
            if np.abs(array - other[name]).max() > share * moved + 1e-6:
                return name
    return None


def disturb_generators(seed: int) -> None:
    """Generators of the process, which nothing may depend on."""
    random.seed(seed)
    np.random.seed(seed)
