"""Microseconds per env step: gymnasium's loop, its SyncVectorEnv, and ours, side by side in one run.

    python benchmarks/envs.py [--seconds 1.0] [--only cartpole]

Everyone steps the same copies with the same actions, one thread, CPU time of this thread, best of three turns.
"""

from __future__ import annotations

import argparse
import importlib.util
import time
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np

from srl.api.env import new_block, renew
from srl.core.seeds import Seeds
from srl.envs.check import sample_actions
from srl.envs.resolve import make_env

Step = Callable[[Any], None]
_ACTIONS = 64


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=1.0, help="of each turn")
    parser.add_argument("--only", default="", help="part of a name")
    args = parser.parse_args()
    quiet()
    print(f"{'env':<16}{'copies':>7}{'who':>26}{'us/step':>10}{'of loop':>9}")
    for name, copies, balanced in CASES:
        if args.only.lower() in name.lower():
            show(name, copies, args.seconds, balanced)


def quiet() -> None:
    """Gymnasium's XML uses words that MuJoCo 4 warns about, once for each copy."""
    if importlib.util.find_spec("mujoco") is not None:
        import mujoco

        mujoco.set_mju_user_warning(lambda text: None)


CASES = [
    ("CartPole-v1", 16, True),
    ("CartPole-v1", 64, True),
    ("CartPole-v1", 1024, True),
    ("Pendulum-v1", 16, False),
    ("HalfCheetah-v5", 16, False),
    ("HalfCheetah-v5", 64, False),
    ("Hopper-v5", 16, False),
    ("Walker2d-v5", 16, False),
    ("Ant-v5", 16, False),
    ("Humanoid-v5", 16, False),
]


def show(name: str, copies: int, seconds: float, balanced: bool) -> None:
    """One line for each contestant. `balanced`: CartPole is kept up as a trained policy would, so that episodes are long."""
    ours: dict[str, Any] = {"srl loop": {"use": "gym", "id": name}}
    if name == "CartPole-v1":
        ours["srl gym_vector"] = {"use": "gym_vector", "id": name}
    if "Cheetah" in name or name.split("-")[0] in ("Hopper", "Walker2d", "Ant", "Humanoid"):
        ours["srl mujoco.batch"] = name
    contestants = {
        "gymnasium loop": lambda: loop(name, copies, balanced),
        "gymnasium SyncVectorEnv": lambda: sync(name, copies, balanced),
    }
    contestants |= {who: lambda component=component: block(component, copies, balanced) for who, component in ours.items()}
    figures: dict[str, float] = {}
    for _ in range(3):  # turns, so that a noisy neighbour disturbs all alike
        for who, make in contestants.items():
            figures[who] = min(figures.get(who, 1e9), measure(make(), copies, seconds / 3))
    for who, figure in figures.items():
        print(f"{name:<16}{copies:>7}{who:>26}{figure:>10.2f}{figure / figures['gymnasium loop']:>9.2f}", flush=True)


def measure(step: Callable[[], None], copies: int, seconds: float) -> float:
    """us per env step."""
    for _ in range(-(-2000 // copies)):
        step()
    steps, start = 0, time.thread_time()
    while (spent := time.thread_time() - start) < seconds:
        for _ in range(10):
            step()
        steps += 10
    return spent / steps / copies * 1e6


def loop(name: str, copies: int, balanced: bool) -> Callable[[], None]:
    """gymnasium.make as it comes, rows written into arrays."""
    envs = [gymnasium.make(name) for _ in range(copies)]
    rows = np.stack([env.reset(seed=i)[0] for i, env in enumerate(envs)]).astype(np.float32)
    rewards, ended = np.zeros(copies, np.float32), np.zeros(copies, bool)
    choose = chooser(envs[0].action_space, copies, balanced)

    def step() -> None:
        actions = choose(rows)
        for i, env in enumerate(envs):
            if ended[i]:
                rows[i], ended[i], rewards[i] = env.reset()[0], False, 0.0
                continue
            rows[i], rewards[i], terminated, truncated, _ = env.step(actions[i])
            ended[i] = terminated or truncated

    return step


def sync(name: str, copies: int, balanced: bool) -> Callable[[], None]:
    """gymnasium's SyncVectorEnv."""
    envs = gymnasium.make_vec(name, copies, vectorization_mode="sync")
    row, _ = envs.reset(seed=0)
    choose = chooser(envs.single_action_space, copies, balanced)
    state = {"row": row}

    def step() -> None:
        state["row"] = envs.step(choose(state["row"]))[0]

    return step


def block(component: Any, copies: int, balanced: bool) -> Callable[[], None]:
    """A BatchEnv, with the block that the engine hands over."""
    env = make_env(component, copies, Seeds(0))
    out = new_block(env.spec, copies)
    env.reset(out)
    (team,) = env.spec.teams
    rng = np.random.default_rng(0)
    random = [sample_actions(env.spec, out, rng) for _ in range(_ACTIONS)]
    tick = [0]

    def step() -> None:
        rows: Any = out.teams[team].obs
        tick[0] += 1
        actions = {team: balance(rows[:, 0])[:, None]} if balanced else random[tick[0] % _ACTIONS]
        renew(out)
        env.step(actions, out)

    return step


def chooser(space: Any, copies: int, balanced: bool) -> Callable[[Any], Any]:
    """Actions for the contestants of gymnasium."""
    if balanced:
        return balance
    rng = np.random.default_rng(0)
    random = [rng.uniform(space.low, space.high, (copies, *space.shape)).astype(np.float32) for _ in range(_ACTIONS)]
    tick = [0]

    def choose(_: Any) -> Any:
        tick[0] += 1
        return random[tick[0] % _ACTIONS]

    return choose


def balance(rows: Any) -> Any:
    """Keeps CartPole up: push towards where it falls."""
    return (rows[:, 2] + 0.5 * rows[:, 3] + 0.05 * rows[:, 1] > 0).astype(np.int64)


if __name__ == "__main__":
    main()
