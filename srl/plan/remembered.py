"""The specs of a run, remembered: the look at env and policies costs seconds, and gives the same for the same things."""

from __future__ import annotations

import hashlib
import json
import os
from importlib import metadata
from pathlib import Path
from typing import Any

import msgpack

from srl.core.load import dump
from srl.core.registry import REGISTRIES
from srl.graph.spec import Graph
from srl.plan.derive import derive, derive_in_child, with_streams
from srl.plan.specs import Derived

_PACKAGES = ("numpy", "torch", "gymnasium", "mujoco-core", "pettingzoo")


def derived_specs(graph: Graph) -> Derived:
    """From memory where nothing can have changed, else by a look in a process of its own."""
    if graph.mode == "inline" and held_here(graph):
        return derive(graph)  # no other process knows these classes
    key = spec_key(graph)
    remembered = _remembered(graph, key)
    if remembered is not None:
        return remembered
    derived = derive_in_child(graph)
    if key is None:
        return derived
    file = _file(key)
    file.parent.mkdir(parents=True, exist_ok=True)
    aside = file.with_suffix(f".{os.getpid()}")
    aside.write_bytes(msgpack.packb(derived.to_data()))
    aside.replace(file)
    return derived


def spec_key(graph: Graph) -> str | None:
    """What the specs depend on; None where code of the user takes part, which may change at any time."""
    if graph.plugins or any(":" in name for _, name in _names(graph)) or held_here(graph):
        return None
    facts = [dump(graph.env), dump(graph.policies), dump(graph.agents), _versions(), _newest_source()]
    return hashlib.sha256(json.dumps(facts, sort_keys=True, default=str).encode()).hexdigest()[:24]


def held_here(graph: Graph) -> list[Any]:
    """The classes that this process registered itself and that the graph names."""
    return [held for kind, name in _names(graph) if (held := REGISTRIES[kind].held(name)) is not None]


def _names(graph: Graph) -> list[tuple[str, str]]:
    """Everything that is imported for this graph, as kind and name."""
    names = [("env", graph.env.use), *(("worker", node.worker) for node in graph.nodes)]
    for entry in graph.policies.values():
        names += [("policy", entry.policy.use), *([("algorithm", entry.algorithm.use)] if entry.algorithm else [])]
    return names


def _versions() -> list[str]:
    found = []
    for package in _PACKAGES:
        try:
            found.append(f"{package} {metadata.version(package)}")
        except metadata.PackageNotFoundError:
            continue
    return found


def _newest_source() -> list[float]:
    """Changes whenever a file of this package does."""
    files = list(Path(__file__).parents[1].rglob("*.py"))
    return [float(len(files)), max(file.stat().st_mtime for file in files)]


def _remembered(graph: Graph, key: str | None) -> Derived | None:
    if key is None:
        return None
    try:
        return with_streams(graph, Derived.from_data(msgpack.unpackb(_file(key).read_bytes())))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _file(key: str) -> Path:
    return _cache() / f"{key}.msgpack"


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "srl" / "specs"
