"""The result of inspecting env and policies: all specs of a run, as data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from srl.api.env import Box, Discrete, EnvSpec, MultiBinary, MultiDiscrete, TeamSpec, action_leaves, mask_leaves
from srl.api.policy import PolicySpec
from srl.api.slab import Replayed, SlabShape, Window, slab_spec
from srl.core.spec import Leaf, TreeSpec, from_plain, lead, to_plain
from srl.streams.base import StreamSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyInfo:
    """Everything that the engine knows about one policy."""

    name: str
    use: str
    config: Mapping[str, Any]
    spec: PolicySpec
    teams: tuple[str, ...]
    """The teams that it acts for, in the order of its rows."""
    memory: TreeSpec
    reads: tuple[str, ...]
    bounds: str
    extra: Mapping[str, TreeSpec]
    """Recorded leaves of `Act.extra`: only those that the algorithm needs."""
    signals: Mapping[str, TreeSpec]
    params: TreeSpec
    twin: str | None
    """A torch-free policy that acts the same."""
    needs_torch: bool
    """Whether acting needs torch."""
    window: Window = field(default_factory=Window)
    """The rows that its algorithm trains together."""
    replay: Replayed | None = None
    """What its algorithm asks of a replay; None: it is on-policy, or does not learn."""

    @property
    def question(self) -> TreeSpec:
        """One env's rows as they are asked."""
        agents = self.spec.agents
        unit: dict[str, Any] = {
            "first": Leaf((agents,), "bool"),
            "ids": Leaf((agents,), "int64"),
            "keys": Leaf((agents,), "uint64"),
        }
        if "obs" in self.reads:
            unit["obs"] = lead(self.spec.obs, agents)
        if "mask" in self.reads and self.spec.mask:
            unit["mask"] = lead(mask_leaves(self.spec.action), agents)
        if "state" in self.reads and self.spec.state is not None:
            unit["state"] = self.spec.state
        if self.memory != {}:
            unit["memory"] = lead(self.memory, agents)
        return unit

    @property
    def answer(self) -> TreeSpec:
        """One env's rows as they are answered."""
        agents = self.spec.agents
        unit: dict[str, Any] = {"action": lead(action_leaves(self.spec.action), agents)}
        if self.memory != {}:
            unit["memory"] = lead(self.memory, agents)
        if self.extra:
            unit["extra"] = {name: lead(leaf, agents) for name, leaf in self.extra.items()}
        return unit

    def slab(self, steps: int, envs: int) -> dict[str, Any]:
        """What actors record in so many steps of a group of envs."""
        shape = SlabShape(steps=steps, envs=envs, agents=self.spec.agents, memory_every=self.window.memory_every)
        origin = self.replay is not None
        return slab_spec(shape, self.spec, memory=self.memory, extra=self.extra, signals=self.signals, origin=origin)

    @property
    def published(self) -> TreeSpec:
        """One version of the parameters, with the clock of their trainer."""
        return {"params": self.params, "env_steps": Leaf((1,), "int64")}


@dataclass(frozen=True, slots=True, kw_only=True)
class Derived:
    """All specs of a run: plain data to and from, so that it can be cached and sent."""

    env: EnvSpec
    policies: Mapping[str, PolicyInfo]
    streams: Mapping[str, StreamSpec] = field(default_factory=dict)

    def to_plain(self) -> dict[str, Any]:
        return cast("dict[str, Any]", to_plain(self))

    @staticmethod
    def from_plain(data: Mapping[str, Any]) -> Derived:
        """The inverse of `to_plain`."""
        derived = from_plain(data, _CLASSES)
        if not isinstance(derived, Derived):
            raise ValueError("not the specs of a run")
        return derived


_CLASSES = (
    Derived, PolicyInfo, StreamSpec, EnvSpec, TeamSpec, PolicySpec, Leaf, Discrete, MultiDiscrete, MultiBinary, Box, Window,
    Replayed,
)  # fmt: skip
