"""Atari games by ale-py's vectorised env in C++: the preprocessing of Mnih et al. 2015, and the sticky actions of the id."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import gymnasium
import numpy as np

from srl.api.env import TEAM, BatchEnv, Block, Discrete, EnvSpec, TeamSpec
from srl.core.load import load, option
from srl.core.seeds import Seeds
from srl.core.spec import Leaf
from srl.core.tree import Array, Tree

FRAMES_PER_SECOND = 60


@dataclass(frozen=True, kw_only=True)
class AtariConfig:
    id: str = option(help="a gymnasium id, such as ALE/Pong-v5")
    frame_skip: int = option(4, "frames for which an action is repeated; the observation is the maximum of the last two", low=1)
    size: int = option(84, "height and width of the grey image", low=8, high=210)
    stack: int = option(4, "number of newest images in one observation", low=1, high=32)
    noops: int = option(30, "an episode begins after up to this many random frames without an action", low=0)
    fire: bool = option(True, "press fire at the start of a game that has this action")
    sticky: float | None = option(
        None, "probability that a frame repeats the previous action; null: as for the id, 0.25 for v5", low=0, high=1
    )
    lives: bool = option(True, "in training a lost life ends an episode; the next one continues the game")
    clip: bool = option(True, "in training every reward is -1, 0 or 1")
    all_actions: bool = option(False, "all 18 actions of the console, not only those that the game uses")
    threads: int = option(1, "threads that step the games of one group", low=1)


class Atari(BatchEnv):
    """E copies of one game. Evaluations and viewers play whole games for the game's own score, whatever training sees."""

    Config: ClassVar[type] = AtariConfig

    def __init__(self, count: int, seeds: Seeds, **args: Any) -> None:
        super().__init__(count, seeds)
        from ale_py.vector_env import AtariVectorEnv

        config: AtariConfig = load(AtariConfig, args, path="env")
        registered = gymnasium.spec(config.id).kwargs
        sticky = registered.get("repeat_action_probability", 0.0) if config.sticky is None else config.sticky
        trains = seeds.role == "env"
        self._lives, self._clip = config.lives and trains, config.clip and trains
        self._env = AtariVectorEnv(
            registered["game"], count, num_threads=min(config.threads, count), repeat_action_probability=sticky,
            full_action_space=config.all_actions, img_height=config.size, img_width=config.size, stack_num=1,
            frameskip=config.frame_skip, noop_max=config.noops, use_fire_reset=config.fire, reward_clipping=False,
        )  # fmt: skip
        actions: Any = self._env.single_action_space
        shape = (config.stack, config.size, config.size)
        team = TeamSpec(agents=(TEAM,), obs=Leaf(shape, "uint8"), action=Discrete(int(actions.n)))
        self.spec = EnvSpec(
            teams={TEAM: team},
            stats=("score",),
            headline=("score",),
            fps=FRAMES_PER_SECOND / config.frame_skip,
            about=_about(config, sticky),
        )
        self._stack = np.zeros((count, *shape), np.uint8)
        self._score = np.zeros(count)
        self._left = np.zeros(count, np.int32)
        """Lives."""
        self._over, self._lost, self._late = np.zeros(count, bool), np.zeros(count, bool), np.zeros(count, bool)
        """The last step ended the game, or only a life; or it was to begin an episode after a lost life, and ended the game."""

    def reset(self, out: Block) -> None:
        seeds = np.array([self.seeds.seed(env, 0) for env in range(self.count)])
        frames, info = self._env.reset(seed=seeds)
        self._left[...] = info["lives"]
        for flags in (self._over, self._lost, self._late):
            flags[...] = False
        self._score[...] = 0.0
        self._see(frames, np.ones(self.count, bool), out)

    def step(self, actions: Mapping[str, Tree], out: Block) -> None:
        begins, late = self._over | self._lost, self._late
        taken = np.where(begins, 0, actions[TEAM][:, 0])  # type: ignore[index, call-overload]
        frames, reward, terminated, truncated, info = self._env.step(taken)
        self._see(frames, begins, out)
        before = self._score.copy()
        self._score[self._over | late] = 0.0
        self._score += reward
        over, left = terminated | truncated, info["lives"]
        lost = late | (left < self._left) & ~over & ~begins if self._lives else late
        self._left[...] = left
        self._over, self._lost, self._late = over & ~begins, lost, over & begins
        team = out.teams[TEAM]
        team.terminated[:, 0] = terminated & ~begins | lost
        team.truncated[:, 0] = truncated & ~begins
        team.reward[:, 0] = np.where(begins | late, 0.0, np.sign(reward) if self._clip else reward)
        out.stats[:, 0] = np.where(late, before, np.where(over, self._score, np.nan))

    def render(self, env: int) -> Array:
        """What the policy sees last, four times as large."""
        picture = self._stack[env, -1].repeat(4, 0).repeat(4, 1)
        return np.repeat(picture[..., None], 3, 2)

    def close(self) -> None:
        """The games end with their last reference."""
        self.__dict__.pop("_env", None)

    def _see(self, frames: Array, begins: Array, out: Block) -> None:
        """Move the stacks by one picture; those of new episodes begin with nothing."""
        self._stack[:, :-1] = self._stack[:, 1:]
        self._stack[begins, :-1] = 0
        self._stack[:, -1] = frames[:, 0]
        obs: Any = out.teams[TEAM].obs
        obs[:, 0] = self._stack


def _about(config: AtariConfig, sticky: float) -> str:
    """The preprocessing, in words."""
    parts = [
        f"{config.stack} grey images of {config.size}x{config.size}, {config.frame_skip} frames per action",
        f"sticky actions {sticky:g}",
        f"up to {config.noops} no-ops at the start",
        *(["a lost life ends an episode"] if config.lives else []),
        *(["rewards clipped to -1, 0, 1"] if config.clip else []),
    ]
    return f"{', '.join(parts)} (in evaluations whole games and their score)"
