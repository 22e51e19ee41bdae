"""Random rows in the slab layout, recorded by a policy."""

from __future__ import annotations

from typing import Any

import numpy as np

from srl.algorithms.ppo import PPO
from srl.api.env import ActionSpec, Discrete, mask_leaves
from srl.api.policy import Ask, PolicySpec
from srl.api.slab import SlabShape, slab_spec
from srl.core.load import load
from srl.core.seeds import Rng, row_keys
from srl.core.spec import Leaf, lead, zeros
from srl.core.tree import copy_into, map_tree
from srl.learners.base import Task
from srl.learners.single import SingleLearner
from srl.nets.actor_critic import ActorCritic


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
    shape, policy, noise = learner.task.shape, learner.policy, np.random.default_rng(seed)
    spec = policy.spec
    extra = {"log_prob": Leaf((), "float32"), "value": Leaf((), "float32")}
    rows = zeros(slab_spec(shape, spec, memory=policy.memory, extra=extra, signals={}))
    rows["obs"] = map_tree(lambda leaf: noise.standard_normal(leaf.shape).astype(leaf.dtype), rows["obs"])
    if spec.mask:
        rows["mask"] = map_tree(lambda leaf: noise.random(leaf.shape) < 0.6, rows["mask"])
        rows["choice"][...] = noise.random(rows["choice"].shape) < 0.8
    rows["reward"][...] = noise.normal(size=rows["reward"].shape)
    rows["valid"][...] = True
    if not dense:
        end = noise.random(rows["valid"].shape) < ends
        rows["valid"][1:] = ~end[:-1]
        end &= rows["valid"]
        rows["terminated"][...] = end & (noise.random(end.shape) < 0.5)
        rows["truncated"][...] = end & ~rows["terminated"]
        rows["valid"][1:] = ~(rows["terminated"] | rows["truncated"])[:-1]
        rows["first"][1:-1] = ~rows["valid"][:-1]
    number = shape.envs * shape.agents
    memory: Any = zeros(lead(policy.memory, number))
    ids = np.arange(number)
    flat = lambda leaf, t: leaf[t].reshape(number, *leaf.shape[3:])  # noqa: E731
    for t in range(shape.steps + 1):
        first = rows["first"][t].reshape(-1)
        for key in memory:
            memory[key][first] = 0.0
        if policy.memory != {} and t < shape.steps and t % (shape.memory_every or shape.steps) == 0:
            at = t // (shape.memory_every or shape.steps)
            copy_into(map_tree(lambda leaf, at=at: leaf[at].reshape(number, *leaf.shape[3:]), rows["memory"]), memory)
        ask = Ask(
            obs=map_tree(lambda leaf, t=t: flat(leaf, t), rows["obs"]),
            memory=memory,
            first=first,
            mask=map_tree(lambda leaf, t=t: flat(leaf, t), rows["mask"]) if spec.mask else None,
            state=None,
            ids=ids,
            rng=Rng(row_keys(seed, ids, t)),
        )
        act = policy.act(ask)
        memory = map_tree(np.array, act.memory)
        for name in extra:
            rows["extra"][name][t] = act.extra[name].reshape(shape.envs, shape.agents)
        if t < shape.steps:
            copy_into(map_tree(lambda leaf, t=t: flat(leaf, t), rows["action"]), act.action)
    if spec.mask:
        rows["choice"] &= rows["valid"]
    assert mask_leaves(spec.action) is not None
    return rows
