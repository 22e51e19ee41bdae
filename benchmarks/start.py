"""From the start of the process to the first update, and the memory of an actor without torch.

python benchmarks/start.py [--rounds 3]
"""

from __future__ import annotations

import argparse
import statistics

from cartpole_ppo import run_srl


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    first, memory = [], []
    for seed in range(1, given.rounds + 1):
        rows, began = run_srl("cartpole", seed, "stop.env_steps=60000", "stop.return=null", "sampling.workers=1")
        first.append(next(row["time"] for row in rows if row.get("update", 0) >= 1) - began)
        memory.append(max(row.get("rss/actor", 0.0) for row in rows) / 2**20)
    print(f"start to first update   {statistics.median(first):6.1f} s   ({', '.join(f'{one:.1f}' for one in first)})")
    print(f"actor, resident         {statistics.median(memory):6.1f} MB  ({', '.join(f'{one:.1f}' for one in memory)})")


if __name__ == "__main__":
    main()
