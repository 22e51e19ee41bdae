"""An env that leaves the cores to others, for tests of what runs beside training at a low priority."""

from __future__ import annotations

import time
from typing import Any

from gymnasium.envs.classic_control import CartPoleEnv

CALM = "tests.calm:Calm"


class Calm(CartPoleEnv):
    """CartPole for at most 20 steps, mostly asleep."""

    def reset(self, **how: Any) -> Any:
        self._left = 20
        return super().reset(**how)

    def step(self, action: Any) -> Any:
        time.sleep(0.001)
        self._left -= 1
        obs, reward, terminated, _, info = super().step(action)
        return obs, reward, terminated, self._left <= 0, info
