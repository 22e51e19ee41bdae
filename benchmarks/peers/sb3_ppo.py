"""Stable-Baselines3 PPO: prints {"rate": env steps/s, "solved": seconds from process start to a mean return of 475}."""

import argparse
import json
import os
import time

import numpy as np
import torch
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env

parser = argparse.ArgumentParser()
parser.add_argument("--env", default="CartPole-v1")
parser.add_argument("--steps", type=int, default=300_000)
parser.add_argument("--seed", type=int, default=1)
parser.add_argument("--threads", type=int, default=2)
parser.add_argument("--tuned", action="store_true", help="the settings of its own zoo instead of the common ones")
args = parser.parse_args()
torch.set_num_threads(args.threads)


def process_age() -> float:
    with open("/proc/self/stat") as file:
        began = int(file.read().rsplit(")", 1)[1].split()[19]) / os.sysconf("SC_CLK_TCK")
    return time.clock_gettime(time.CLOCK_BOOTTIME) - began


class Watch(BaseCallback):
    solved = None
    began = 0.0

    def _on_training_start(self) -> None:
        self.began = time.perf_counter()

    def _on_step(self) -> bool:
        return True

    def _on_rollout_end(self) -> None:
        returns = [episode["r"] for episode in self.model.ep_info_buffer]
        if self.solved is None and len(returns) >= 100 and np.mean(returns) >= 475:
            self.solved = process_age()


common = {"n_steps": 128, "batch_size": 1024, "n_epochs": 4, "learning_rate": 1e-3}
tuned = {
    "n_steps": 32, "batch_size": 256, "n_epochs": 20, "gae_lambda": 0.8, "gamma": 0.98,
    "learning_rate": lambda left: 1e-3 * left, "clip_range": lambda left: 0.2 * left,
}  # fmt: skip
env = make_vec_env(args.env, n_envs=8 if args.tuned else 64, seed=args.seed)
model = PPO("MlpPolicy", env, seed=args.seed, device="cpu", stats_window_size=100, **(tuned if args.tuned else common))
watch = Watch()
model.learn(args.steps, callback=watch)
rate = model.num_timesteps / (time.perf_counter() - watch.began)
print(json.dumps({"rate": rate, "solved": watch.solved}))
