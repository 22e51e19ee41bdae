"""The same learning curve inline, over shared memory and over sockets: 3 seeds each.

    python benchmarks/curves.py [--experiment cartpole] [--steps 120000] [--seeds 3]

Prints the mean return (and the lowest and highest of the seeds) at equal numbers of env steps.
"""

from __future__ import annotations

import argparse
import statistics

from cartpole_ppo import run_srl

WAYS = {
    "inline": ["mode=inline", "layout=inline"],
    "shm": ["layout=decoupled", "streams.all.via=shm", "sampling.groups=1"],
    "zmq": ["layout=decoupled", "streams.all.via=zmq", "sampling.groups=1"],
    "impala": ["layout=impala"],
}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--experiment", default="cartpole")
    parser.add_argument("--steps", type=int, default=120_000)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--points", type=int, default=6)
    given = parser.parse_args()
    marks = [given.steps * (point + 1) // given.points for point in range(given.points)]
    print(f"{'env steps':<10}" + "".join(f"{mark:>22,}" for mark in marks))
    for way, words in WAYS.items():
        curves = []
        for seed in range(1, given.seeds + 1):
            stop = [f"stop.env_steps={given.steps}", "stop.return=null", "evaluation=null", "staleness.max=0"]
            stop = stop[:-1] if way == "impala" else stop
            rows, _ = run_srl(given.experiment, seed, *stop, *words)
            found = [(row["env_steps"], row["episode/return"]) for row in rows if row.get("episode/return") is not None]
            curves.append([min(found, key=lambda one: abs(one[0] - mark))[1] for mark in marks])
        cells = [sorted(column) for column in zip(*curves, strict=True)]
        print(f"{way:<10}" + "".join(f"{statistics.mean(c):>8.0f} ({c[0]:>4.0f} {c[-1]:>4.0f}) " for c in cells), flush=True)


if __name__ == "__main__":
    main()
