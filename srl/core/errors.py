"""Errors carry data: a code, a headline, facts, and the path of the setting they are about.

SrlError                 exit 3
├── UserError            E.., exit 2: something to change in a file, on the command line or in the user's code
│   ├── SettingError     E03  a class that checks its own settings names one of them
│   └── NotImportable    E07  a name or path that does not lead to the same class in every process
├── RunError             R.., exit 3 (R02: exit 4): a run that started and failed
│   ├── CannotWrite      R04
│   └── OthersLost       R06
└── WireError            W.., exit 3: what a peer sent cannot be accepted
    └── HostileFrame     W02

There is a class for what is caught by type. Everything else is a code.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Self

from srl.core.where import Path, Provenance, Where

Fact = tuple[str, str]
"""A label and a text: `("found", "64")`, `("try", "algorithm.lr=3e-4")`."""

CODES = {
    "S00": "an error of this package",
    "E00": "something the user can change",
    "E01": "no experiment has this name",
    "E02": "no such setting",
    "E03": "a value of the wrong type, or out of range",
    "E04": "sizes or numbers that do not fit together",
    "E05": "an env wrote something outside the space that it declared",
    "E06": "no pattern under `agents:` matches an agent of the env",
    "E07": "a name or path that does not lead to a class",
    "E08": "more devices, cores or memory than the machine has",
    "E09": "layers that differ from those of the checkpoint",
    "E10": "ports and streams that do not fit together",
    "E11": "a file that cannot be read",
    "E12": "an override that cannot be applied",
    "E13": "a name that is registered twice",
    "E14": "a setting without a default is missing",
    "E15": "a checkpoint that is incomplete or damaged",
    "E16": "the run is still active",
    "R00": "the run failed",
    "R01": "a worker failed",
    "R02": "no progress for too long",
    "R03": "all workers of a process wait for each other",
    "R04": "a file of the run cannot be written",
    "R05": "a loss, a gradient or a parameter is not finite",
    "R06": "another trainer of the same policy cannot be reached",
    "W00": "what a peer sent cannot be accepted",
    "W01": "two ends of a stream disagree about its arrays",
    "W02": "a frame that is truncated, oversized or not of the agreed form",
}


class SrlError(Exception):
    """Anything this package raises on purpose."""

    CODE: ClassVar[str] = "S00"
    EXIT: ClassVar[int] = 3

    def __init__(self, headline: str, *facts: Fact, code: str = "", path: Path | None = None) -> None:
        super().__init__(headline)
        self.headline = headline
        self.facts: list[Fact] = list(facts)
        self.code = code or self.CODE
        self.path = path
        """The setting that this is about: `("algorithm", "lr")`; `()` is the whole."""

    @property
    def exit_code(self) -> int:
        """The exit code of a command that fails with this error."""
        return 4 if self.code == "R02" else self.EXIT

    def add(self, label: str, text: str) -> Self:
        """Append a fact that was not known where the error was raised."""
        self.facts.append((label, text))
        return self

    def at(self, origin: Provenance | Where | None) -> Self:
        """Prepend the origin of the setting, unless it is known already."""
        if isinstance(origin, Provenance):
            path = self.path
            origin = origin.at(path) if path is not None and (not path or origin.exact(path[:1])) else None
        if origin is not None and not any(label == "from" for label, _ in self.facts):
            self.facts.insert(0, ("from", str(origin)))
        return self

    def format(self) -> str:
        """The text for people: `error[E02]: headline`, then one indented line per fact."""
        parts = [f"error[{self.code}]: {self.headline}"]
        for label, text in self.facts:
            first, *rest = text.split("\n")
            parts.append(f"  {label}: {first}" if label else f"  {first}")
            parts += [f"    {line}" for line in rest]
        return "\n".join(parts)

    def __str__(self) -> str:
        return self.format()

    def to_data(self) -> dict[str, Any]:
        """Plain data for msgpack or JSON."""
        return {
            "code": self.code,
            "exit": self.exit_code,
            "headline": self.headline,
            "facts": [list(fact) for fact in self.facts],
            "path": None if self.path is None else list(self.path),
        }

    @staticmethod
    def from_data(data: Mapping[str, Any]) -> SrlError:
        """The inverse of `to_data`, of the class that its code stands for."""
        code = str(data["code"])
        families: dict[str, type[SrlError]] = {one.CODE[0]: one for one in (RunError, WireError)}
        own: dict[str, type[SrlError]] = {one.CODE: one for one in (NotImportable, CannotWrite, OthersLost, HostileFrame)}
        kind = own.get(code) or (UserError if data["exit"] == UserError.EXIT else families.get(code[:1], SrlError))
        facts = [(str(label), str(text)) for label, text in data["facts"]]
        return kind(str(data["headline"]), *facts, code=code, path=None if data["path"] is None else tuple(data["path"]))


@contextlib.contextmanager
def about(*path: str | int) -> Iterator[None]:
    """Errors that are raised inside are about this setting, if they do not say about which."""
    try:
        yield
    except SrlError as error:
        if error.path is None:
            error.path = path
        raise


class UserError(SrlError):
    """Something the user can change; shown without a traceback."""

    CODE = "E00"
    EXIT = 2


class SettingError(UserError):
    """Raised in `__post_init__` of settings: `SettingError("clip", "must be between 0 and 1, not 2")`."""

    CODE = "E03"

    def __init__(self, setting: str, must: str, *facts: Fact) -> None:
        super().__init__(f"'{setting}' {must}" if setting else must, *facts, path=(setting,) if setting else ())
        self.must = must


class NotImportable(UserError):
    """A class cannot be imported here, or could not be in a worker."""

    CODE = "E07"


class RunError(SrlError):
    """A run that started and failed."""

    CODE = "R00"


class CannotWrite(RunError):
    """A file of a run cannot be written: the disk is full, the folder is gone."""

    CODE = "R04"


class OthersLost(RunError):
    """Another trainer of the same policy cannot be reached."""

    CODE = "R06"


class WireError(SrlError):
    """A message or address of a peer cannot be accepted."""

    CODE = "W00"


class HostileFrame(WireError):
    """A frame that is truncated, oversized or not of the agreed form."""

    CODE = "W02"
