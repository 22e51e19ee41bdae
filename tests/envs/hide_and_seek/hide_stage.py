"""One hand-made world of the real environment, for tests of single rules."""

from __future__ import annotations

from typing import Any

import numpy as np

from srl.api.env import new_block, renew
from srl.core.seeds import Seeds
from srl.envs.hide_and_seek.env import HideAndSeekVec
from srl.envs.hide_and_seek.layout import CUBE, Layout

STAY = (5, 5, 5, 0, 0)
EAST, WEST, NORTH = (10, 5, 5, 0, 0), (0, 5, 5, 0, 0), (5, 10, 5, 0, 0)
GRAB, LOCK = (5, 5, 5, 1, 0), (5, 5, 5, 0, 1)
EAST_GRAB, NORTH_GRAB, TURN_GRAB = (10, 5, 5, 1, 0), (5, 10, 5, 1, 0), (5, 5, 10, 1, 0)


class Stage:
    """Agents and objects at given centres, no walls but those named; by default without preparation."""

    def __init__(self, *, preset: str = "quadrant", **overrides: Any) -> None:
        self.env = HideAndSeekVec(1, Seeds(0), preset=preset, **{"preparation": 0.0, "rectangle": None, **overrides})
        self.block = new_block(self.env.spec, 1)
        self.config, self.scene, self.poses = self.env.config, self.env.scene, self.env.poses

    def build(self, *, agents: Any, objects: Any = (), walls: Any = (), sizes: Any = None, room: Any = (0, 0, 0, 0)) -> Stage:
        """`agents` and `objects`: x and y, or None for one that is not there; `walls`: centre x, y, size x, y, z."""
        things = self.config.boxes + self.config.ramps
        agents = [*agents, *[None] * (self.config.agents - len(agents))]
        objects = [*objects, *[None] * (things - len(objects))]
        world = Layout(
            walls=np.reshape(np.array(walls, float), (-1, 5)),
            agents=np.array([place or (0, 0) for place in agents], float),
            agent_there=np.array([place is not None for place in agents]),
            objects=np.array([place or (0, 0) for place in objects], float).reshape(-1, 2),
            object_there=np.array([place is not None for place in objects], bool),
            sizes=np.array(sizes if sizes is not None else [CUBE] * things, float).reshape(-1, 3),
            sites=np.full((self.config.objects.sites[1], 2), np.nan),
            cylinder=None,
            room=room,
        )
        self.env.place([world], self.block)
        return self

    def turn(self, agent: int, towards: tuple[float, float]) -> Stage:
        """Face a point; takes effect on what is seen at the next step, or at `look`."""
        x, y = np.subtract(towards, self.poses.agents[0, agent, :2])
        self.poses.agents[0, agent, 3] = np.arctan2(x, -y)
        return self

    def look(self) -> Stage:
        self.env._senses.update(self.env._worlds.cast)
        return self

    def step(self, *actions: Any, times: int = 1) -> Stage:
        """One action for each of the first agents; the rest stay."""
        every = np.array([[*actions, *[STAY] * (self.config.agents - len(actions))]])
        hiders = self.config.hiders
        parts = {"hider": every[:, :hiders], "seeker": every[:, hiders:]}
        for _ in range(times):
            renew(self.block)
            self.env.step({name: parts[name] for name in self.env.spec.teams}, self.block)
        return self

    @property
    def agents(self) -> Any:
        return self.poses.agents[0]

    @property
    def objects(self) -> Any:
        return self.poses.objects[0]

    def reward(self, team: str) -> list[float]:
        return self.block.teams[team].reward[0].tolist()


def random_actions(env: HideAndSeekVec, rng: np.random.Generator) -> dict[str, Any]:
    return {name: rng.integers(0, (11, 11, 11, 2, 2), (env.count, len(team.agents), 5)) for name, team in env.spec.teams.items()}
