"""PettingZoo's AEC envs, whose agents act in turn, as parallel ones: a step of the env is a move of one of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import spaces
from pettingzoo.utils.conversions import aec_to_parallel, turn_based_aec_to_parallel_wrapper


def parallel(env: Any) -> Any:
    """By PettingZoo's own conversions: all agents at once where the env allows that, else one after the other."""
    return aec_to_parallel(env) if env.metadata.get("is_parallelizable", False) else ByTurns(env)


class ByTurns(turn_based_aec_to_parallel_wrapper):  # type: ignore[misc]
    """All agents see every move. Who waits may choose nothing: its mask is empty, so that its rows do not train the policy."""

    def reset(self, seed: int | None = None, options: Any = None) -> tuple[Any, Any]:
        observations, infos = super().reset(seed=seed, options=options)
        return self._masked(observations, infos)

    def step(self, actions: Mapping[Any, Any]) -> Any:
        observations, rewards, terminations, truncations, infos = super().step(dict(actions))
        observations, infos = self._masked(observations, infos)
        return observations, rewards, terminations, truncations, infos

    def _masked(self, observations: Any, infos: Any) -> tuple[Any, Any]:
        """Masks where the env has them: in the observation or in the info. Else one of its own in the info."""
        mover = self.aec_env.agent_selection if self.aec_env.agents else None
        shown, told = {}, {}
        for agent, row in observations.items():
            info = dict(infos.get(agent, {}))
            if isinstance(row, Mapping) and "action_mask" in row:
                row = row if agent == mover else {**row, "action_mask": np.zeros_like(row["action_mask"])}
            elif "action_mask" in info or (size := _choices(self.action_space(agent))):
                own = info.get("action_mask")
                full = np.ones(size, np.int8) if own is None else own
                info["action_mask"] = full if agent == mover else np.zeros_like(full)
            shown[agent], told[agent] = row, info
        return shown, told


def _choices(space: Any) -> int:
    """Columns of the mask of an action; none for real numbers."""
    if isinstance(space, spaces.Discrete):
        return int(space.n)
    return int(np.sum(space.nvec)) if isinstance(space, spaces.MultiDiscrete) else 0
