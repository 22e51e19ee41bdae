"""CartPole PPO beside its peers, same machine, same run, taking turns: env steps a second, and seconds to a return of 475.

    benchmarks/peers/install.sh ~/peers
    python benchmarks/cartpole_ppo.py --peers ~/peers [--rounds 3] [--only-rate] [--only-time] [--seeds 1,2,3]

Rate: separate MLPs 2x64 tanh, 64 envs, 128 steps, 4 epochs, minibatches of 1,024; each peer with the better of 1 and 2 threads.
Seconds: from the start of the process to a mean return of 475 over 100 episodes, each with settings tuned for this task.
One run of each contestant a seed, in turns; who begins changes with every seed.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from srl.store.lines import read_lines

HERE = Path(__file__).resolve().parent


def run_srl(experiment: str, seed: int, *overrides: str) -> tuple[list[dict[str, Any]], float]:
    """Metrics of one run, and when its process was started."""
    rows, _, began = follow_srl(experiment, seed, *overrides)
    return rows, began


def follow_srl(experiment: str, seed: int, *overrides: str) -> tuple[list[dict[str, Any]], list[dict[str, Any]], float]:
    """Metrics and events of one run, and when its process was started."""
    with tempfile.TemporaryDirectory() as place:
        began = time.time()
        command = [sys.executable, "-m", "srl.launch", f"experiment={experiment}", f"seed={seed}", *overrides]
        done = subprocess.run(
            [*command, "--runs", place, "--quiet"], capture_output=True, text=True, cwd=HERE.parent, check=False
        )
        if done.returncode:
            raise SystemExit(done.stdout + done.stderr)
        (metrics,) = Path(place).glob("*/*/metrics.jsonl")
        return list(read_lines(metrics)), list(read_lines(metrics.with_name("events.jsonl"))), began


def srl_rate(seed: int, steps: int) -> float:
    rows, _ = run_srl("cartpole_fast", seed, f"stop.env_steps={steps}")
    rates = [row["rate/train"] for row in rows if row.get("rate/train")]
    return statistics.median(rates[len(rates) // 2 :])


def srl_solved(seed: int) -> float:
    """Seconds to the moment in which the controller saw a mean of 475."""
    _, events, began = follow_srl("cartpole", seed, "evaluation=null")
    return next((event["time"] - began for event in events if event.get("why") == "solved"), math.inf)


def sb3_solved(peers: Path, seed: int) -> float:
    """Seconds to the end of the rollout in which its last 100 episodes had a mean of 475."""
    found = run_peer(peers, "sb3", seed, "--steps", "150000", "--threads", "1", "--tuned")["solved"]
    return math.inf if found is None else float(found)


def run_peer(peers: Path, name: str, seed: int, *words: str, task: str = "ppo") -> dict[str, Any]:
    python = peers / ("sample_factory" if name == "sample_factory" else name) / "bin" / "python"
    command = [str(python), str(HERE / "peers" / f"{name}_{task}.py"), "--seed", str(seed), *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stdout[-2000:] + done.stderr[-2000:])
    found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


def compare_rates(peers: Path, seeds: Sequence[int]) -> None:
    rates: dict[str, list[float]] = defaultdict(list)
    for seed in seeds:
        rates["srl"].append(srl_rate(seed, 2_000_000))
        for threads in ("1", "2"):
            rates[f"stable-baselines3, {threads} thread"].append(
                run_peer(peers, "sb3", seed, "--steps", "150000", "--threads", threads)["rate"]
            )
            rates[f"script + envpool, {threads} thread"].append(
                run_peer(peers, "cleanrl", seed, "--steps", "400000", "--threads", threads)["rate"]
            )
        rates["sample factory"].append(run_peer(peers, "sample_factory", seed, "--steps", "400000")["rate"])
    print_rates(rates)


def print_rates(rates: dict[str, list[float]]) -> None:
    """The fastest first."""
    middle = {name: statistics.median(values) for name, values in rates.items()}
    print(f"{'env steps a second':<32}{'median':>10}{'min':>10}{'max':>10}{'srl is x':>10}")
    for name, values in sorted(rates.items(), key=lambda item: -middle[item[0]]):
        print(f"{name:<32}{middle[name]:>10,.0f}{min(values):>10,.0f}{max(values):>10,.0f}{middle['srl'] / middle[name]:>10.2f}")


def compare_times(peers: Path, seeds: Sequence[int]) -> None:
    contestants: dict[str, Callable[[int], float]] = {
        "srl": srl_solved,
        "stable-baselines3": lambda seed: sb3_solved(peers, seed),
    }
    solved: dict[str, list[float]] = {name: [] for name in contestants}
    for turn, seed in enumerate(seeds):
        for name in list(contestants)[:: -1 if turn % 2 else 1]:
            solved[name].append(contestants[name](seed))
            print(f"seed {seed}: {name} {solved[name][-1]:.1f} s", flush=True)
    heads = "".join(f"{f'seed {seed}':>10}" for seed in seeds)
    print(f"{'seconds to 475 (inf: never)':<32}{'median':>10}{heads}")
    for name, values in solved.items():
        print(f"{name:<32}{statistics.median(values):>10.1f}" + "".join(f"{value:>10.1f}" for value in values))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", type=Path, required=True, help="where install.sh put their venvs")
    parser.add_argument("--rounds", type=int, default=3, help="seeds 1 to N (default: 3)")
    parser.add_argument("--seeds", help="these seeds instead: 1,2,3")
    only = parser.add_mutually_exclusive_group()
    only.add_argument("--only-rate", action="store_true", help="env steps a second, not the time to 475")
    only.add_argument("--only-time", action="store_true", help="the time to 475 of srl and Stable-Baselines3 alone")
    given = parser.parse_args()
    seeds = [int(seed) for seed in given.seeds.split(",")] if given.seeds else list(range(1, given.rounds + 1))
    if not given.only_time:
        compare_rates(given.peers, seeds)
    if not given.only_rate:
        compare_times(given.peers, seeds)


if __name__ == "__main__":
    main()
