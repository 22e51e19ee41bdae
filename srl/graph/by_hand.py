"""A graph by hand: `graph:` in a file. Settings that only a layout reads are refused beside it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from srl.config.experiment import OF_LAYOUT, SECTIONS, Experiment
from srl.core.errors import UserError
from srl.core.load import dump
from srl.core.where import Path, Provenance, dotted
from srl.graph.build import wiring
from srl.graph.spec import Node, Stream


def by_hand(experiment: Experiment, where: Provenance | None) -> tuple[tuple[Node, ...], tuple[Stream, ...]]:
    """The nodes and streams that the file states."""
    nodes, streams = wiring(experiment.graph)
    path, *others = [*_of_layouts(experiment), ()]
    if not path:
        return nodes, streams
    error = UserError(f"'{dotted(path)}' has no effect together with `graph:`", code="E11", path=path).at(where)
    if names := [f"{dotted(one)} ({place})" if where and (place := where.at(one)) else dotted(one) for one in others[:-1]]:
        error.add("also", ", ".join(names))
    raise error.add("try", _instead(path, nodes))


def _of_layouts(experiment: Experiment) -> Iterator[Path]:
    """Settings for layouts that differ from their defaults. (The config of a run lists the defaults too.)"""
    blank = Experiment(env=experiment.env)
    for section in OF_LAYOUT:
        mine, default = dump(getattr(experiment, section)), dump(getattr(blank, section))
        if mine == default:
            continue
        usual = dump(SECTIONS[section]()) if section in SECTIONS else {}
        changed: list[Path] = [(section, key) for key, value in mine.items() if value != usual[key]] if usual else []
        yield from changed or [(section,)]


def _instead(path: Path, nodes: Sequence[Node]) -> str:
    """The node that has a setting of this name."""
    key = str(path[-1])
    for node in nodes:
        if key in node.kind.Args.__dataclass_fields__:
            return f"workers.{node.name}.{key}, or no graph (~graph)"
    return "remove it, or the graph (~graph)"
