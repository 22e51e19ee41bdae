"""Random rows in the slab layout, recorded by a policy."""

from __future__ import annotations

from typing import Any

from srl.algorithms.ppo import PPO
from srl.api.env import ActionSpec, Discrete
from srl.api.policy import PolicySpec
from srl.api.slab import SlabShape
from srl.core.load import load
from srl.core.spec import Leaf
from srl.learners.base import Task
from srl.learners.single import SingleLearner
from srl.nets.actor_critic import ActorCritic
from srl.suites.rows import recorded


def make(
    action: ActionSpec | None = None,
    *,
    mask: bool = False,
    config: dict[str, Any] | None = None,
    policy_config: dict[str, Any] | None = None,
    algorithm: Any = PPO,
    policy: Any = ActorCritic,
    seed: int = 0,
    steps: int = 16,
    envs: int = 6,
    agents: int = 1,
    memory_every: int | None = None,
    obs: Any = None,
    weights: Any = None,
    threads: int = 1,
) -> SingleLearner:
    """A learner for small batches."""
    spec = PolicySpec(obs=obs or Leaf((5,), "float32"), action=action or Discrete(3), mask=mask, agents=agents)
    task = Task(
        algorithm=algorithm,
        config=load(algorithm.Config, config or {}),
        policy=policy,
        policy_config=load(policy.Config, policy_config or {}),
        spec=spec,
        seed=seed,
        weights=weights,
        threads=threads,
        shape=SlabShape(steps=steps, envs=envs, agents=agents, memory_every=memory_every),
    )
    return SingleLearner(task)


def train(learner: SingleLearner, rows: dict[str, Any]) -> dict[str, float]:
    """The metrics of one update."""
    learner.metrics()
    learner.update(rows)
    return learner.metrics()


def record(learner: SingleLearner, seed: int = 0, ends: float = 0.15, dense: bool = False) -> dict[str, Any]:
    """The rows that the learner's policy would have recorded in a random world."""
    extra = {"log_prob": Leaf((), "float32"), "value": Leaf((), "float32")}
    return recorded(learner.policy, learner.policy.spec, learner.task.shape, extra, seed=seed, ends=ends, dense=dense)
