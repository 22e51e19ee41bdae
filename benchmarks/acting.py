"""Acting alone against pure stepping: what a policy costs that runs inside its actor, and one that is asked over shared memory.

    python benchmarks/acting.py [--seconds 3] [--rounds 3] [--envs CartPole-v1:256,1024 --envs HalfCheetah-v5:64,512]

No trainer, no samples kept (a null stream); weights are published once. Pure stepping is the same env with random actions.
`inside`: actor and policy worker in one process, one core. `shm`: the policy in a process of its own, two groups.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

os.environ.update(dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1"))

import numpy as np

from srl.api.env import BatchEnv, Discrete, new_block, renew
from srl.core.types import Component, PolicyEntry, Stop
from srl.graph.spec import Graph, Node, Stream
from srl.plan.acting import named_arrays, new_policy
from srl.plan.derive import derive, with_streams
from srl.plan.specs import Derived
from srl.session import Session
from srl.streams.base import version
from srl.streams.param import ParamPublisher
from srl.workers.base import Port, Worker

from timed import rate_of

TURN = 0.2
"""Seconds."""
STEPS = 32
WARM = 4 * STEPS
"""Sweeps until every slab has been in use."""

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
    args = {"groups": groups, "envs": envs // groups, "steps": STEPS}
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
            Stream(name="samples", kind="sample", route="drop"),
            Stream(name="params", kind="param"),
        ),
        stop=Stop(seconds=seconds),
    )


class Pure:
    """The env alone, with random actions: the very one that the actor steps, so that both find the same memory."""

    def __init__(self, env: BatchEnv) -> None:
        self.env, envs = env, env.count
        self._block = new_block(self.env.spec, envs)
        self.env.reset(self._block)
        ((self._team, spec),) = self.env.spec.teams.items()
        rng = np.random.default_rng(0)
        if isinstance(spec.action, Discrete):
            self._draws: list[Any] = [rng.integers(0, spec.action.n, (envs, 1)) for _ in range(64)]
        else:
            self._draws = [rng.uniform(-1, 1, (envs, 1, *spec.action.shape)).astype(np.float32) for _ in range(64)]
        self._steps = 0

    def sweep(self) -> int:
        """One step of every env."""
        renew(self._block)
        self.env.step({self._team: self._draws[self._steps % 64]}, self._block)
        self._steps += 1
        return self.env.count


class Inside:
    """Actor and policy in this process."""

    def __init__(self, graph: Graph, derived: Derived) -> None:
        self._session = Session(graph, with_streams(replace(graph, mode="inline"), derived))
        self._session.__enter__()
        actor: Any = self._session.workers["actor/0"]
        self._reading = actor.reading
        self.env: BatchEnv = actor.groups[0].env

    def sweep(self) -> int:
        """One turn of every worker: the env steps it took."""
        before = self._reading["env_steps"]
        self._session._loop.sweep()
        return int(self._reading["env_steps"] - before)

    def close(self) -> None:
        self._session.__exit__(None, None, None)


def rate(one: Pure | Inside, seconds: float) -> float:
    """Env steps a second, for at least so long."""
    steps, began = 0, time.perf_counter()
    while (spent := time.perf_counter() - began) < seconds:
        steps += one.sweep()
    return steps / spent


def in_turns(pure: Pure, inside: Inside, seconds: float) -> tuple[list[float], list[float]]:
    """Rates of both, by turns of a fifth of a second: the machine changes its speed from one second to the next."""
    for _ in range(WARM):
        inside.sweep()
    rates: tuple[list[float], list[float]] = ([], [])
    for _ in range(int(seconds / (2 * TURN))):
        rates[0].append(rate(pure, TURN))
        rates[1].append(rate(inside, TURN))
    return rates


def acting_shm(graph: Graph, derived: Derived) -> float:
    """The same with the policy in a process of its own."""
    return rate_of(graph, derived)


def sizes(words: list[str]) -> Iterator[tuple[str, int]]:
    """Env and number of copies: each line of the table."""
    for word in words:
        env, _, numbers = word.partition(":")
        for number in numbers.split(","):
            yield env, int(number)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--envs", action="append", help="ID:NUMBER,NUMBER")
    given = parser.parse_args()
    print(
        f"{'env':<16}{'envs':>6}{'pure/s':>12}{'inside/s':>12}{'ratio':>8}{'(quartiles)':>16}{'shm/s':>12}{'ratio':>8}{'(range)':>16}"
    )
    for env, envs in sizes(given.envs or ["CartPole-v1:256,1024,2048", "HalfCheetah-v5:64,256,512"]):
        one = graph_of(env, envs, 1, inside=True, seconds=given.seconds)
        two = graph_of(env, envs, 2, inside=False, seconds=given.seconds + 4)
        derived = derive(replace(one, mode="inline"))
        inside = Inside(one, derived)
        pure = Pure(inside.env)
        bare, acted = in_turns(pure, inside, given.seconds * given.rounds)
        ratios = [a / b for a, b in zip(acted, bare, strict=True)]
        low, middle, high = statistics.quantiles(ratios, n=4)
        asked, asked_ratios = [], []
        for _ in range(given.rounds):
            before = rate(pure, given.seconds / 2)
            asked.append(acting_shm(two, with_streams(two, derived)))
            asked_ratios.append(2 * asked[-1] / (before + rate(pure, given.seconds / 2)))
        inside.close()
        columns = (
            f"{statistics.median(bare):>12,.0f}",
            f"{statistics.median(acted):>12,.0f}{middle:>8.1%}{f'({low:.0%} to {high:.0%})':>16}",
            f"{statistics.median(asked):>12,.0f}{statistics.median(asked_ratios):>8.1%}",
            f"{f'({min(asked_ratios):.0%} to {max(asked_ratios):.0%})':>16}",
        )
        print(f"{env:<16}{envs:>6}{''.join(columns)}")


if __name__ == "__main__":
    main()
