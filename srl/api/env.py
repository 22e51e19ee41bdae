"""Environments: E copies of one env, stepped together and written in place. Torch-free.

A *team* is a set of agents that share spaces; a single-agent env is one team of one. Arrays of a team
are `[E, A, ...]`. An episode's last observation has a separate row (next-step autoreset): the step after
the end ignores the actions, resets, and writes the first observation of the next episode.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeAlias

import numpy as np

from srl.core.readings import Reading
from srl.core.seeds import Seeds
from srl.core.spec import Leaf, TreeSpec, lead, zeros
from srl.core.tree import Array, Tree


@dataclass(frozen=True, slots=True)
class Discrete:
    """One choice out of `n`, int64."""

    n: int


@dataclass(frozen=True, slots=True)
class MultiDiscrete:
    """One choice for each entry of `counts`, int64; masks are `[sum(counts)]`."""

    counts: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class MultiBinary:
    """`n` independent bits, int8."""

    n: int


@dataclass(frozen=True, slots=True)
class Box:
    """Real numbers between `low` and `high` (flat, row-major; may be infinite), float32."""

    shape: tuple[int, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]


TEAM = "agent"
"""The team, and its one agent, of a single-agent env."""

ActionSpec: TypeAlias = "Discrete | MultiDiscrete | MultiBinary | Box | dict[str, Any]"


def action_leaves(action: ActionSpec) -> TreeSpec:
    """The arrays that one agent's action is made of."""
    if isinstance(action, dict):
        return {key: action_leaves(part) for key, part in action.items()}
    if isinstance(action, Discrete):
        return Leaf((), "int64")
    if isinstance(action, MultiDiscrete):
        return Leaf((len(action.counts),), "int64")
    if isinstance(action, MultiBinary):
        return Leaf((action.n,), "int8")
    return Leaf(action.shape, "float32")


def mask_leaves(action: ActionSpec) -> TreeSpec:
    """The arrays of one agent's action mask: True where a choice is allowed. Boxes have none."""
    if isinstance(action, dict):
        parts = {key: mask_leaves(part) for key, part in action.items()}
        return {key: part for key, part in parts.items() if part != {}}
    if isinstance(action, Discrete):
        return Leaf((action.n,), "bool")
    if isinstance(action, MultiDiscrete):
        return Leaf((sum(action.counts),), "bool")
    if isinstance(action, MultiBinary):
        return Leaf((action.n,), "bool")
    return {}


@dataclass(frozen=True, slots=True, kw_only=True)
class TeamSpec:
    """What the agents of one team see and do."""

    agents: tuple[str, ...]
    obs: TreeSpec
    action: ActionSpec
    mask: bool = False
    """The env writes `mask`; a row without any choice trains the value, not the policy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvSpec:
    """What an env gives, for one copy of it."""

    teams: Mapping[str, TeamSpec]
    state: TreeSpec | None = None
    """Global state for critics and mixers, stored once per env."""
    signals: Mapping[str, TreeSpec] = field(default_factory=dict)
    """Extra recorded leaves per agent (cost, expert action)."""
    stats: tuple[str, ...] = ()
    """Numbers of a finished episode: `episode/<name>` in every log."""
    headline: tuple[str, ...] = ()
    """The main `stats`: the table shows them, and `srl eval --cross-play` shows the first of them."""
    labels: tuple[str, ...] = ()
    """Those of `stats` that identify an episode, such as its seed: they are not averaged or logged."""
    fps: float = 30.0
    """Pictures a second at which a film of it is as fast as the real thing."""
    about: str = ""
    """What it does to observations and rewards of the simulator: the plan says it."""


@dataclass(slots=True)
class TeamBlock:
    """One tick of one team: writable views, `[E, A, ...]`."""

    obs: Tree
    """Of row t+1."""
    mask: Tree | None
    """Of row t+1; arrives as it was left: the env writes all of it. None when the team has no masks."""
    active: Array
    """Of row t+1, bool: the agent is there. Arrives as True."""
    reward: Array
    """Of row t, float32. Arrives as zeros."""
    terminated: Array
    """Of row t, bool. Arrives as False."""
    truncated: Array
    """Of row t, bool. Arrives as False."""
    signals: Mapping[str, Tree]
    """Of row t."""


@dataclass(slots=True)
class Block:
    """One tick of E envs: what `reset` and `step` write."""

    teams: Mapping[str, TeamBlock]
    state: Tree | None
    """Of row t+1, `[E, ...]`."""
    stats: Array
    """`[E, len(spec.stats)]` float64; read for the envs whose episode ended with this step. nan: it has no such number."""


class BatchEnv(ABC):
    """E copies of one env. Its only flag duty is `active`; the engine derives `first` and `valid`."""

    spec: EnvSpec
    Config: ClassVar[type | None] = None
    """An optional frozen dataclass that the constructor's keywords are checked against."""

    def __init__(self, count: int, seeds: Seeds, **args: Any) -> None:
        self.count = count
        self.seeds = seeds

    @abstractmethod
    def reset(self, out: Block) -> None:
        """Start an episode in every copy; write obs, mask, active and state."""

    @abstractmethod
    def step(self, actions: Mapping[str, Tree], out: Block) -> None:
        """One tick. `actions[team]` is `[E, A, ...]`; actions of absent or just reset agents are ignored."""

    def whole(self, ended: Array) -> Array:
        """`[E]` bool: of the episodes that ended with this step, those that no failure of their copy cut off."""
        return ended

    def lost(self) -> Sequence[tuple[int, int, int]]:
        """Episodes that a failure cut off since the last `report`: (copy, steps since then, steps of the episode)."""
        return ()

    def report(self, reading: Reading) -> None:
        """Metrics of the copies, asked for with every slab."""

    def render(self, env: int) -> Array:
        """A picture `[height, width, 3]` uint8 of one copy."""
        raise NotImplementedError(f"{type(self).__name__} cannot render")

    def save(self) -> Tree | None:
        """All that `load` needs to continue exactly; None: not saveable."""
        return None

    def load(self, saved: Tree) -> None:
        """Go on from `save`."""
        raise NotImplementedError(f"{type(self).__name__} cannot be loaded")

    def close(self) -> None:
        """Release the resources of the simulator."""


def new_block(spec: EnvSpec, count: int) -> Block:
    """A block with memory of its own, in the state in which the engine hands blocks to an env."""
    teams = {}
    for name, team in spec.teams.items():
        size = len(team.agents)
        teams[name] = TeamBlock(
            obs=zeros(lead(team.obs, count, size)),
            mask=zeros(lead(mask_leaves(team.action), count, size)) if team.mask else None,
            active=np.ones((count, size), bool),
            reward=np.zeros((count, size), np.float32),
            terminated=np.zeros((count, size), bool),
            truncated=np.zeros((count, size), bool),
            signals={key: zeros(lead(leaf, count, size)) for key, leaf in spec.signals.items()},
        )
    state = zeros(lead(spec.state, count)) if spec.state is not None else None
    return Block(teams=teams, state=state, stats=np.zeros((count, len(spec.stats))))


def renew(block: Block) -> None:
    """Put a block back into the state in which the engine hands it to an env."""
    for team in block.teams.values():
        team.active[...] = True
        team.reward[...] = 0.0
        team.terminated[...] = False
        team.truncated[...] = False
