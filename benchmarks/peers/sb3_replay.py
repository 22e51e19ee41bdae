"""The replay buffer of Stable-Baselines3 with rows of HalfCheetah: prints us of CPU time for a batch of 256 and for one row."""

import argparse
import time
from functools import partial

import gymnasium as gym
import numpy as np
import torch
from stable_baselines3.common.buffers import ReplayBuffer

parser = argparse.ArgumentParser()
parser.add_argument("--size", type=int, default=1_000_000)
args = parser.parse_args()
torch.set_num_threads(1)


def least(function, calls=300, rounds=9):
    best = float("inf")
    for _ in range(rounds):
        start = time.process_time()
        for _ in range(calls):
            function()
        best = min(best, time.process_time() - start)
    return best / calls * 1e6


for size in (args.size, 20_000):
    buffer = ReplayBuffer(size, gym.spaces.Box(-1, 1, (17,)), gym.spaces.Box(-1, 1, (6,)), device="cpu")
    arrays = [one for one in vars(buffer).values() if isinstance(one, np.ndarray)]
    for one in arrays:
        one[...] = 0
    buffer.full = True
    obs, action, number, flag = np.zeros((1, 17), np.float32), np.zeros((1, 6), np.float32), np.zeros(1), np.zeros(1, bool)
    bytes_each = sum(one.nbytes for one in arrays) / size
    drawn, added = least(partial(buffer.sample, 256)), least(partial(buffer.add, obs, obs, action, number, flag, [{}]))
    print(f"{size:,} rows: a batch of 256 {drawn:.1f} us, a row {added:.1f} us, {bytes_each:.0f} bytes a row", flush=True)
