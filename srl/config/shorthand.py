"""Expand short forms before the schema is applied."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from srl.core.where import Path, Provenance

POLICY = "actor_critic"
"""What `policy:` is when it does not say, but for these algorithms."""
POLICIES = {
    "sac": "squashed_gaussian",
    "td3": "deterministic",
    "ddpg": "deterministic",
    "dqn": "q_network",
    "r2d2": "recurrent_q",
}


def spelled_out(data: Mapping[str, Any], where: Provenance | None) -> tuple[dict[str, Any], Provenance | None]:
    """With the default policy named, `viewer: true` as a section, and `streams: {params: {main: ...}}` as `params.main`."""
    plain = _policy_named(data)
    if isinstance(plain.get("viewer"), bool):
        plain["viewer"] = {} if plain["viewer"] else None
    if isinstance(plain.get("policies"), Mapping):
        plain["policies"] = {
            name: _policy_named(part) if isinstance(part, Mapping) else part for name, part in plain["policies"].items()
        }
    streams = plain.get("streams")
    if not isinstance(streams, Mapping):
        return plain, where
    places = Provenance(dict(where)) if where is not None else None
    joined: dict[str, Any] = {}
    for path, settings in _ends(streams):
        name = ".".join(path)
        known = joined.get(name)
        joined[name] = {**known, **settings} if isinstance(known, Mapping) and isinstance(settings, Mapping) else settings
        if places is not None and where is not None and len(path) > 1:
            places.graft(("streams", ".".join(path)), where.below(("streams", *path)))
    plain["streams"] = joined
    return plain, places


def _policy_named(part: Mapping[str, Any]) -> dict[str, Any]:
    """`policy: {hidden: [64]}` is the default one of the algorithm with that setting."""
    policy, algorithm = part.get("policy"), part.get("algorithm")
    use = algorithm.get("use") if isinstance(algorithm, Mapping) else algorithm
    default = POLICIES.get(use, POLICY) if isinstance(use, str) else POLICY
    if isinstance(policy, Mapping) and "use" not in policy:
        return {**part, "policy": {"use": default, **policy}}
    if policy is None and default != POLICY:
        return {**part, "policy": default}
    return dict(part)


def _ends(streams: Mapping[str, Any], path: Path = ()) -> list[tuple[tuple[str, ...], Any]]:
    """Names that dots have split, as `streams.params.main.via=zmq` does: a mapping of mappings is no stream's settings."""
    found: list[tuple[tuple[str, ...], Any]] = []
    for name, settings in streams.items():
        here = (*map(str, path), str(name))
        if isinstance(settings, Mapping) and settings and all(isinstance(one, Mapping) for one in settings.values()):
            found += _ends(settings, here)
        else:
            found.append((here, settings))
    return found
