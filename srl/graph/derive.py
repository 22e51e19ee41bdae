"""Everything that follows from a graph and a look at its env and policies: all specs, before anything starts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

import numpy as np

from srl.api.env import ActionSpec, Box, Discrete, EnvSpec, MultiBinary, MultiDiscrete, TeamSpec, action_leaves, mask_leaves
from srl.api.policy import Ask, PolicySpec
from srl.api.slab import SlabShape, slab_spec
from srl.core.errors import AgentWithoutPolicy, WiringError
from srl.core.registry import resolve
from srl.core.seeds import Rng, Seeds
from srl.core.spec import TreeSpec, from_data, lead, spec_of, to_data, zeros
from srl.graph.spec import Component, Graph, Node
from srl.streams.base import StreamSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyInfo:
    """What the engine knows of one policy."""

    name: str
    use: str
    config: Mapping[str, Any]
    spec: PolicySpec
    teams: tuple[str, ...]
    """Whose agents it acts for, in the order of its rows."""
    memory: TreeSpec
    reads: tuple[str, ...]
    bounds: str
    extra: Mapping[str, TreeSpec]
    """Recorded leaves of `Act.extra`: only those that the algorithm needs."""
    signals: tuple[str, ...]
    params: TreeSpec
    twin: str | None
    """A torch-free policy that acts the same."""
    memory_every: int | None

    @property
    def torch(self) -> bool:
        """Whether acting needs torch."""
        return self.twin is None and self.params != {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Derived:
    """All specs of a run: plain data to and from, so that it can be cached and sent."""

    env: EnvSpec
    policies: Mapping[str, PolicyInfo]
    streams: Mapping[str, StreamSpec] = field(default_factory=dict)
