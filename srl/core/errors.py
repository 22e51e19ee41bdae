"""Errors: one tree. A message says where, what was found, what was expected, and what to do.

SrlError
├── UserError                exit 2: something to change in a file, on the command line or in the user's code
│   ├── UnknownExperiment    E01
│   ├── UnknownKey           E02
│   ├── WrongType            E03  also values out of range
│   ├── DoesNotDivide        E04
│   ├── BadObservation       E05
│   ├── AgentWithoutPolicy   E06
│   ├── NotImportable        E07
│   │   └── UnknownName      E07  neither a registered name nor a path
│   ├── TooFewResources      E08
│   ├── DoesNotFit           E09  a resume whose shapes differ
│   ├── WiringError          E10
│   ├── BadFile              E11  YAML that cannot be read, keys given twice
│   ├── BadOverride          E12
│   ├── NameTaken            E13  one name, two registrations
│   ├── MissingKey           E14
│   ├── BrokenCheckpoint     E15
│   └── RunIsLive            E16
├── RunError                 exit 3: a run that started and failed
│   ├── WorkerDied           R01
│   ├── Stalled              R02  exit 4
│   ├── Deadlock             R03
│   └── CannotWrite          R04  a full disk, a folder that is gone
└── WireError                exit 3: what a peer sent cannot be taken
    ├── SpecMismatch         W01
    └── HostileFrame         W02
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

Line = tuple[str, str]


class SrlError(Exception):
    """Anything this package raises on purpose: a headline, and lines such as `("from", "my.yaml:14:3")`."""

    CODE: ClassVar[str] = "S00"
    EXIT: ClassVar[int] = 3

    def __init__(self, headline: str, *lines: Line, code: str = "", exit_code: int | None = None) -> None:
        super().__init__(headline)
        self.headline = headline
        self.lines: list[Line] = list(lines)
        self.code = code or self.CODE
        self.exit_code = self.EXIT if exit_code is None else exit_code

    def add(self, label: str, text: str) -> SrlError:
        """Append one line; for those who know more than the place that raised."""
        self.lines.append((label, text))
        return self

    def format(self) -> str:
        """What a person reads: `error[E02]: headline`, then one indented line per fact."""
        parts = [f"error[{self.code}]: {self.headline}"]
        for label, text in self.lines:
            first, *rest = text.split("\n")
            parts.append(f"  {label}: {first}" if label else f"  {first}")
            parts += [f"    {line}" for line in rest]
        return "\n".join(parts)

    def __str__(self) -> str:
        return self.format()

    def to_data(self) -> dict[str, Any]:
        """Plain data for msgpack or JSON."""
        return {
            "type": type(self).__name__,
            "code": self.code,
            "exit": self.exit_code,
            "headline": self.headline,
            "lines": [[label, text] for label, text in self.lines],
        }

    @staticmethod
    def from_data(data: Mapping[str, Any]) -> SrlError:
        """The inverse of `to_data`; a class this process does not know becomes a plain `SrlError` that reads the same."""
        known = {kind.__name__: kind for kind in _tree(SrlError)}
        kind = known.get(str(data["type"]), SrlError)
        lines = [(str(label), str(text)) for label, text in data["lines"]]
        error = kind.__new__(kind)
        SrlError.__init__(error, str(data["headline"]), *lines, code=str(data["code"]), exit_code=int(data["exit"]))
        return error


def _tree(kind: type[SrlError]) -> Iterator[type[SrlError]]:
    yield kind
    for child in kind.__subclasses__():
        yield from _tree(child)


class UserError(SrlError):
    """Something the user can change; shown without a traceback."""

    CODE = "E00"
    EXIT = 2


class UnknownExperiment(UserError):
    """No file and no packaged experiment has this name."""

    CODE = "E01"


class UnknownKey(UserError):
    """A section has no such setting."""

    CODE = "E02"


class WrongType(UserError):
    """A value is of another type than its setting, or out of its range."""

    CODE = "E03"


class DoesNotDivide(UserError):
    """Two sizes of which one must be a multiple of the other."""

    CODE = "E04"


class BadObservation(UserError):
    """An env wrote something outside the space it declared."""

    CODE = "E05"


class AgentWithoutPolicy(UserError):
    """No pattern under `agents:` matches an agent of the env."""

    CODE = "E06"


class NotImportable(UserError):
    """A class cannot be imported here, or could not be in a worker."""

    CODE = "E07"


class UnknownName(NotImportable):
    """Neither a registered name nor a path to a class."""


class TooFewResources(UserError):
    """More devices, cores or memory than the machine has."""

    CODE = "E08"


class DoesNotFit(UserError):
    """A resume whose layers differ from those of the checkpoint."""

    CODE = "E09"


class WiringError(UserError):
    """Ports and streams that do not go together."""

    CODE = "E10"


class BadFile(UserError):
    """A file that cannot be read, or that says one thing twice."""

    CODE = "E11"


class BadOverride(UserError):
    """A command-line override that cannot be applied."""

    CODE = "E12"


class NameTaken(UserError):
    """Two registrations of one name."""

    CODE = "E13"


class MissingKey(UserError):
    """A setting without a default was not given."""

    CODE = "E14"


class BrokenCheckpoint(UserError):
    """A checkpoint that is half written or damaged."""

    CODE = "E15"


class RunIsLive(UserError):
    """The folder of a run that goes on: another process writes to it."""

    CODE = "E16"


class RunError(SrlError):
    """A run that started and failed."""

    CODE = "R00"


class WorkerDied(RunError):
    """A worker raised, or its process ended."""

    CODE = "R01"


class Stalled(RunError):
    """Alive, but without progress for too long."""

    CODE = "R02"
    EXIT = 4


class Deadlock(RunError):
    """Every worker of one process waits for another of them."""

    CODE = "R03"


class CannotWrite(RunError):
    """A file of a run cannot be written: the disk is full, the folder is gone."""

    CODE = "R04"


class WireError(SrlError):
    """What a peer sent cannot be taken."""

    CODE = "W00"


class SpecMismatch(WireError):
    """Two ends of a stream disagree about its arrays."""

    CODE = "W01"


class HostileFrame(WireError):
    """A frame that is truncated, oversized or not of the agreed form."""

    CODE = "W02"
