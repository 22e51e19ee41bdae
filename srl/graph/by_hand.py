"""A graph stated by hand: `graph:` in a file. What only a layout reads is refused beside it, not passed over."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import Any

from srl.config.experiment import SECTIONS, Experiment
from srl.core.errors import UserError
from srl.core.load import dump
from srl.core.option import written
from srl.core.where import Path, Provenance, dotted
from srl.graph.build import wiring
from srl.graph.spec import Node, Stream

_OF_LAYOUTS = {
    "sampling": "actor",
    "layout": None,
    "staleness": "trainer",
    "evaluation": "evaluator",
    "opponents": None,
    "device": "trainer",
    "actors": "actor",
    "inference": "policy",
    "trainer": "trainer",
    "evaluator": "evaluator",
}
"""What only a layout reads, and the worker whose nodes say the same in a graph."""
_OTHERWISE = {
    ("sampling", "envs"): "args.envs=... (envs of each group)",
    ("sampling", "workers"): "count={value}",
    ("staleness", "max"): "args.staleness={value}",
}


def by_hand(experiment: Experiment, where: Provenance | None) -> tuple[tuple[Node, ...], tuple[Stream, ...]]:
    """The nodes and streams that the file states."""
    nodes, streams = wiring(experiment.graph, where)
    said = list(_meaningless(experiment))
    if said:
        raise _no_effect(said, nodes, where)
    return nodes, streams


def _meaningless(experiment: Experiment) -> Iterator[tuple[Path, Any]]:
    """Settings of layouts that are not at their defaults. A run writes all of its settings down: defaults are no claim."""
    blank = Experiment(env=experiment.env)
    for section in _OF_LAYOUTS:
        mine, default = dump(getattr(experiment, section)), dump(getattr(blank, section))
        if mine == default:
            continue
        if not isinstance(mine, Mapping):
            yield (section,), mine
            continue
        usual = dump(SECTIONS[section]())
        unlike: list[tuple[Path, Any]] = [((section, key), value) for key, value in mine.items() if value != usual[key]]
        yield from unlike or [((section,), mine)]


def _no_effect(said: list[tuple[Path, Any]], nodes: tuple[Node, ...], where: Provenance | None) -> UserError:
    (path, value), *others = said
    error = UserError(f"'{dotted(path)}' has no effect beside `graph:`", code="E11")
    if (place := _place(path, where)) is not None:
        error.add("from", place)
    if others:
        names = (f"{dotted(one)} ({place})" if (place := _place(one, where)) else dotted(one) for one, _ in others)
        error.add("also", ", ".join(names))
    error.add("try", _instead(path, value, nodes))
    return error


def _instead(path: Path, value: Any, nodes: tuple[Node, ...]) -> str:
    worker = _OF_LAYOUTS[str(path[0])]
    if worker is None:
        return "take it back, or ~graph"
    node = next((node for node in nodes if node.worker == worker), None)
    if node is None:
        return f"a node with worker: {worker} under graph.nodes"
    own = path[-1] in {one.name for one in fields(Node)}
    form = _OTHERWISE.get((path[0], path[-1]), f"{'' if own else 'args.'}{path[-1]}={{value}}")  # type: ignore[arg-type]
    return f"{dotted(('graph', 'nodes', node.name))}.{form.format(value=written(value))}"


def _place(path: Path, where: Provenance | None) -> str | None:
    place = where.at(path) if where is not None else None
    return str(place) if place is not None else None
