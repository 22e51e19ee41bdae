"""A configuration as YAML text, with the origin of each value as a comment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from srl.config.yaml import dump
from srl.core.where import DEFAULT, Path, Provenance

_WIDEST = 60


def render(data: Mapping[str, Any], places: Provenance) -> str:
    """Text that reads back equal to `data`. A value without a place of its own is a default."""
    if not data:
        return "{}\n"
    lines: list[tuple[str, str]] = []
    _mapping(lines, data, (), "", "", places)
    width = max((len(text) for text, comment in lines if comment and len(text) <= _WIDEST), default=0)
    return "".join(f"{text.ljust(width)}  # {comment}\n" if comment else f"{text}\n" for text, comment in lines)


def _mapping(
    lines: list[tuple[str, str]], data: Mapping[str, Any], path: Path, first: str, indent: str, places: Provenance
) -> None:
    """`first` stands before the first key: the dash of a list entry."""
    for number, (key, value) in enumerate(data.items()):
        lead = first if number == 0 and first else indent
        _entry(lines, f"{lead}{dump(key, flow=True)}:", value, (*path, key), indent, places)


def _entry(lines: list[tuple[str, str]], head: str, value: Any, path: Path, indent: str, places: Provenance) -> None:
    if isinstance(value, Mapping) and value:
        lines.append((head, ""))
        _mapping(lines, value, path, "", indent + "  ", places)
    elif isinstance(value, list | tuple) and any(isinstance(item, Mapping) and item for item in value):
        lines.append((head, ""))
        for index, item in enumerate(value):
            if isinstance(item, Mapping) and item:
                _mapping(lines, item, (*path, index), f"{indent}  - ", indent + "    ", places)
            else:
                lines.append((f"{indent}  - {dump(item, flow=True)}", _place(places, (*path, index))))
    else:
        lines.append((f"{head} {dump(value, flow=True)}", _place(places, path)))


def _place(places: Provenance, path: Path) -> str:
    return str(places.exact(path) or DEFAULT)
