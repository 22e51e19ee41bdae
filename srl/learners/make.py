"""A trainer's learner, from the graph."""

from __future__ import annotations

from typing import Any

from srl.api.slab import SlabShape
from srl.core.errors import UserError
from srl.core.load import load
from srl.core.registry import REGISTRIES
from srl.core.seeds import word
from srl.learners.single import SingleLearner
from srl.store.weights import starting_weights
from srl.workers.base import Context


def make_learner(context: Context, args: Any) -> SingleLearner:
    """The learner of the policy that `args` names."""
    graph, info = context.graph, context.derived.policies[args.policy]
    entry = graph.policies[args.policy]
    if entry.algorithm is None:
        raise UserError(f"policy '{args.policy}' has no algorithm, but node '{context.node.name}' is to train it", code="E10")
    algorithm = REGISTRIES["algorithm"].resolve(entry.algorithm.use)
    policy = REGISTRIES["policy"].resolve(entry.policy.use)
    record: Any = context.derived.streams[context.node.ports["samples"]].record
    steps, envs, agents = record["reward"].shape
    shape = SlabShape(steps=steps, envs=envs * args.slabs, agents=agents, memory_every=info.memory_every)
    return SingleLearner(
        algorithm=algorithm,
        config=load(algorithm.Config, entry.algorithm.args, path="algorithm"),
        policy=policy,
        policy_config=load(policy.Config, entry.policy.args, path="policy"),
        spec=info.spec,
        seed=graph.seed ^ (0 if len(graph.policies) == 1 else word(args.policy)),
        device=context.node.device,
        shape=shape,
        threads=context.node.threads,
        weights=starting_weights(graph.policies, args.policy, own=(context.folder, context.resume)),
    )
