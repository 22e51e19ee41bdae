"""What is known of env and policies once they were inspected: all specs of a run, as data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from srl.api.env import EnvSpec, action_leaves, mask_leaves
from srl.api.policy import PolicySpec
from srl.core.spec import Leaf, TreeSpec, from_data, lead, to_data
from srl.plan.plain import env_from_data, env_to_data, policy_from_data, policy_to_data
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
    signals: Mapping[str, TreeSpec]
    params: TreeSpec
    twin: str | None
    """A torch-free policy that acts the same."""
    memory_every: int | None
    needs_torch: bool
    """Whether acting needs torch."""
    source: str | None = None
    """The policy whose past versions it acts with."""
    chunk: int | None = None
    """Rows of the sequences that its algorithm cuts."""
    burn_in: int = 0

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
            unit["mask"] = lead(self._mask, agents)
        if "state" in self.reads and self.spec.state is not None:
            unit["state"] = self.spec.state
        if self.memory != {}:
            unit["memory"] = lead(self.memory, agents)
        if self.source is not None:
            unit |= {"faced": Leaf((), "int64"), "won": Leaf((), "float32")}  # how the env's last episode against it ended
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

    @property
    def published(self) -> TreeSpec:
        """One version of the parameters, with the clock of their trainer."""
        return {"params": self.params, "env_steps": Leaf((1,), "int64")}

    @property
    def _mask(self) -> TreeSpec:
        return mask_leaves(self.spec.action)


@dataclass(frozen=True, slots=True, kw_only=True)
class Derived:
    """All specs of a run: plain data to and from, so that it can be cached and sent."""

    env: EnvSpec
    policies: Mapping[str, PolicyInfo]
    streams: Mapping[str, StreamSpec] = field(default_factory=dict)

    @property
    def players(self) -> dict[str, PolicyInfo]:
        """The policies that `agents` names; past opponents only stand in for them."""
        return {name: info for name, info in self.policies.items() if info.source is None}

    def to_data(self) -> dict[str, Any]:
        """Plain data for msgpack."""
        return {
            "env": env_to_data(self.env),
            "policies": {
                name: {
                    "use": info.use,
                    "config": dict(info.config),
                    "spec": policy_to_data(info.spec),
                    "teams": list(info.teams),
                    "memory": to_data(info.memory),
                    "reads": list(info.reads),
                    "bounds": info.bounds,
                    "extra": {key: to_data(leaf) for key, leaf in info.extra.items()},
                    "signals": {key: to_data(leaf) for key, leaf in info.signals.items()},
                    "params": to_data(info.params),
                    "twin": info.twin,
                    "memory_every": info.memory_every,
                    "needs_torch": info.needs_torch,
                    "source": info.source,
                    "chunk": info.chunk,
                    "burn_in": info.burn_in,
                }
                for name, info in self.policies.items()
            },
            "streams": {
                name: {
                    "kind": spec.kind,
                    "via": spec.via,
                    "record": to_data(spec.record),
                    "answer": to_data(spec.answer),
                    "route": spec.route,
                    "compress": spec.compress,
                }
                for name, spec in self.streams.items()
            },
        }

    @staticmethod
    def from_data(data: Mapping[str, Any]) -> Derived:
        """The inverse of `to_data`."""
        policies = {}
        for name, info in data["policies"].items():
            trees: dict[str, Any] = {key: from_data(info[key]) for key in ("memory", "params")}
            groups: dict[str, Any] = {
                key: {leaf: from_data(spec) for leaf, spec in info[key].items()} for key in ("extra", "signals")
            }
            names = ("use", "config", "bounds", "twin", "memory_every", "needs_torch", "source", "chunk", "burn_in")
            same: dict[str, Any] = {key: info[key] for key in names}
            policies[name] = PolicyInfo(
                name=name,
                spec=policy_from_data(info["spec"]),
                teams=tuple(info["teams"]),
                reads=tuple(info["reads"]),
                **trees,
                **groups,
                **same,
            )
        streams = {
            name: StreamSpec(**{**spec, "name": name, "record": from_data(spec["record"]), "answer": from_data(spec["answer"])})
            for name, spec in data["streams"].items()
        }
        return Derived(env=env_from_data(data["env"]), policies=policies, streams=streams)
