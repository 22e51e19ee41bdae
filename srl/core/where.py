"""Origins of values: a place in a file, the command line, a resumed run, or a default."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

Path: TypeAlias = "tuple[str | int, ...]"


@dataclass(frozen=True, slots=True)
class Where:
    """`experiments/my.yaml:14:3`, `mine.py:12`, or a word such as `command line`. Lines and columns count from 1."""

    source: str
    line: int = 0
    column: int = 0

    def __str__(self) -> str:
        return ":".join([self.source, *(str(number) for number in (self.line, self.column) if number)])


DEFAULT = Where("default")
COMMAND_LINE = Where("command line")
RESUME = Where("resume")


def caller(file: str) -> Where:
    """The line that is being executed in the innermost frame outside this file, which asks."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename in (file, __file__):
        frame = frame.f_back
    return Where(frame.f_code.co_filename, frame.f_lineno)


class Provenance:
    """Where every value of a nested mapping came from; a path without a record has that of its nearest parent."""

    __slots__ = ("_places",)

    def __init__(self, places: Mapping[Path, Where] | None = None) -> None:
        self._places: dict[Path, Where] = dict(places or {})

    def put(self, path: Path, where: Where) -> None:
        self._places[path] = where

    def exact(self, path: Path) -> Where | None:
        return self._places.get(path)

    def at(self, path: Path) -> Where | None:
        """The record of the path or of its nearest recorded parent."""
        for length in range(len(path), -1, -1):
            if (where := self._places.get(path[:length])) is not None:
                return where
        return None

    def drop(self, path: Path) -> None:
        """Remove the records at and below the path."""
        for known in [known for known in self._places if known[: len(path)] == path]:
            del self._places[known]

    def graft(self, path: Path, other: Provenance) -> None:
        """Add all records of `other` below `path`."""
        for known, where in other:
            self._places[path + known] = where

    def below(self, path: Path) -> Provenance:
        """The records at and below `path`, with `path` taken off."""
        return Provenance({known[len(path) :]: where for known, where in self if known[: len(path)] == path})

    def __iter__(self) -> Iterator[tuple[Path, Where]]:
        return iter(list(self._places.items()))


def dotted(path: Path) -> str:
    """`a.b.0`; a key that holds a dot or a quote is quoted."""
    return ".".join(_segment(str(key)) for key in path)


def _segment(key: str) -> str:
    return '"' + key.replace("\\", "\\\\").replace('"', '\\"') + '"' if any(char in key for char in '."=\\') or not key else key
