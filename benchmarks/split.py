"""The split learner beside the single one: updates on two cores, taking turns, for several batch sizes. About four minutes.

    python benchmarks/split.py [--algorithms sac,td3,ddpg] [--batches 256,2048,8192] [--rounds 12] [--seconds 0.2]

HalfCheetah's sizes (17 observations, 6 actions), networks of 2x256. Ratios of medians, to the single learner with one thread:

- by wall: what it took. On a busy machine this says how much of the cores it was given.
- freed: without the time in which its threads could have run, but had no core. The kernel counts that for each thread; two
  may be kept waiting at the same time, so it is a span, and the middle of it is printed with its half.
- by CPU: by the CPU time of the busiest thread, if it waits for nothing: not so in mode exact.
- ideal: by the cost model of docs/decisions/0028-split-learner.md.

On idle cores the first two are the same.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections import defaultdict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from srl.api.env import Box
from srl.api.policy import PolicySpec
from srl.api.slab import SlabShape
from srl.core.learner import SingleConfig, SplitConfig
from srl.core.load import load
from srl.core.registry import REGISTRIES
from srl.core.spec import Leaf
from srl.learners.base import Task
from srl.learners.single import SingleLearner
from srl.learners.split import SplitLearner

INPUTS, SIZE = 17, 6
IDEAL = {"sac": (16 / 15, 16 / 9), "td3": (11.5 / 11, 11.5 / 9), "ddpg": (10 / 9, 10 / 5)}
"""(exact, simultaneous): passes of one network, all of an update by those of the longest chain."""


def task(name: str, rows: int, threads: int) -> Task:
    """Of this algorithm, with its usual settings."""
    algorithm = REGISTRIES["algorithm"].resolve(name)
    return Task(
        algorithm=algorithm,
        config=load(algorithm.Config, {}),
        policy=algorithm.Policy,
        policy_config=load(algorithm.Policy.Config, {"hidden": [256, 256]}),
        spec=PolicySpec(obs=Leaf((INPUTS,), "float32"), action=Box((SIZE,), (-1.0,) * SIZE, (1.0,) * SIZE)),
        shape=SlabShape(steps=1, envs=rows, agents=1, memory_every=None),
        seed=1,
        threads=threads,
    )


def batch(rows: int) -> dict[str, Any]:
    """Random transitions."""
    noise = np.random.default_rng(0)
    off = np.zeros((1, rows, 1), bool)
    return {
        "obs": noise.standard_normal((2, rows, 1, INPUTS), np.float32),
        "action": np.tanh(noise.standard_normal((1, rows, 1, SIZE), np.float32)),
        "reward": noise.standard_normal((1, rows, 1), np.float32),
        "discount": np.full((1, rows, 1), 0.99, np.float32),
        "terminated": off, "truncated": off.copy(), "valid": ~off, "first": np.zeros((2, rows, 1), bool),
        "ids": np.arange(rows), "version": np.zeros(rows, np.int64), "weight": np.ones(rows, np.float32),
    }  # fmt: skip


def threads_of(pids: list[int]) -> dict[str, tuple[float, float]]:
    """Of every thread of these processes: seconds of CPU, and seconds in which it could have run, but had no core."""
    texts = {str(file): file.read_text().split() for pid in pids for file in Path(f"/proc/{pid}/task").glob("*/schedstat")}
    return {name: (int(text[0]) / 1e9, int(text[1]) / 1e9) for name, text in texts.items()}


class Turn(NamedTuple):
    """Seconds of an update."""

    wall: float
    cpu: float
    """Of the busiest thread."""
    least: float
    """Wall time without the waits for a core of all threads, as if no two of them fell together; at least `cpu`."""
    most: float
    """The same, as if all fell together with the longest."""


class Contestant:
    """A learner, and the seconds that its updates took."""

    def __init__(self, learner: SingleLearner, rows: dict[str, Any], affinity: set[int]) -> None:
        self.learner, self.rows, self.affinity = learner, rows, affinity
        self.turns: list[Turn] = []
        self._child = getattr(learner, "_child", None)
        if self._child is not None:
            os.sched_setaffinity(self._child.pid, {max(os.sched_getaffinity(0))})
        self._once = self.train(3).wall

    def train(self, updates: int) -> Turn:
        """Some updates."""
        os.sched_setaffinity(0, self.affinity)
        pids = [os.getpid(), *([self._child.pid] if self._child is not None else [])]
        before, began = threads_of(pids), time.perf_counter()
        for _ in range(updates):
            self.learner.clock.updates += 1
            self.learner.update(self.rows)
        if self._child is not None:
            self.learner._wait_for(self.learner.round)  # type: ignore[attr-defined]
        wall = time.perf_counter() - began
        after = threads_of(pids)
        cpu, *_ = sorted((after[name][0] - before.get(name, (0.0, 0.0))[0] for name in after), reverse=True)
        waits = [after[name][1] - before.get(name, (0.0, 0.0))[1] for name in after]
        return Turn(*(one / updates for one in (wall, cpu, max(wall - sum(waits), cpu), wall - max(waits))))

    def measure(self, seconds: float) -> None:
        """One turn."""
        self._once = min(self._once, self.train(2).wall)
        self.turns.append(self.train(max(4, int(seconds / max(self._once, 1e-4)))))

    def median(self, name: str) -> float:
        """Of all turns."""
        return statistics.median(getattr(turn, name) for turn in self.turns)


def compare(name: str, rows: int, rounds: int, seconds: float) -> None:
    """One table."""
    data, everywhere = batch(rows), os.sched_getaffinity(0)
    first = {min(everywhere)}
    made: dict[str, Any] = {
        "single, 1 thread": lambda: (SingleLearner(task(name, rows, 1), SingleConfig()), first),
        "single, 2 threads": lambda: (SingleLearner(task(name, rows, 2), SingleConfig()), everywhere),
        "split, exact": lambda: (SplitLearner(task(name, rows, 1), SplitConfig(mode="exact", pin=False)), first),
        "split, simultaneous": lambda: (SplitLearner(task(name, rows, 1), SplitConfig(pin=False)), first),
        "split, asynchronous": lambda: (SplitLearner(task(name, rows, 1), SplitConfig(mode="asynchronous", pin=False)), first),
    }
    contestants: dict[str, Contestant] = {}
    for title, make in made.items():
        os.sched_setaffinity(0, everywhere)  # the contestant before has left one core
        learner, affinity = make()
        torch.set_num_threads(1)
        contestants[title] = Contestant(learner, data, affinity)
    for turn in range(rounds):
        for title in list(contestants)[:: -1 if turn % 2 else 1]:
            contestants[title].measure(seconds)
    ideal: dict[str, float] = defaultdict(lambda: 1.0)
    ideal |= {"single, 2 threads": IDEAL[name][1], "split, exact": IDEAL[name][0]}
    ideal |= {"split, simultaneous": IDEAL[name][1], "split, asynchronous": IDEAL[name][1]}
    titles = ("ms an update", "by wall", "freed", "by CPU", "ideal")
    print(f"{name}, batch {rows:,}".ljust(24) + "".join(f"{title:>14}" for title in titles))
    base = contestants["single, 1 thread"]
    for title, one in contestants.items():
        low, high = sorted(base.median("most") / one.median(bound) for bound in ("least", "most"))
        cells = [f"{1e3 * one.median('wall'):.2f}", f"{base.median('wall') / one.median('wall'):.2f}"]
        cells.append(f"{(low + high) / 2:.2f} +- {(high - low) / 2:.2f}")
        cells.append("" if "exact" in title else f"{base.median('cpu') / one.median('cpu'):.2f}")
        print(f"{title:<24}" + "".join(f"{cell:>14}" for cell in (*cells, f"{ideal[title]:.2f}")), flush=True)
    for one in contestants.values():
        one.learner.close()
    os.sched_setaffinity(0, everywhere)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--algorithms", default="sac,td3,ddpg")
    parser.add_argument("--batches", default="256,2048,8192")
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--seconds", type=float, default=0.2, help="of each turn")
    args = parser.parse_args()
    torch.set_num_threads(1)
    for name in args.algorithms.split(","):
        for rows in args.batches.split(","):
            compare(name, int(rows), args.rounds, args.seconds)


if __name__ == "__main__":
    main()
