"""The same learning curve inline, over shared memory and over sockets: 3 seeds each.

    python benchmarks/curves.py [--experiment cartpole] [--steps 120000] [--seeds 3] [--ways shm,zmq] [--figures episode/return]
    python benchmarks/curves.py --experiment pendulum_sac --steps 24000
    python benchmarks/curves.py --experiment pendulum_sac --steps 24000 --ways single,exact,simultaneous,asynchronous

Prints for each figure the mean of the seeds (and the lowest and highest of them) between the marks.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
from typing import Any

from srl.plan.prepare import prepare

from cartpole_ppo import run_srl

WAYS = {
    "inline": ["mode=inline", "layout=inline", "staleness.max=0"],
    "shm": ["layout=decoupled", "streams.all.via=shm", "sampling.groups=1", "staleness.max=0"],
    "zmq": ["layout=decoupled", "streams.all.via=zmq", "sampling.groups=1", "staleness.max=0"],
    "impala": ["layout=impala"],
}
OFF_POLICY = {
    "inline": ["mode=inline", "layout=inline"],
    "shm": ["layout=offpolicy", "streams.all.via=shm", "learner=single"],
    "zmq": ["layout=offpolicy", "streams.all.via=zmq", "learner=single"],
}
"""The same ways of an experiment with a replay."""
LEARNERS = {
    "single": ["learner=single"],
    "sequential": ["learner={use: single, order: sequential}"],
    "exact": ["learner={use: split, mode: exact}"],
    "simultaneous": ["learner={use: split}"],
    "asynchronous": ["learner={use: split, mode: asynchronous}"],
}
"""Of SAC, TD3 and DDPG. From the same batches `exact` learns what `sequential` does, and `simultaneous` what `single` does."""


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--experiment", default="cartpole")
    parser.add_argument("--figures", default="episode/return")
    parser.add_argument("--steps", type=int, default=120_000)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--points", type=int, default=6)
    parser.add_argument("--ways", help="by default all but those of learners")
    given = parser.parse_args()
    marks = [given.steps * point // given.points for point in range(given.points + 1)]
    replayed = any(node.worker == "replay" for node in prepare(given.experiment, inspect=False).graph.nodes)
    ways = OFF_POLICY if replayed else WAYS
    print(f"{'env steps':<13}" + "".join(f"{mark:>22,}" for mark in marks[1:]))
    for way in given.ways.split(",") if given.ways else ways:
        stop = [f"stop.env_steps={given.steps}", "stop.return=null", "evaluation=null"]
        runs = [run_srl(given.experiment, seed, *stop, *{**ways, **LEARNERS}[way])[0] for seed in range(1, given.seeds + 1)]
        for figure in given.figures.split(","):
            curves = [means(rows, figure, marks) for rows in runs]
            cells = [sorted(column) for column in zip(*curves, strict=True)]
            text = "".join(f"{statistics.mean(c):>8.3g} ({c[0]:>4.3g} {c[-1]:>4.3g}) " for c in cells)
            print(f"{way:<13}{text} {figure}", flush=True)


def means(rows: list[dict[str, Any]], figure: str, marks: list[int]) -> list[float]:
    """Of each interval between two marks, over the rows in it that tell of episodes."""
    found = [(row["env_steps"], row[figure]) for row in rows if row.get(figure) is not None]
    return [
        statistics.mean([value for steps, value in found if low < steps <= high] or [float("nan")])
        for low, high in itertools.pairwise(marks)
    ]


if __name__ == "__main__":
    main()
