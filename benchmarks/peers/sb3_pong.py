"""Stable-Baselines3 PPO on Pong with its own Atari wrappers: prints {"rate": agent steps/s}."""

import argparse
import json
import time

import ale_py
import gymnasium
import torch
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_atari_env
from stable_baselines3.common.vec_env import VecFrameStack

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=20_480)
parser.add_argument("--epochs", type=int, default=4)
parser.add_argument("--seed", type=int, default=1)
parser.add_argument("--threads", type=int, default=2)
args = parser.parse_args()
torch.set_num_threads(args.threads)
gymnasium.register_envs(ale_py)


class Watch(BaseCallback):
    """When each rollout began: the first is not counted."""

    marks: list[tuple[float, int]]

    def _on_training_start(self) -> None:
        self.marks = []

    def _on_rollout_start(self) -> None:
        self.marks.append((time.perf_counter(), self.num_timesteps))

    def _on_step(self) -> bool:
        return True


env = VecFrameStack(make_atari_env("PongNoFrameskip-v4", n_envs=8, seed=args.seed), n_stack=4)
model = PPO(
    "CnnPolicy", env, n_steps=128, batch_size=256, n_epochs=args.epochs, learning_rate=2.5e-4, clip_range=0.1, ent_coef=0.01,
    seed=args.seed, device="cpu",
)  # fmt: skip
watch = Watch()
model.learn(args.steps, callback=watch)
(start, first), (end, last) = watch.marks[1], (time.perf_counter(), model.num_timesteps)
print(json.dumps({"rate": (last - first) / (end - start)}))
