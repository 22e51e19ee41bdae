"""PPO training passes on one thread, side by side: us per row and pass. `python benchmarks/trainer.py [--rows 8192]`.

Every variant trains the same batch with the same loss; CPU seconds, the best of several rounds, which alternate.
`limit` is the time of the matrix products alone, at the speed of the largest one.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
import torch
from torch import nn

from srl.algorithms.ppo import PPO
from srl.api.env import Box, Discrete
from srl.api.policy import PolicySpec
from srl.api.slab import SlabShape, slab_spec
from srl.core.spec import Leaf, zeros
from srl.learners.base import Task
from srl.learners.single import SingleLearner
from srl.nets.actor_critic import ActorCritic

CASES = {
    "cartpole, 4 inputs, 2 choices": (4, Discrete(2)),
    "half cheetah, 17 inputs, 6 real": (17, Box((6,), (-1.0,) * 6, (1.0,) * 6)),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=8192)
    parser.add_argument("--minibatch", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--compile", action="store_true", help="also torch.compile, which takes a while to start")
    args = parser.parse_args()
    torch.set_num_threads(1)
    for name, (inputs, action) in CASES.items():
        case = Case(inputs, action, args.rows, args.minibatch)
        variants: dict[str, Callable[[], Any]] = {
            "torch, eager, Adam by loops": case.eager(fused=False),
            "torch, eager, fused Adam": case.eager(fused=True),
            "srl": case.ours(),
        }
        if args.compile:
            variants["torch, compiled, fused Adam"] = case.eager(fused=True, compiled=True)
        report(f"{name}; 2 x 64 tanh, towers apart; minibatch {args.minibatch}", variants, args.rows, args.rounds, case.limit())


def report(title: str, variants: dict[str, Callable[[], Any]], rows: int, rounds: int, limit: float) -> None:
    best = dict.fromkeys(variants, float("inf"))
    for _ in range(rounds):
        for name, run in variants.items():
            start = time.process_time()
            run()
            best[name] = min(best[name], time.process_time() - start)
    print(title)
    base = next(iter(best.values()))
    for name, seconds in best.items():
        each = seconds / rows * 1e6
        print(f"  {name:30} {each:6.2f} us/row   x{base / seconds:4.2f}   limit / achieved {limit / each:5.0%}")
    print(f"  {'products alone (limit)':30} {limit:6.2f} us/row")


class Case:
    """One batch, and everything that can train on it: one epoch a call."""

    def __init__(self, inputs: int, action: Any, rows: int, minibatch: int) -> None:
        self.inputs, self.minibatch = inputs, minibatch
        self.spec = PolicySpec(obs=Leaf((inputs,), "float32"), action=action)
        self.shape = SlabShape(steps=128, envs=rows // 128, agents=1)
        extra = {"log_prob": Leaf((), "float32"), "value": Leaf((), "float32")}
        self.rows = zeros(slab_spec(self.shape, self.spec, memory={}, extra=extra, signals={}))
        noise = np.random.default_rng(0)
        for leaf in (self.rows["obs"], self.rows["reward"]):
            leaf[...] = noise.standard_normal(leaf.shape)
        self.rows["valid"][...] = True
        recorded = self.rows["action"]
        recorded[...] = (
            noise.integers(0, action.n, recorded.shape) if isinstance(action, Discrete) else noise.normal(size=recorded.shape)
        )
        self.rows["extra"]["log_prob"][...] = -0.7 if isinstance(action, Discrete) else -8.5

    def learner(self) -> SingleLearner:
        return SingleLearner(Task(
            algorithm=PPO, config=PPO.Config(epochs=1, minibatch=self.minibatch),
            policy=ActorCritic, policy_config=ActorCritic.Config(), spec=self.spec, seed=0, shape=self.shape,
        ))  # fmt: skip

    def ours(self) -> Callable[[], Any]:
        learner = self.learner()
        return lambda: learner.update(self.rows)

    def eager(self, *, fused: bool, compiled: bool = False) -> Callable[[], Any]:
        """The loop that a single-file script writes, on the same targets."""
        learner = self.learner()
        batch = learner.intake.batch(self.rows, 0)
        algorithm = learner.algorithm
        assert isinstance(algorithm, PPO)
        algorithm.prepare(batch)
        columns = [batch.obs[:-1], batch.action, batch.extra["log_prob"][:-1], batch.advantage, batch.target]
        flat = [one.flatten(0, 1) for one in columns]
        last = 2 if isinstance(self.spec.action, Discrete) else 6
        actor, critic = tower(self.inputs, last), tower(self.inputs, 1)
        log_std = nn.Parameter(torch.zeros(last))
        params = [*actor.parameters(), *critic.parameters(), *([log_std] if last == 6 else [])]
        adam = torch.optim.Adam(params, 3e-4, eps=1e-5, fused=fused, foreach=False)

        def loss(obs: Any, action: Any, old: Any, advantage: Any, target: Any) -> Any:
            head = actor(obs)
            if last == 2:
                logs = torch.log_softmax(head, -1)
                log_prob = logs.gather(1, action[:, None])[:, 0]
                entropy = -(logs.exp() * logs).sum(-1).mean()
            else:
                away = (action - head) * (-log_std).exp()
                log_prob = -0.5 * away.square().sum(-1) - (log_std + 0.9189385).sum()
                entropy = (log_std + 1.4189385).sum()
            ratio = (log_prob - old).exp()
            gain = torch.minimum(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage)
            return -gain.mean() + 0.5 * (critic(obs)[:, 0] - target).square().mean() - 0.0 * entropy

        graph = torch.compile(loss) if compiled else loss

        def epoch() -> None:
            for part in torch.randperm(len(flat[0])).split(self.minibatch):
                adam.zero_grad()
                graph(*(one[part] for one in flat)).backward()
                nn.utils.clip_grad_norm_(params, 0.5)
                adam.step()

        return epoch

    def limit(self) -> float:
        """us per row of the products, if all of them ran at the speed of the 64 x 64 ones."""
        x, w = torch.randn(self.minibatch, 64), torch.randn(64, 64)
        out = torch.empty(self.minibatch, 64)
        best = float("inf")
        for _ in range(200):
            start = time.process_time()
            torch.mm(x, w, out=out)
            best = min(best, time.process_time() - start)
        heads = 2 if isinstance(self.spec.action, Discrete) else 6
        products = 2 * (2 * self.inputs * 64 + 3 * 64 * 64) + 3 * 64 * (heads + 1)
        return best / self.minibatch * 1e6 * products / (64 * 64)


def tower(inputs: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(inputs, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, outputs))


if __name__ == "__main__":
    main()
