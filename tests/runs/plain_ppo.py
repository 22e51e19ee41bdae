"""PPO as one would write it in an afternoon: one loop, plain arrays, no stream, no worker, no slab.

Only the parts that have slow references of their own are shared with the engine: the env, the acting
policy, and the learner's arithmetic. What the loop restates is everything the engine does around them:
who acts when and with which weights, what is recorded in which row, which rows count.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from srl.algorithms.ppo import PPO
from srl.api.env import new_block, renew
from srl.api.policy import Ask, PolicySpec
from srl.api.slab import SlabShape
from srl.core.load import load
from srl.core.seeds import Rng, Seeds, row_keys, word
from srl.envs.resolve import make_env
from srl.learners.base import Task
from srl.learners.single import SingleLearner
from srl.nets.actor_critic import ActorCritic
from srl.nets.numpy_mlp import MLPPolicy


def plain_ppo(
    env_name: str, *, envs: int, steps: int, updates: int, seed: int, algorithm: dict[str, Any], policy: dict[str, Any]
) -> tuple[dict[str, Any], int, list[float]]:
    """Parameters after `updates` updates, env steps trained on, and the returns of all episodes in order."""
    env = make_env(env_name, envs, Seeds(seed))
    ((team, spec),) = env.spec.teams.items()
    policy_spec = PolicySpec(obs=spec.obs, action=spec.action)
    learner = SingleLearner(Task(
        algorithm=PPO,
        config=load(PPO.Config, algorithm),
        policy=ActorCritic,
        policy_config=load(ActorCritic.Config, policy),
        spec=policy_spec,
        seed=seed,
        shape=SlabShape(steps=steps, envs=envs, agents=1),
    ))
    actor = MLPPolicy(policy, policy_spec)
    ids = np.arange(envs, dtype=np.int64)
    block = new_block(env.spec, envs)
    env.reset(block)
    obs = block.teams[team].obs.copy()
    valid, first = np.ones((envs, 1), bool), np.ones((envs, 1), bool)
    returns, finished = np.zeros(envs), []
    tick = env_steps = 0
    for update in range(updates):
        actor.load(learner.params(), update)
        rows: dict[str, list[Any]] = {
            key: [] for key in ("obs", "first", "log_prob", "value", "action", "reward", "terminated", "truncated", "valid")
        }
        for row in range(steps + 1):
            rng = Rng(row_keys(seed ^ word("main"), ids, tick))
            act = actor.act(Ask(obs=obs[:, 0], memory={}, first=first[:, 0], mask=None, state=None, ids=ids, rng=rng))
            rows["obs"].append(obs.copy())
            rows["first"].append(first.copy())
            rows["log_prob"].append(act.extra["log_prob"][:, None].copy())
            rows["value"].append(act.extra["value"][:, None].copy())
            if row == steps:
                break
            action = act.action[:, None].copy()
            renew(block)
            env.step({team: np.clip(action, -2, 2) if action.dtype == np.float32 else action}, block)
            tick += 1
            result = block.teams[team]
            ended = result.terminated | result.truncated
            for key, array in (("action", action), ("reward", result.reward), ("terminated", result.terminated)):
                rows[key].append(array.copy())
            rows["truncated"].append(result.truncated & ~result.terminated)
            rows["valid"].append(valid.copy())
            returns += result.reward[:, 0]
            for one in np.flatnonzero(ended[:, 0]):
                finished.append(float(returns[one]))
                returns[one] = 0.0
            first = ~valid
            valid = ~ended
            obs = result.obs.copy()
        batch = {key: np.stack(arrays) for key, arrays in rows.items()}
        batch["extra"] = {"log_prob": batch.pop("log_prob"), "value": batch.pop("value")}
        batch["version"] = np.array([update])
        learner.clock.env_steps, learner.clock.updates, learner.clock.progress = env_steps, update, update / updates
        learner.update(batch)
        env_steps += int(batch["valid"].sum())
    return {name: array.copy() for name, array in learner.params().items()}, env_steps, finished
