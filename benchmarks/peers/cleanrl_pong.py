"""A single-file PPO in the manner of CleanRL, on Pong of EnvPool: prints {"rate": agent steps/s}."""

import argparse
import json
import time

import envpool
import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=20_480)
parser.add_argument("--epochs", type=int, default=4)
parser.add_argument("--seed", type=int, default=1)
parser.add_argument("--threads", type=int, default=2)
args = parser.parse_args()
torch.set_num_threads(args.threads)
torch.manual_seed(args.seed)
ENVS, STEPS, MINIBATCH = 8, 128, 256


def layer(made: nn.Module, gain: float = 2**0.5) -> nn.Module:
    nn.init.orthogonal_(made.weight, gain)
    nn.init.zeros_(made.bias)
    return made


envs = envpool.make(
    "Pong-v5", env_type="gym", num_envs=ENVS, num_threads=args.threads, seed=args.seed, episodic_life=True, reward_clip=True
)
body = nn.Sequential(
    layer(nn.Conv2d(4, 32, 8, 4)), nn.ReLU(), layer(nn.Conv2d(32, 64, 4, 2)), nn.ReLU(), layer(nn.Conv2d(64, 64, 3)), nn.ReLU(),
    nn.Flatten(), layer(nn.Linear(3136, 512)), nn.ReLU(),
)  # fmt: skip
actor, critic = layer(nn.Linear(512, envs.action_space.n), 0.01), layer(nn.Linear(512, 1), 1.0)
parameters = [*body.parameters(), *actor.parameters(), *critic.parameters()]
adam = torch.optim.Adam(parameters, lr=2.5e-4, eps=1e-5, fused=True)

obs = torch.zeros(STEPS, ENVS, 4, 84, 84, dtype=torch.uint8)
action, log_prob = torch.zeros(STEPS, ENVS, dtype=torch.int64), torch.zeros(STEPS, ENVS)
reward, done, value = torch.zeros(STEPS, ENVS), torch.zeros(STEPS, ENVS), torch.zeros(STEPS, ENVS)
now, now_done = torch.as_tensor(envs.reset()[0]), torch.zeros(ENVS)
taken, marks = 0, []
while taken < args.steps:
    marks.append((time.perf_counter(), taken))
    with torch.no_grad():
        for t in range(STEPS):
            obs[t], done[t] = now, now_done
            features = body(now / 255.0)
            dist = torch.distributions.Categorical(logits=actor(features))
            action[t] = dist.sample()
            log_prob[t], value[t] = dist.log_prob(action[t]), critic(features)[:, 0]
            after, gain, terminated, truncated, _ = envs.step(action[t].numpy())
            reward[t] = torch.as_tensor(gain)
            now, now_done = torch.as_tensor(after), torch.as_tensor(terminated | truncated, dtype=torch.float32)
        taken += STEPS * ENVS
        advantage, last, following, following_done = torch.zeros_like(reward), 0.0, critic(body(now / 255.0))[:, 0], now_done
        for t in reversed(range(STEPS)):
            delta = reward[t] + 0.99 * following * (1 - following_done) - value[t]
            advantage[t] = last = delta + 0.99 * 0.95 * (1 - following_done) * last
            following, following_done = value[t], done[t]
        target = (advantage + value).reshape(-1)
    flat = [x.reshape(STEPS * ENVS, *x.shape[2:]) for x in (obs, action, log_prob, advantage)]
    for _ in range(args.epochs):
        order = torch.randperm(STEPS * ENVS)
        for start in range(0, STEPS * ENVS, MINIBATCH):
            rows = order[start : start + MINIBATCH]
            o, a, old, adv = (x[rows] for x in flat)
            adv = (adv - adv.mean()) / (adv.std() + 1e-8)
            features = body(o / 255.0)
            dist = torch.distributions.Categorical(logits=actor(features))
            ratio = (dist.log_prob(a) - old).exp()
            policy_loss = torch.max(-adv * ratio, -adv * ratio.clamp(0.9, 1.1)).mean()
            value_loss = 0.5 * (critic(features)[:, 0] - target[rows]).square().mean()
            loss = policy_loss + 0.5 * value_loss - 0.01 * dist.entropy().mean()
            adam.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(parameters, 0.5)
            adam.step()
start, first = marks[1]
print(json.dumps({"rate": (taken - first) / (time.perf_counter() - start)}))
