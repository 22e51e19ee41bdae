"""Expand short forms before the schema is applied."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

POLICY = "actor_critic"
"""What `policy:` is when it does not say, but for these algorithms."""
POLICIES: dict[str, dict[str, Any]] = {
    "sac": {"use": "squashed_gaussian"},
    "td3": {"use": "deterministic"},
    "ddpg": {"use": "deterministic"},
    "dqn": {"use": "q_network"},
    "r2d2": {"use": "recurrent_q"},
    "pqn": {"use": "q_network", "layer_norm": True},
}


def spelled_out(data: Mapping[str, Any]) -> dict[str, Any]:
    """The data with the default policy named, and `viewer: true` and `record: FOLDER` as sections."""
    plain = _policy_named(data)
    if isinstance(plain.get("viewer"), bool):
        plain["viewer"] = {} if plain["viewer"] else None
    if isinstance(plain.get("record"), str):
        plain["record"] = {"folder": plain["record"]}
    if isinstance(plain.get("policies"), Mapping):
        plain["policies"] = {
            name: _policy_named(part) if isinstance(part, Mapping) else part for name, part in plain["policies"].items()
        }
    return plain


def _policy_named(part: Mapping[str, Any]) -> dict[str, Any]:
    """`policy: {hidden: [64]}` is the default one of the algorithm with that setting."""
    policy, algorithm = part.get("policy"), part.get("algorithm")
    use = algorithm.get("use") if isinstance(algorithm, Mapping) else algorithm
    default = POLICIES.get(use, {"use": POLICY}) if isinstance(use, str) else {"use": POLICY}
    if isinstance(policy, Mapping) and "use" not in policy:
        return {**part, "policy": {**default, **policy}}
    if policy is None and default["use"] != POLICY:
        return {**part, "policy": default if len(default) > 1 else default["use"]}
    return dict(part)
