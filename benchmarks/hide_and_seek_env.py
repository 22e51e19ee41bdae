"""Speed and memory of the hide-and-seek environment on one core: `python benchmarks/hide_and_seek_env.py [--quick]`."""

from __future__ import annotations

import argparse
import resource
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from srl.api.env import Block, new_block, renew
from srl.core.seeds import Seeds, generator
from srl.envs.hide_and_seek.env import HideAndSeekVec
from srl.envs.hide_and_seek.layout import layout

WORLDS = 32
GAMES: dict[str, dict[str, Any]] = {
    "mini 1v1": {"preset": "mini"},
    "quadrant 2v2": {"preset": "quadrant"},
    "full 3v3, 9 boxes": {"preset": "full", "hiders": (3, 3), "seekers": (3, 3), "boxes": (9, 9)},
}
TARGETS = {
    ("quadrant 2v2", "exact"): 14_000,
    ("full 3v3, 9 boxes", "exact"): 7_500,
    ("quadrant 2v2", "fast"): 24_000,
    ("full 3v3, 9 boxes", "fast"): 14_000,
}


class Clock:
    """Adds up the processor time of a method by standing in for it."""

    def __init__(self, method: Callable[..., Any]) -> None:
        self.method, self.seconds = method, 0.0

    def __call__(self, *args: Any) -> Any:
        begin = time.process_time()
        result = self.method(*args)
        self.seconds += time.process_time() - begin
        return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one repetition instead of five")
    repetitions = 1 if parser.parse_args().quick else 5
    header = f"{'game':20} {'physics':7} {'us/step':>8} {'agent-steps/s':>14} {'wall':>9} {'target':>7}"
    print(f"{header}  physics  rays  start  glue   reset")
    for game, args in GAMES.items():
        for physics in ("exact", "fast"):
            print(measure(game, physics, args, repetitions))
    print(f"peak memory of this process: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MB (target < 200)")


def measure(game: str, physics: str, args: dict[str, Any], repetitions: int) -> str:
    """One line: the best of the repetitions, each two whole episodes with their resets; random actions, held for 4 steps."""
    env = HideAndSeekVec(WORLDS, Seeds(0), **{**args, "physics": physics})
    block = new_block(env.spec, WORLDS)
    env.reset(block)
    senses, lidar = env._senses, env._senses._lidar
    step, sight, flat, start = Clock(env._worlds.step), Clock(senses._free), Clock(lidar.measure), Clock(env._start)
    env._worlds.step, senses._free, lidar.measure, env._start = step, sight, flat, start  # type: ignore[method-assign]
    best: tuple[float, float, tuple[float, ...]] | None = None
    steps = 2 * (env.config.timing.horizon + 1)
    for repetition in range(repetitions):
        step.seconds = sight.seconds = flat.seconds = start.seconds = 0.0
        processor, wall = _run(env, block, steps, np.random.default_rng(repetition))
        shares = (step.seconds, sight.seconds + flat.seconds, start.seconds)
        if best is None or processor < best[0]:
            best = (processor, wall, tuple(share / processor for share in shares))
    assert best is not None
    processor, wall, (physics_share, ray_share, start_share) = best
    rate = WORLDS * env.config.agents * steps
    glue = 1 - physics_share - ray_share - start_share
    env.close()
    return (
        f"{game:20} {physics:7} {processor / steps / WORLDS * 1e6:8.0f} {rate / processor:14,.0f} {rate / wall:9,.0f} "
        f"{TARGETS.get((game, physics), 0):7,}  {physics_share:6.1%} {ray_share:6.1%} {start_share:5.1%} {glue:6.1%} "
        f"{reset_time(env):5.2f} ms"
    )


def reset_time(env: HideAndSeekVec, rounds: int = 5) -> float:
    """Milliseconds for one new world: layout and writing."""
    ids, times = np.arange(env.count), []
    for turn in range(rounds):
        begin = time.process_time()
        layouts = [layout(env.config, generator(turn, "bench", world)) for world in range(env.count)]
        env._worlds.write(ids, layouts)
        env.scene.start(ids, layouts, env.poses, 0)
        times.append(time.process_time() - begin)
    return min(times) / env.count * 1e3


def _run(env: HideAndSeekVec, block: Block, steps: int, rng: np.random.Generator) -> tuple[float, float]:
    actions: dict[str, Any] = {}
    begin, wall = time.process_time(), time.perf_counter()
    for tick in range(steps):
        if tick % 4 == 0:
            actions = {
                name: rng.integers(0, (11, 11, 11, 2, 2), (env.count, len(team.agents), 5))
                for name, team in env.spec.teams.items()
            }
        renew(block)
        env.step(actions, block)
    return time.process_time() - begin, time.perf_counter() - wall


if __name__ == "__main__":
    main()
