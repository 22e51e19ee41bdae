"""Stable-Baselines3 or SBX, SAC: prints {"rate": updates/s} or {"solved": seconds from process start to a return}.

One env, one update a step, 2x256. The rate is that of the whole loop; compilation is over when it begins to be measured.
Solved: the mean return of the last 10 training episodes.
"""

import argparse
import json
import os
import time

import numpy as np
import torch
from stable_baselines3.common.callbacks import BaseCallback

parser = argparse.ArgumentParser()
parser.add_argument("--library", choices=("sb3", "sbx"), default="sb3")
parser.add_argument("--env", default="HalfCheetah-v5")
parser.add_argument("--seconds", type=float, default=30.0, help="how long the rate is measured")
parser.add_argument("--batch", type=int, default=256)
parser.add_argument("--seed", type=int, default=1)
parser.add_argument("--threads", type=int, default=2)
parser.add_argument("--solve", type=float, help="the return to reach, instead of a rate")
parser.add_argument("--limit", type=int, default=20_000, help="steps after which --solve gives up")
parser.add_argument("--warmup", type=int, default=100, help="of --solve")
args = parser.parse_args()
torch.set_num_threads(args.threads)
WARM = 300


def process_age() -> float:
    with open("/proc/self/stat") as file:
        began = int(file.read().rsplit(")", 1)[1].split()[19]) / os.sysconf("SC_CLK_TCK")
    return time.clock_gettime(time.CLOCK_BOOTTIME) - began


class Watch(BaseCallback):
    """Ends the run, and keeps what was measured."""

    found: dict[str, float | None] = {"solved": None}
    began = 0.0
    first = 0

    def _on_step(self) -> bool:
        if args.solve is not None:
            returns = [episode["r"] for episode in self.model.ep_info_buffer]
            if len(returns) >= 10 and np.mean(returns) >= args.solve:
                self.found = {"solved": process_age()}
                return False
            return True
        if self.first == 0 and self.num_timesteps >= self.model.learning_starts + WARM:
            self.began, self.first = time.perf_counter(), self.num_timesteps
        elif self.first and (seconds := time.perf_counter() - self.began) >= args.seconds:
            self.found = {"rate": (self.num_timesteps - self.first) / seconds}
            return False
        return True


if args.library == "sb3":
    from stable_baselines3 import SAC
else:
    from sbx import SAC
settings = {
    "learning_rate": 1e-3,
    "batch_size": args.batch,
    "learning_starts": max(1_000, args.batch),
    "policy_kwargs": {"net_arch": [256, 256]},
}
if args.solve is not None:
    settings["learning_starts"] = args.warmup
model = SAC("MlpPolicy", args.env, seed=args.seed, stats_window_size=10, **settings)
watch = Watch()
model.learn(10**9 if args.solve is None else args.limit, callback=watch)
print(json.dumps(watch.found))
