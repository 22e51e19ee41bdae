"""What a policy or an algorithm is tried with: small inputs of several kinds, or those of an env."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from srl.api.env import ActionSpec, Box, Discrete, MultiBinary, MultiDiscrete, new_block, renew
from srl.api.policy import PolicySpec
from srl.core.registry import REGISTRIES
from srl.core.seeds import Seeds
from srl.core.spec import Leaf
from srl.core.tree import Tree, map_tree
from srl.core.types import Component
from srl.envs.check import sample_actions
from srl.envs.resolve import make_env
from srl.plan.acting import new_policy
from srl.plan.inspect import policy_spec

ACTIONS: dict[str, ActionSpec] = {
    "a discrete action": Discrete(3),
    "several discrete actions": MultiDiscrete((3, 2)),
    "bits": MultiBinary(3),
    "real actions": Box((2,), (-1.0, -2.0), (1.0, 2.0)),
    "a dict of actions": {"aim": Box((1,), (-1.0,), (1.0,)), "move": Discrete(3)},
}


@dataclass(frozen=True, slots=True)
class Case:
    """A policy, and what it meets."""

    policy: Component
    spec: PolicySpec
    signals: Mapping[str, Any] = field(default_factory=dict)
    seen: Tree | None = None
    """Observations of an env, `[K, ...]`, that rows are made of; None: random numbers."""

    def build(self) -> Any:
        """The policy with random weights."""
        return new_policy(self.policy.use, self.policy.args, self.spec)

    @property
    def kind(self) -> Any:
        return REGISTRIES["policy"].resolve(self.policy.use)

    @property
    def twin_kind(self) -> type | None:
        """Of the policy that acts without torch, if there is one."""
        policy = self.build()
        twin = policy.numpy_twin() if hasattr(policy, "numpy_twin") else None
        return None if twin is None else REGISTRIES["policy"].resolve(twin)


def cases_of(policy: Component, env: Component | None = None) -> dict[str, Case]:
    """The inputs and outputs to try: of every team of an env, or small ones of all kinds."""
    if env is not None:
        return _cases_of_env(policy, env)
    found: dict[str, Case] = {}
    for name, action in ACTIONS.items():
        spec = PolicySpec(obs=Leaf((5,), "float32"), action=action)
        found[name] = Case(policy, spec)
        if not isinstance(action, Box):
            found[f"{name} and a mask"] = Case(policy, replace(spec, mask=True))
    found["two agents"] = Case(policy, PolicySpec(obs=Leaf((5,), "float32"), action=Discrete(3), agents=2))
    return found


def _cases_of_env(policy: Component, env: Component) -> dict[str, Case]:
    """With observations of a few random steps."""
    made = make_env(env.flat, _COPIES, Seeds(0, "check"))
    try:
        block, noise = new_block(made.spec, made.count), np.random.default_rng(0)
        made.reset(block)
        seen: dict[str, list[Tree]] = {team: [] for team in made.spec.teams}
        for _ in range(_TICKS):
            for team, trees in seen.items():
                trees.append(map_tree(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]).copy(), block.teams[team].obs))
            actions = sample_actions(made.spec, block, noise)
            renew(block)
            made.step(actions, block)
        return {
            team: Case(
                policy, policy_spec(made.spec, (team,)), made.spec.signals, map_tree(lambda *rows: np.concatenate(rows), *trees)
            )
            for team, trees in seen.items()
        }
    finally:
        made.close()


_COPIES, _TICKS = 3, 30
