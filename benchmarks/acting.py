"""Acting alone against pure stepping: what a policy costs that runs inside its actor, and one that is asked over shared memory.

    python benchmarks/acting.py [--seconds 3] [--rounds 3] [--envs 256]

No trainer, no samples kept (a null stream); weights are published once. Pure stepping is the same env with random actions.
`inside`: actor and policy worker in one process, one core. `shm`: the policy in a process of its own, two groups.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

os.environ.update(dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1"))

import numpy as np

from srl.api.env import Discrete, new_block, renew
from srl.core.seeds import Seeds
from srl.envs.resolve import make_env
from srl.graph.derive import Derived, derive, with_streams
from srl.graph.policies import named_arrays, new_policy
from srl.graph.spec import Component, Graph, Node, PolicyEntry, Stop, Stream
from srl.session import Session
from srl.streams.base import ParamPublisher, version
from srl.workers.base import Port, Worker

from timed import rate_of

HERE = f"{Path(__file__).resolve()}:OneVersion"


@dataclass(frozen=True)
class NoArgs:
    """Nothing to say."""


class OneVersion(Worker):
    """Publishes the weights of a new policy, once."""

    ports = {"params": Port("param", "publisher")}
    Args = NoArgs

    def __init__(self, args: Any, ends: Any, context: Any) -> None:
        super().__init__(args, ends, context)
        info = context.derived.policies["main"]
        publisher: ParamPublisher = ends["params"]
        params = named_arrays(new_policy(info.use, info.config, info.spec))
        publisher.publish(version(0, 0), {"params": params, "env_steps": np.zeros(1, np.int64)})

    def poll(self) -> int:
        return 0


def graph_of(env: str, envs: int, groups: int, *, inside: bool, seconds: float) -> Graph:
    placed = {"inside": "actor"} if inside else {}
    args = {"groups": groups, "envs": envs // groups, "steps": 128}
    return Graph(
        env=Component(use=env),
        policies={"main": PolicyEntry(policy=Component(use="actor_critic"), algorithm=Component(use="ppo"))},
        agents={"*": "main"},
        nodes=(
            Node(name="actor", worker="actor", args=args, ports={"infer": "ask", "samples": "samples"}),
            Node(name="policy", worker="policy", ports={"asks": "ask", "params": "params"}, **placed),
            Node(name="source", worker=HERE, ports={"params": "params"}, **placed),
        ),
        streams=(
            Stream(name="ask", kind="infer"),
            Stream(name="samples", kind="sample", route="null"),
            Stream(name="params", kind="param"),
        ),
        stop=Stop(seconds=seconds),
    )


def pure(env_name: str, envs: int, seconds: float) -> float:
    """Env steps a second of the env alone, random actions."""
    env = make_env(env_name, envs, Seeds(1))
    block = new_block(env.spec, envs)
    env.reset(block)
    ((team, spec),) = env.spec.teams.items()
    rng = np.random.default_rng(0)
    if isinstance(spec.action, Discrete):
        draws: list[Any] = [rng.integers(0, spec.action.n, (envs, 1)) for _ in range(64)]
    else:
        draws = [rng.uniform(-1, 1, (envs, 1, *spec.action.shape)).astype(np.float32) for _ in range(64)]
    steps, began = 0, time.perf_counter()
    while time.perf_counter() - began < seconds:
        renew(block)
        env.step({team: draws[steps % 64]}, block)
        steps += 1
    return steps * envs / (time.perf_counter() - began)


def acting_inside(graph: Graph, derived: Derived, seconds: float) -> float:
    """Env steps a second of actor and policy in this process."""
    session = Session(graph, with_streams(replace(graph, mode="inline"), derived))
    with session:
        for _ in range(200):
            session._host.sweep()
        actor = session.workers["actor/0"]
        steps, began = actor.reading.totals["env_steps"], time.perf_counter()
        while time.perf_counter() - began < seconds:
            session._host.sweep()
        return (actor.reading.totals["env_steps"] - steps) / (time.perf_counter() - began)


def acting_shm(graph: Graph, derived: Derived) -> float:
    """The same with the policy in a process of its own."""
    return rate_of(graph, derived)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--envs", type=int, default=256)
    given = parser.parse_args()
    print(f"{'env':<16}{'pure/s':>12}{'inside/s':>12}{'ratio':>8}{'shm/s':>12}{'ratio':>8}   (median of {given.rounds} rounds)")
    for env in ("CartPole-v1", "HalfCheetah-v5"):
        envs = given.envs if env == "CartPole-v1" else min(given.envs, 64)
        one = graph_of(env, envs, 1, inside=True, seconds=given.seconds)
        two = graph_of(env, envs, 2, inside=False, seconds=given.seconds + 4)
        derived = derive(replace(one, mode="inline"))
        rows = []
        for _ in range(given.rounds):
            bare = pure(env, envs, given.seconds)
            inside = acting_inside(one, derived, given.seconds)
            asked = acting_shm(two, with_streams(two, derived))
            rows.append((bare, inside, inside / bare, asked, asked / bare))
        middle = [statistics.median(column) for column in zip(*rows, strict=True)]
        print(f"{env:<16}{middle[0]:>12,.0f}{middle[1]:>12,.0f}{middle[2]:>8.1%}{middle[3]:>12,.0f}{middle[4]:>8.1%}")


if __name__ == "__main__":
    main()
