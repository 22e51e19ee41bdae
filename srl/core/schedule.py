"""Schedules: a number that may change with the progress of the run, 0 at its start and 1 at its end."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from srl.core.errors import SettingError

_KINDS = ("linear", "cosine")
_USUAL: dict[str, Any] = {"to": None, "kind": "linear", "until": 1.0}


@dataclass(frozen=True, slots=True)
class Schedule:
    """`3e-4`, or `{from: 3e-4, to: 0}`; optional `kind: cosine`, and `until: 0.5` to arrive earlier."""

    KEYS: ClassVar[tuple[str, ...]] = ("from", "to", "kind", "until")

    start: float
    end: float | None = None
    """None: constant."""
    kind: str = "linear"
    until: float = 1.0

    def __post_init__(self) -> None:
        if self.kind not in _KINDS:
            raise SettingError("kind", f"must be one of {', '.join(_KINDS)}, not {self.kind!r}")
        if not 0.0 < self.until <= 1.0:
            raise SettingError("until", f"must be above 0 and at most 1, not {self.until}")

    def at(self, progress: float) -> float:
        """The value at `progress`, which is clipped to 0..1."""
        if self.end is None:
            return self.start
        way = min(max(progress / self.until, 0.0), 1.0)
        if self.kind == "cosine":
            way = (1.0 - math.cos(math.pi * way)) / 2.0
        return self.start * (1.0 - way) + self.end * way

    @property
    def bounds(self) -> tuple[float, float]:
        """The smallest and the largest value."""
        end = self.start if self.end is None else self.end
        return min(self.start, end), max(self.start, end)

    @classmethod
    def from_plain(cls, data: Any) -> Schedule:
        """From what a file says; SettingError says what is wrong."""
        if not isinstance(data, Mapping):
            return cls(_number("", data))
        if "from" not in data:
            raise SettingError("", "needs `from`", ("expected", "a number, or {from: 3e-4, to: 0}"))
        end = _number("to", data["to"]) if data.get("to") is not None else None
        return cls(_number("from", data["from"]), end, data.get("kind", "linear"), _number("until", data.get("until", 1.0)))

    def to_plain(self) -> float | dict[str, Any]:
        """The inverse of `from_plain`."""
        given = {"to": self.end, "kind": self.kind, "until": self.until}
        changed = {key: value for key, value in given.items() if value != _USUAL[key]}
        return {"from": self.start, **changed} if changed else self.start


def _number(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise SettingError(name, f"must be a number, not {value!r}")
    return float(value)
