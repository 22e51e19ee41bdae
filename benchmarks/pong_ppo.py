"""PPO on Pong beside its peers, same machine, same run, taking turns: agent steps a second (an agent step is four frames).

    benchmarks/peers/install.sh ~/peers
    python benchmarks/pong_ppo.py --peers ~/peers [--rounds 3] [--epochs 4,1] [--layouts "two trainers,inline,impala"]

Nature CNN, 8 envs of 128 steps, minibatches of 256, once with 4 epochs and once with 1. Each peer with the better of 1 and 2
threads, srl with every layout that is named; then what `srl bench limit` says. About fifteen minutes a round.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

from cartpole_ppo import HERE, print_rates, run_peer, run_srl

LAYOUTS = {
    "two trainers": [],
    "inline": ["workers.trainer.count=1", "workers.trainer.threads=2", "env.threads=2"],
    "impala": ["layout=impala", "workers.trainer.count=1", "sampling.workers=1"],
}
"""What each one changes in experiments/pong.yaml, which has two trainers that act and learn by turns."""


def srl_rate(seed: int, steps: int, *overrides: str) -> float:
    rows, _ = run_srl("pong", seed, "evaluation=null", f"stop.env_steps={steps}", *overrides)
    marks = [(row["time"], row["total/env_steps"]) for row in rows if row.get("total/env_steps", 0) >= steps * 0.2]
    (start, first), *_, (end, last) = marks
    return float(last - first) / (end - start)


def compare(peers: Path, epochs: int, seeds: list[int], layouts: list[str]) -> None:
    rates: dict[str, list[float]] = defaultdict(list)
    few = ["--epochs", str(epochs)]
    for seed in seeds:
        for name in layouts:
            rates[f"srl, {name}"].append(srl_rate(seed, 61_440, f"algorithm.epochs={epochs}", *LAYOUTS[name]))
        for threads in ("1", "2"):
            for name, peer in (("stable-baselines3", "sb3"), ("script + envpool", "cleanrl")):
                found = run_peer(peers, peer, seed, *few, "--threads", threads, task="pong")
                rates[f"{name}, {threads} thread"].append(found["rate"])
        rates["sample factory"].append(run_peer(peers, "sample_factory", seed, *few, task="pong")["rate"])
    print(f"\n{epochs} epochs", flush=True)
    rates["srl"] = max((rates[f"srl, {name}"] for name in layouts), key=statistics.median)
    print_rates(rates)
    command = [sys.executable, "-m", "srl", "bench", "limit", "experiment=pong", f"algorithm.epochs={epochs}"]
    print(subprocess.run(command, capture_output=True, text=True, cwd=HERE.parent, check=True).stdout, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", type=Path, required=True, help="where install.sh put their venvs")
    parser.add_argument("--rounds", type=int, default=3, help="seeds 1 to N (default: 3)")
    parser.add_argument("--epochs", default="4,1")
    parser.add_argument("--layouts", default="two trainers,inline,impala", help=f"of {', '.join(LAYOUTS)}")
    given = parser.parse_args()
    for epochs in given.epochs.split(","):
        compare(given.peers, int(epochs), list(range(1, given.rounds + 1)), given.layouts.split(","))


if __name__ == "__main__":
    main()
