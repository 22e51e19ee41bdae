"""One world as a PettingZoo ParallelEnv: `hider_0`, ..., `seeker_0`, ...; needs the pettingzoo package."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
from gymnasium import spaces
from pettingzoo import ParallelEnv

from srl.api.env import Block, TeamBlock, new_block, renew
from srl.core.seeds import Seeds
from srl.core.tree import Array
from srl.envs.hide_and_seek.env import HideAndSeekVec
from srl.envs.hide_and_seek.rules import COUNTS, NEUTRAL

Obs = dict[str, Array]


class HideAndSeek(ParallelEnv[str, Obs, Array]):  # type: ignore[misc]
    """The arguments are those of `HideAndSeekVec`. The action mask is in `infos[agent]["action_mask"]`."""

    metadata = {"name": "hide_and_seek_v0", "render_modes": ["rgb_array"], "is_parallelizable": True}

    def __init__(self, preset: str = "mini", render_mode: str | None = None, seed: int = 0, **args: Any) -> None:
        self.render_mode = render_mode
        self._vec = HideAndSeekVec(1, Seeds(seed), preset=preset, **args)
        self._block: Block = new_block(self._vec.spec, 1)
        self._place = {
            agent: (name, index) for name, team in self._vec.spec.teams.items() for index, agent in enumerate(team.agents)
        }
        self.possible_agents = list(self._place)
        self.agents: list[str] = []
        self._obs_space = spaces.Dict(
            {
                key: spaces.Box(-np.inf, np.inf, leaf.shape, np.float32)
                for key, leaf in cast("dict[str, Any]", self._vec.spec.teams["hider"].obs).items()
            }
        )
        self._action_space = spaces.MultiDiscrete(list(COUNTS))
        self.observation_spaces = dict.fromkeys(self.possible_agents, self._obs_space)
        self.action_spaces = dict.fromkeys(self.possible_agents, self._action_space)

    def observation_space(self, agent: str) -> spaces.Space[Any]:
        return self._obs_space

    def action_space(self, agent: str) -> spaces.Space[Any]:
        return self._action_space

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[dict[str, Obs], dict[str, Any]]:
        """Start an episode. The same seed and actions reproduce it."""
        renew(self._block)
        if seed is None:
            self._vec.reset(self._block)
        else:
            self._vec.replay([seed], self._block)
        self.agents = [agent for agent in self.possible_agents if self._of(agent, "active")]
        return self._observations(self.agents), self._infos(self.agents)

    def step(
        self, actions: dict[str, Array]
    ) -> tuple[dict[str, Obs], dict[str, float], dict[str, bool], dict[str, bool], dict[str, Any]]:
        renew(self._block)
        self._vec.step(self._joint(actions), self._block)
        acted = self.agents
        rewards = {agent: float(self._of(agent, "reward")) for agent in acted}
        terminated = {agent: bool(self._of(agent, "terminated")) for agent in acted}
        truncated = {agent: bool(self._of(agent, "truncated")) for agent in acted}
        infos = self._infos(acted)
        if any(terminated.values()) or any(truncated.values()):
            numbers = dict(zip(self._vec.spec.stats, self._block.stats[0].tolist(), strict=True))
            infos = {agent: {**info, "episode_stats": numbers} for agent, info in infos.items()}
            self.agents = []
        return self._observations(acted), rewards, terminated, truncated, infos

    def render(self) -> Array:
        return self._vec.render(0)

    def state(self) -> Array:
        """All poses of the world, flat."""
        poses = self._vec.poses
        return np.concatenate([poses.agents[0].ravel(), poses.objects[0].ravel()]).astype(np.float32)

    def close(self) -> None:
        self._vec.close()

    def _joint(self, actions: dict[str, Array]) -> dict[str, Array]:
        joint = {name: np.tile(np.array(NEUTRAL), (1, len(team.agents), 1)) for name, team in self._vec.spec.teams.items()}
        for agent, action in actions.items():
            name, index = self._place[agent]
            joint[name][0, index] = action
        return joint

    def _team(self, agent: str) -> tuple[TeamBlock, int]:
        name, index = self._place[agent]
        return self._block.teams[name], index

    def _of(self, agent: str, leaf: str) -> Any:
        block, index = self._team(agent)
        return getattr(block, leaf)[0, index]

    def _observations(self, agents: list[str]) -> dict[str, Obs]:
        found = {}
        for agent in agents:
            block, index = self._team(agent)
            found[agent] = {key: leaf[0, index].copy() for key, leaf in cast("Obs", block.obs).items()}
        return found

    def _infos(self, agents: list[str]) -> dict[str, dict[str, Any]]:
        return {agent: {"action_mask": self._of(agent, "mask").copy()} for agent in agents}
