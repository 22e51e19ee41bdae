"""The split learner beside the single one: updates on two cores, taking turns, for several batch sizes.

    python benchmarks/split.py [--algorithms sac,td3,ddpg] [--batches 256,2048,8192] [--rounds 5] [--seconds 1]

HalfCheetah's sizes (17 observations, 6 actions), networks of 2x256. Ratios are those of the median seconds of an update to the
single learner's with one thread: by wall time, and by CPU time, where the busier side counts, as on cores that are otherwise
idle (not of mode exact, whose sides wait for each other). On a busy machine only the latter means anything. Ideal: what the cost
model of docs/decisions/0028-split-learner.md gives.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections import defaultdict
from typing import Any

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


def cpu_of(pid: int) -> float:
    """Seconds of CPU that a process has used."""
    return time.clock_gettime((~pid << 3) | 2)


class Contestant:
    """A learner, and the seconds that its updates took."""

    def __init__(self, learner: SingleLearner, rows: dict[str, Any], affinity: set[int]) -> None:
        self.learner, self.rows, self.affinity = learner, rows, affinity
        self.wall: list[float] = []
        self.cpu: list[float] = []
        child = getattr(learner, "_child", None)
        if child is not None:
            os.sched_setaffinity(child.pid, {max(os.sched_getaffinity(0))})
        self.train(3)

    def train(self, updates: int) -> tuple[float, float]:
        """Seconds of wall and CPU time; of the slower side, where there are two."""
        os.sched_setaffinity(0, self.affinity)
        child = getattr(self.learner, "_child", None)
        pids = [os.getpid(), *([child.pid] if child is not None else [])]
        before, began = [cpu_of(pid) for pid in pids], time.perf_counter()
        for _ in range(updates):
            self.learner.clock.updates += 1
            self.learner.update(self.rows)
        if child is not None:
            self.learner._wait_for(self.learner.round)  # type: ignore[attr-defined]
        wall = time.perf_counter() - began
        return wall, max(cpu_of(pid) - was for pid, was in zip(pids, before, strict=True))

    def measure(self, seconds: float) -> None:
        """One turn."""
        once = self.train(2)[0] / 2
        updates = max(4, int(seconds / max(once, 1e-4)))
        wall, cpu = self.train(updates)
        self.wall.append(wall / updates)
        self.cpu.append(cpu / updates)


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
        learner, affinity = make()
        torch.set_num_threads(1)
        contestants[title] = Contestant(learner, data, affinity)
    for turn in range(rounds):
        for title in list(contestants)[:: -1 if turn % 2 else 1]:
            contestants[title].measure(seconds)
    found: dict[str, tuple[float, float]] = {
        title: (statistics.median(one.wall), statistics.median(one.cpu)) for title, one in contestants.items()
    }
    ideal: dict[str, float] = defaultdict(lambda: 1.0)
    ideal |= {"single, 2 threads": IDEAL[name][1], "split, exact": IDEAL[name][0]}
    ideal |= {"split, simultaneous": IDEAL[name][1], "split, asynchronous": IDEAL[name][1]}
    print(f"{name}, batch {rows:,}".ljust(28) + f"{'ms an update':>14}{'x by wall':>12}{'x by CPU':>12}{'ideal':>8}")
    base = found["single, 1 thread"]
    for title, (wall, cpu) in found.items():
        by_cpu = "" if "2 threads" in title or "exact" in title else f"{base[1] / cpu:.2f}"
        print(f"{title:<28}{1e3 * wall:>14.2f}{base[0] / wall:>12.2f}{by_cpu:>12}{ideal[title]:>8.2f}", flush=True)
    for one in contestants.values():
        one.learner.close()
    os.sched_setaffinity(0, everywhere)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--algorithms", default="sac,td3,ddpg")
    parser.add_argument("--batches", default="256,2048,8192")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.0, help="of each turn")
    args = parser.parse_args()
    torch.set_num_threads(1)
    for name in args.algorithms.split(","):
        for rows in args.batches.split(","):
            compare(name, int(rows), args.rounds, args.seconds)


if __name__ == "__main__":
    main()
