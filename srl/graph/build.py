"""Graphs from plain data and back: nodes and streams by name, as `graph:` in a file and graph.yaml have them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import MISSING
from typing import Any, TypeVar

from srl.config.yaml import dump as dump_yaml
from srl.config.yaml import parse
from srl.core.errors import UserError
from srl.core.load import dump, load
from srl.core.option import key_of, settings
from srl.core.where import Path, Provenance
from srl.graph.spec import Graph, Node, Stream

T = TypeVar("T", Node, Stream)


def wiring(data: Any, path: Path = ("graph",)) -> tuple[tuple[Node, ...], tuple[Stream, ...]]:
    """`{nodes: {name: ...}, streams: {name: ...}}`, read strictly."""
    if not isinstance(data, Mapping) or set(data) != {"nodes", "streams"}:
        found = ", ".join(map(str, data)) if isinstance(data, Mapping) else repr(data)
        name = ".".join(map(str, path)) or "graph"
        raise UserError(f"'{name}' expects a mapping with nodes and streams, found {found}", code="E03", path=path)
    return _named(Node, data["nodes"], (*path, "nodes")), _named(Stream, data["streams"], (*path, "streams"))


def wiring_to_data(nodes: Iterable[Node], streams: Iterable[Stream]) -> dict[str, Any]:
    """The inverse of `wiring`: what equals its default is left out."""
    return {"nodes": {one.name: _sparse(one) for one in nodes}, "streams": {one.name: _sparse(one) for one in streams}}


def graph_to_data(graph: Graph) -> dict[str, Any]:
    """Plain data that reads well."""
    policies = {name: {key: value for key, value in dump(one).items() if value} for name, one in graph.policies.items()}
    stop = {key: value for key, value in dump(graph.stop).items() if value is not None}
    return {**dump(graph), "policies": policies, "stop": stop, **wiring_to_data(graph.nodes, graph.streams)}


def graph_from_data(data: Mapping[str, Any], where: Provenance | None = None) -> Graph:
    """The inverse of `graph_to_data`."""
    try:
        nodes, streams = wiring({key: data.get(key, {}) for key in ("nodes", "streams")}, ())
        return load(Graph, {**data, "nodes": nodes, "streams": streams})
    except UserError as error:
        error.at(where)
        raise


def graph_to_yaml(graph: Graph) -> str:
    """The text of graph.yaml in a run folder."""
    return dump_yaml(graph_to_data(graph))


def graph_from_yaml(text: str, source: str = "graph.yaml") -> Graph:
    """The inverse of `graph_to_yaml`."""
    read = parse(text, source)
    if not isinstance(read.data, Mapping):
        raise UserError(f"cannot read {source}", ("expected", "a mapping with env, nodes and streams"), code="E11")
    return graph_from_data(read.data, read.provenance)


def _named(kind: type[T], data: Any, path: Path) -> tuple[T, ...]:
    known = load(Mapping[str, Mapping[str, Any]], data, path=path)  # type: ignore[type-abstract]
    return tuple(load(kind, {**item, "name": name}, path=(*path, name)) for name, item in known.items())


def _sparse(thing: Node | Stream) -> dict[str, Any]:
    plain = dump(thing)
    data = {}
    for one in settings(type(thing)):
        default = one.default_factory() if one.default_factory is not MISSING else one.default
        if one.name != "name" and getattr(thing, one.name) != default:
            data[key_of(one)] = plain[key_of(one)]
    return data
