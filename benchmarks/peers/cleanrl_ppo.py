"""A single-file PPO in the manner of CleanRL on EnvPool: prints {"rate": env steps/s, "solved": seconds to a return of 475}."""

import argparse
import json
import os
import time
from collections import deque

import envpool
import numpy as np
import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--env", default="CartPole-v1")
parser.add_argument("--steps", type=int, default=300_000)
parser.add_argument("--seed", type=int, default=1)
parser.add_argument("--threads", type=int, default=2)
args = parser.parse_args()
torch.set_num_threads(args.threads)
torch.manual_seed(args.seed)
ENVS, STEPS, EPOCHS, MINIBATCH = 64, 128, 4, 1024


def process_age() -> float:
    with open("/proc/self/stat") as file:
        began = int(file.read().rsplit(")", 1)[1].split()[19]) / os.sysconf("SC_CLK_TCK")
    return time.clock_gettime(time.CLOCK_BOOTTIME) - began


def layer(inputs: int, outputs: int, gain: float = 2**0.5) -> nn.Linear:
    linear = nn.Linear(inputs, outputs)
    nn.init.orthogonal_(linear.weight, gain)
    nn.init.zeros_(linear.bias)
    return linear


envs = envpool.make(args.env, env_type="gym", num_envs=ENVS, seed=args.seed)
size, actions = envs.observation_space.shape[0], envs.action_space.n
actor = nn.Sequential(layer(size, 64), nn.Tanh(), layer(64, 64), nn.Tanh(), layer(64, actions, 0.01))
critic = nn.Sequential(layer(size, 64), nn.Tanh(), layer(64, 64), nn.Tanh(), layer(64, 1, 1.0))
parameters = [*actor.parameters(), *critic.parameters()]
adam = torch.optim.Adam(parameters, lr=1e-3, eps=1e-5, fused=True)

obs = torch.zeros(STEPS, ENVS, size)
action, log_prob = torch.zeros(STEPS, ENVS, dtype=torch.int64), torch.zeros(STEPS, ENVS)
reward, done, value = torch.zeros(STEPS, ENVS), torch.zeros(STEPS, ENVS), torch.zeros(STEPS, ENVS)
returns, episode = deque(maxlen=100), np.zeros(ENVS)
solved = None
now = torch.as_tensor(envs.reset()[0], dtype=torch.float32)
now_done = torch.zeros(ENVS)
began = time.perf_counter()
taken = 0
while taken < args.steps:
    with torch.no_grad():
        for t in range(STEPS):
            obs[t], done[t] = now, now_done
            dist = torch.distributions.Categorical(logits=actor(now))
            action[t] = dist.sample()
            log_prob[t] = dist.log_prob(action[t])
            value[t] = critic(now)[:, 0]
            after, gain, terminated, truncated, _ = envs.step(action[t].numpy())
            ended = np.logical_or(terminated, truncated)
            reward[t] = torch.as_tensor(gain)
            now, now_done = torch.as_tensor(after, dtype=torch.float32), torch.as_tensor(ended, dtype=torch.float32)
            episode += gain
            for one in np.flatnonzero(ended):
                returns.append(episode[one])
                episode[one] = 0.0
        taken += STEPS * ENVS
        advantage, last, following, following_done = torch.zeros_like(reward), 0.0, critic(now)[:, 0], now_done
        for t in reversed(range(STEPS)):
            delta = reward[t] + 0.99 * following * (1 - following_done) - value[t]
            advantage[t] = last = delta + 0.99 * 0.95 * (1 - following_done) * last
            following, following_done = value[t], done[t]
        target = (advantage + value).reshape(-1)
    flat = [x.reshape(STEPS * ENVS, *x.shape[2:]) for x in (obs, action, log_prob, advantage)]
    for _ in range(EPOCHS):
        order = torch.randperm(STEPS * ENVS)
        for start in range(0, STEPS * ENVS, MINIBATCH):
            rows = order[start : start + MINIBATCH]
            o, a, old, adv = (x[rows] for x in flat)
            adv = (adv - adv.mean()) / (adv.std() + 1e-8)
            dist = torch.distributions.Categorical(logits=actor(o))
            ratio = (dist.log_prob(a) - old).exp()
            policy_loss = torch.max(-adv * ratio, -adv * ratio.clamp(0.8, 1.2)).mean()
            value_loss = 0.5 * (critic(o)[:, 0] - target[rows]).square().mean()
            loss = policy_loss + 0.5 * value_loss
            adam.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(parameters, 0.5)
            adam.step()
    if solved is None and len(returns) == 100 and np.mean(returns) >= 475:
        solved = process_age()
print(json.dumps({"rate": taken / (time.perf_counter() - began), "solved": solved}))
