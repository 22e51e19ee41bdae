"""Specs of envs and policies as plain data, for msgpack and JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from srl.api.env import ActionSpec, Box, Discrete, EnvSpec, MultiBinary, MultiDiscrete, TeamSpec
from srl.api.policy import PolicySpec
from srl.core.spec import from_data, to_data


def action_to_data(action: ActionSpec) -> Any:
    """`["discrete", n]` and the like; a mapping for a dict of actions."""
    if isinstance(action, dict):
        return {key: action_to_data(part) for key, part in action.items()}
    if isinstance(action, Discrete):
        return ["discrete", action.n]
    if isinstance(action, MultiDiscrete):
        return ["multi_discrete", list(action.counts)]
    if isinstance(action, MultiBinary):
        return ["multi_binary", action.n]
    return ["box", list(action.shape), list(action.low), list(action.high)]


def action_from_data(data: Any) -> ActionSpec:
    """The inverse of `action_to_data`."""
    if isinstance(data, Mapping):
        return {key: action_from_data(part) for key, part in data.items()}
    kind, *sizes = data
    if kind == "discrete":
        return Discrete(sizes[0])
    if kind == "multi_discrete":
        return MultiDiscrete(tuple(sizes[0]))
    if kind == "multi_binary":
        return MultiBinary(sizes[0])
    shape, low, high = sizes
    return Box(tuple(shape), tuple(low), tuple(high))


def env_to_data(env: EnvSpec) -> dict[str, Any]:
    return {
        "teams": {
            name: {
                "agents": list(team.agents),
                "obs": to_data(team.obs),
                "action": action_to_data(team.action),
                "mask": team.mask,
            }
            for name, team in env.teams.items()
        },
        "state": None if env.state is None else to_data(env.state),
        "signals": {name: to_data(leaf) for name, leaf in env.signals.items()},
        "stats": list(env.stats),
        "headline": list(env.headline),
        "labels": list(env.labels),
        "fps": env.fps,
    }


def env_from_data(data: Mapping[str, Any]) -> EnvSpec:
    teams = {
        name: TeamSpec(
            agents=tuple(team["agents"]),
            obs=from_data(team["obs"]),
            action=action_from_data(team["action"]),
            mask=team["mask"],
        )
        for name, team in data["teams"].items()
    }
    return EnvSpec(
        teams=teams,
        state=None if data["state"] is None else from_data(data["state"]),
        signals={name: from_data(leaf) for name, leaf in data["signals"].items()},
        stats=tuple(data["stats"]),
        headline=tuple(data["headline"]),
        labels=tuple(data["labels"]),
        fps=data["fps"],
    )


def policy_to_data(spec: PolicySpec) -> dict[str, Any]:
    return {
        "obs": to_data(spec.obs),
        "action": action_to_data(spec.action),
        "mask": spec.mask,
        "state": None if spec.state is None else to_data(spec.state),
        "agents": spec.agents,
    }


def policy_from_data(data: Mapping[str, Any]) -> PolicySpec:
    return PolicySpec(
        obs=from_data(data["obs"]),
        action=action_from_data(data["action"]),
        mask=data["mask"],
        state=None if data["state"] is None else from_data(data["state"]),
        agents=data["agents"],
    )
