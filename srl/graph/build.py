"""Graphs from plain data and back: nodes and streams by name, as `graph:` in a file and graph.yaml have them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, TypeVar

from srl.config.yaml import dump as dump_yaml
from srl.config.yaml import parse
from srl.core.errors import UserError
from srl.core.load import dump, load
from srl.core.option import settings
from srl.core.where import Path, Provenance
from srl.graph.spec import Graph, Node, Stream

T = TypeVar("T", Node, Stream)


def wiring(data: Any, where: Provenance | None = None, path: Path = ("graph",)) -> tuple[tuple[Node, ...], tuple[Stream, ...]]:
    """`{nodes: {name: ...}, streams: {name: ...}}`; strict, with the place of what is wrong."""
    if not isinstance(data, Mapping) or set(data) != {"nodes", "streams"}:
        found = ", ".join(map(str, data)) if isinstance(data, Mapping) else repr(data)
        place = where.at(path) if where is not None else None
        raise UserError(
            f"'{'.'.join(map(str, path)) or 'graph'}' expects a mapping with nodes and streams, found {found}",
            *([("from", str(place))] if place is not None else []),
            code="E03",
        )
    nodes = _named(Node, data["nodes"], where, (*path, "nodes"))
    return nodes, _named(Stream, data["streams"], where, (*path, "streams"))


def graph_to_data(graph: Graph) -> dict[str, Any]:
    """Plain data that reads well: what equals its default is left out."""
    data: dict[str, Any] = dump(graph)
    data["env"] = _short(data["env"])
    data["policies"] = {name: _entry(entry) for name, entry in data["policies"].items()}
    data["nodes"] = {node.name: _unlike_default(node) for node in graph.nodes}
    data["streams"] = {stream.name: _unlike_default(stream) for stream in graph.streams}
    data["stop"] = {key: value for key, value in data["stop"].items() if value is not None}
    return data


def graph_from_data(data: Mapping[str, Any], where: Provenance | None = None) -> Graph:
    """The inverse of `graph_to_data`."""
    nodes, streams = wiring({key: data.get(key, {}) for key in ("nodes", "streams")}, where, ())
    return load(Graph, {**data, "nodes": nodes, "streams": streams}, where)


def graph_to_yaml(graph: Graph) -> str:
    """What graph.yaml of a run says."""
    return dump_yaml(graph_to_data(graph))


def graph_from_yaml(text: str, source: str = "graph.yaml") -> Graph:
    """The inverse of `graph_to_yaml`."""
    read = parse(text, source)
    if not isinstance(read.data, Mapping):
        raise UserError(f"cannot read {source}", ("expected", "a mapping with env, nodes and streams"), code="E11")
    return graph_from_data(read.data, read.provenance)


def _named(kind: type[T], data: Any, where: Provenance | None, path: Path) -> tuple[T, ...]:
    known = load(Mapping[str, Any], data, where, path=path)  # type: ignore[type-abstract]
    return tuple(
        load(kind, {"name": name, **load(Mapping[str, Any], item, where, path=(*path, name))}, where, path=(*path, name))  # type: ignore[type-abstract]
        for name, item in known.items()
    )


def _unlike_default(thing: Node | Stream) -> dict[str, Any]:
    plain = dump(thing)
    blank = type(thing)(**{one.name: plain[one.name] for one in fields(thing) if one.name in ("name", "worker", "kind")})
    default = dump(blank)
    return {
        one.name: plain[one.name]
        for one in settings(type(thing))
        if one.name != "name" and (one.name in ("worker", "kind") or plain[one.name] != default[one.name])
    }


def _entry(entry: dict[str, Any]) -> dict[str, Any]:
    short = {key: _short(value) if key in ("policy", "algorithm") else value for key, value in entry.items()}
    return {key: value for key, value in short.items() if value is not None}


def _short(component: dict[str, Any] | None) -> dict[str, Any] | None:
    if component is None or component["args"]:
        return component
    return {"use": component["use"]}
