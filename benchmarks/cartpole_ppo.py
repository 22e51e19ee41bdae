"""CartPole PPO beside its peers, same machine, same run, taking turns: env steps a second, and seconds to a return of 475.

    benchmarks/peers/install.sh ~/peers
    python benchmarks/cartpole_ppo.py --peers ~/peers [--rounds 3]

Rate: separate MLPs 2x64 tanh, 64 envs, 128 steps, 4 epochs, minibatches of 1,024; each peer with the better of 1 and 2 threads.
Seconds: from the start of the process to a mean return of 475 over 100 episodes, each with settings tuned for this task.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

from srl.store.lines import read_lines

HERE = Path(__file__).resolve().parent


def run_srl(experiment: str, seed: int, *overrides: str) -> tuple[list[dict[str, Any]], float]:
    """Metrics of one run, and when its process was started."""
    with tempfile.TemporaryDirectory() as place:
        began = time.time()
        command = [sys.executable, "-m", "srl.launch", f"experiment={experiment}", f"seed={seed}", *overrides]
        done = subprocess.run(
            [*command, "--runs", place, "--quiet"], capture_output=True, text=True, cwd=HERE.parent, check=False
        )
        if done.returncode:
            raise SystemExit(done.stdout + done.stderr)
        (file,) = Path(place).glob("*/*/metrics.jsonl")
        return list(read_lines(file)), began


def srl_rate(seed: int, steps: int) -> float:
    rows, _ = run_srl("cartpole_fast", seed, f"stop.env_steps={steps}")
    rates = [row["rate/train"] for row in rows if row.get("rate/train")]
    return statistics.median(rates[len(rates) // 2 :])


def srl_solved(seed: int) -> float:
    rows, began = run_srl("cartpole", seed, "evaluation=null")
    for row in rows:
        if row.get("episode/return", 0.0) >= 475:
            return float(row["time"]) - began
    return float("nan")


def run_peer(peers: Path, name: str, seed: int, *words: str) -> dict[str, Any]:
    python = peers / ("sample_factory" if name == "sample_factory" else name) / "bin" / "python"
    command = [str(python), str(HERE / "peers" / f"{name}_ppo.py"), "--seed", str(seed), *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stdout[-2000:] + done.stderr[-2000:])
    found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--peers", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    rates: dict[str, list[float]] = defaultdict(list)
    for seed in range(1, given.rounds + 1):
        rates["srl"].append(srl_rate(seed, 2_000_000))
        for threads in ("1", "2"):
            rates[f"stable-baselines3, {threads} thread"].append(
                run_peer(given.peers, "sb3", seed, "--steps", "150000", "--threads", threads)["rate"]
            )
            rates[f"script + envpool, {threads} thread"].append(
                run_peer(given.peers, "cleanrl", seed, "--steps", "400000", "--threads", threads)["rate"]
            )
        rates["sample factory"].append(run_peer(given.peers, "sample_factory", seed, "--steps", "400000")["rate"])
    middle = {name: statistics.median(values) for name, values in rates.items()}
    print(f"{'env steps a second':<32}{'median':>10}{'min':>10}{'max':>10}{'srl is x':>10}")
    for name, values in sorted(rates.items(), key=lambda item: -middle[item[0]]):
        print(f"{name:<32}{middle[name]:>10,.0f}{min(values):>10,.0f}{max(values):>10,.0f}{middle['srl'] / middle[name]:>10.2f}")
    solved: dict[str, list[float]] = defaultdict(list)
    for seed in range(1, given.rounds + 1):
        solved["srl"].append(srl_solved(seed))
        words = ("--steps", "150000", "--threads", "1", "--tuned")
        solved["stable-baselines3"].append(run_peer(given.peers, "sb3", seed, *words)["solved"] or float("nan"))
    print("seconds from process start to 475:")
    for name, values in solved.items():
        print(f"{name:<32}{statistics.median(values):>10.1f}   {', '.join(f'{value:.1f}' for value in values)}")


if __name__ == "__main__":
    main()
