"""SAC beside its peers on one machine, taking turns: updates a second, frames a second at large batches, seconds to solve.

    benchmarks/peers/install.sh ~/peers
    python benchmarks/offpolicy.py --peers ~/peers [--rounds 3] [--only rate,frames,pendulum,cheetah] [--among "srl;sbx"] ...

Rate: HalfCheetah-v5, one env, 2x256, batches of 256, one update a step, the whole loop. Frames: the same with batches of 8,192;
a frame is a row of a batch. Pendulum: from the start of the process to a mean return of -200, over 100 training episodes here,
over 10 there. Cheetah: the same to 5,500 on HalfCheetah over 10 episodes; all with lr 1e-3 and 10,000 random steps. The last two
take 15 and 60 minutes for three rounds.
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
from collections.abc import Callable
from pathlib import Path
from typing import Any

from srl.observe.figures import EPISODES
from srl.store.lines import read_lines

HERE = Path(__file__).resolve().parent
Contestants = dict[str, Callable[[int], float]]
ASYNCHRONOUS = "learner={use: split, mode: asynchronous}"
HALF = ("policy.half=true", "algorithm.critic.half=true")


def run_srl(experiment: str, seed: int, *overrides: str) -> tuple[list[dict[str, Any]], list[dict[str, Any]], float]:
    """Metrics and events of one run, and when its process was started."""
    with tempfile.TemporaryDirectory() as place:
        began = time.time()
        command = [sys.executable, "-m", "srl.launch", f"experiment={experiment}", f"seed={seed}", "evaluation=null", *overrides]
        done = subprocess.run(
            [*command, "--runs", place, "--quiet"], capture_output=True, text=True, cwd=HERE.parent, check=False
        )
        if done.returncode:
            raise SystemExit(done.stdout + done.stderr)
        (metrics,) = Path(place).glob("*/*/metrics.jsonl")
        return list(read_lines(metrics)), list(read_lines(metrics.with_name("events.jsonl"))), began


def srl_rate(seed: int, seconds: float, batch: int, *words: str) -> float:
    """Updates a second, over the second half of a run."""
    sizes = (f"replay.batch={batch}", f"replay.warmup={max(1_000, batch)}", f"stop={{seconds: {2 * seconds:.0f}}}")
    rows, _, _ = run_srl("half_cheetah_sac", seed, "expect={}", *sizes, *words)
    counted = [(row["time"], row["total/updates"]) for row in rows if row.get("total/updates")]
    (start, before), (end, after) = counted[len(counted) // 2], counted[-1]
    return float((after - before) / (end - start))


def srl_solved(seed: int) -> float:
    """Seconds to the moment in which the controller saw a mean of -200."""
    _, events, began = run_srl("pendulum_sac", seed)
    return next((event["time"] - began for event in events if event.get("why") == "solved"), math.inf)


def peer(peers: Path, library: str, seed: int, *words: str) -> dict[str, Any]:
    """What a peer's script found."""
    command = [str(peers / library / "bin" / "python"), str(HERE / "peers" / "sb3_sac.py"), "--library", library]
    done = subprocess.run([*command, "--seed", str(seed), *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stdout[-2000:] + done.stderr[-2000:])
    found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


def rates(peers: Path, seconds: float, batch: int) -> Contestants:
    """Updates a second of each."""
    words = ("--seconds", str(seconds), "--batch", str(batch))
    return {
        "srl": lambda seed: srl_rate(seed, seconds, batch),
        "srl, asynchronous": lambda seed: srl_rate(seed, seconds, batch, ASYNCHRONOUS),
        "srl, in bfloat16": lambda seed: srl_rate(seed, seconds, batch, *HALF),
        "the same, asynchronous": lambda seed: srl_rate(seed, seconds, batch, *HALF, ASYNCHRONOUS),
        "sbx": lambda seed: float(peer(peers, "sbx", seed, *words)["rate"]),
        "stable-baselines3, 1 thread": lambda seed: float(peer(peers, "sb3", seed, *words, "--threads", "1")["rate"]),
        "stable-baselines3, 2 threads": lambda seed: float(peer(peers, "sb3", seed, *words, "--threads", "2")["rate"]),
    }


def srl_ran_well(seed: int) -> float:
    """Seconds until the last ten training episodes of HalfCheetah had a mean of 5,500."""
    rows, _, began = run_srl("half_cheetah_sac", seed, "expect={}", "stop={env_steps: 120_000}")
    returns: list[float] = []
    before = 0.0
    for row in rows:
        old, new = len(returns), int(row.get("total/episodes", 0))
        if "episode/return" in row and new > old:  # a mean of the last EPISODES: what has come, and what has left?
            left = sum(returns[max(old - EPISODES, 0) : max(new - EPISODES, 0)])
            added = row["episode/return"] * min(new, EPISODES) - before * min(old, EPISODES) + left
            returns += [added / (new - old)] * (new - old)
            before = row["episode/return"]
        if len(returns) >= 10 and statistics.mean(returns[-10:]) >= 5_500:
            return float(row["time"] - began)
    return math.inf


def times(peers: Path, own: Callable[[int], float], *words: str) -> Contestants:
    """Seconds to a return; infinite: never."""

    def solved(library: str, seed: int) -> float:
        found = peer(peers, library, seed, *words, "--threads", "1")["solved"]
        return math.inf if found is None else float(found)

    return {
        "srl": own,
        "sbx": lambda seed: solved("sbx", seed),
        "stable-baselines3": lambda seed: solved("sb3", seed),
    }


def compare(title: str, contestants: Contestants, args: Any, scale: float = 1.0) -> None:
    """One run of each a round, in turns; who begins changes."""
    among = args.among.split(";") if args.among else list(contestants)
    contestants = {name: run for name, run in contestants.items() if name in among}
    found: dict[str, list[float]] = defaultdict(list)
    for seed in range(1, args.rounds + 1):
        for name in list(contestants)[:: -1 if seed % 2 == 0 else 1]:
            found[name].append(contestants[name](seed) * scale)
            print(f"seed {seed}: {name} {found[name][-1]:,.1f}", flush=True)
    print(f"{title:<32}{'median':>10}{'min':>10}{'max':>10}{'x of srl':>10}")
    middle = statistics.median(found["srl"])
    for name in contestants:
        median = statistics.median(found[name])
        print(f"{name:<32}{median:>10,.1f}{min(found[name]):>10,.1f}{max(found[name]):>10,.1f}{median / middle:>10.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", type=Path, required=True, help="where install.sh put their venvs")
    parser.add_argument("--rounds", type=int, default=3, help="seeds 1 to N (default: 3)")
    parser.add_argument("--seconds", type=float, default=30.0, help="of each measurement (default: 30)")
    parser.add_argument("--only", default="rate,frames,pendulum,cheetah", help="(default: %(default)s)")
    parser.add_argument("--among", default="", help="names in the first column, separated by semicolons (default: all)")
    args = parser.parse_args()
    only = args.only.split(",")
    if "rate" in only:
        compare("updates a second", rates(args.peers, args.seconds, 256), args)
    if "frames" in only:
        compare("frames a second at 8,192", rates(args.peers, args.seconds, 8_192), args, 8_192.0)
    if "pendulum" in only:
        words = ("--solve", "-200", "--env", "Pendulum-v1")
        compare("seconds to -200 on Pendulum", times(args.peers, srl_solved, *words), args)
    if "cheetah" in only:
        words = ("--solve", "5500", "--env", "HalfCheetah-v5", "--limit", "150000", "--warmup", "10000")
        compare("seconds to 5,500 on HalfCheetah", times(args.peers, srl_ran_well, *words), args)


if __name__ == "__main__":
    main()
