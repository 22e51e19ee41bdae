"""Settings: the fields of a frozen dataclass with help and range, and how they are described."""

from __future__ import annotations

import functools
import math
import pathlib
import types
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields, is_dataclass
from typing import Any, ClassVar, Literal, Union, cast, get_args, get_origin, get_type_hints


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """What `option` knows about a setting beyond its type."""

    KEY: ClassVar[str] = "srl"
    help: str = ""
    low: float | None = None
    high: float | None = None
    above: float | None = None
    below: float | None = None
    key: str = ""
    """The name in files, where Python cannot have it: `return`."""

    def range(self) -> str:
        """The range as text; empty without one."""
        bounds = {"at least": self.low, "above": self.above, "at most": self.high, "below": self.below}
        return " and ".join(f"{word} {_plain_number(bound)}" for word, bound in bounds.items() if bound is not None)

    def holds(self, low: float, high: float) -> bool:
        """Whether the interval from `low` to `high` is in the range; never for nan."""
        return (
            (self.low is None or low >= self.low)
            and (self.above is None or low > self.above)
            and (self.high is None or high <= self.high)
            and (self.below is None or high < self.below)
        )


def option(
    default: Any = MISSING,
    help: str = "",
    *,
    low: float | None = None,
    high: float | None = None,
    above: float | None = None,
    below: float | None = None,
    key: str = "",
) -> Any:
    """A dataclass field with help and a range (`low`, `high` included; `above`, `below` not).

    Without a default the setting must be given. `key`: its name in files, if it is not that of the field.
    """
    metadata = {Option.KEY: Option(help=help, low=low, high=high, above=above, below=below, key=key)}
    if isinstance(default, dict | list | set):
        value = default
        return field(default_factory=lambda: type(value)(value), metadata=metadata)
    return field(default=default, metadata=metadata)


@dataclass(frozen=True, slots=True)
class Row:
    """One line of `--help trainer`."""

    name: str
    type: str
    default: str
    help: str


def describe(cls: type) -> list[Row]:
    """Name, type, default and help of every setting."""
    from srl.core.docs import field_docs  # inspects sources: for help only

    docs = field_docs(cls)
    hints = hints_of(cls)
    rows = []
    for one in settings(cls):
        facts = facts_of(one)
        text = facts.help or docs.get(one.name, "")
        text += f" ({facts.range()})" if facts.range() else ""
        rows.append(Row(key_of(one), type_name(hints[one.name]), default_text(one), text.strip()))
    return rows


def settings(cls: type) -> list[Field[Any]]:
    """The fields that a file can set."""
    return [one for one in fields(cls) if one.init]


def key_of(one: Field[Any]) -> str:
    """What files call a setting."""
    return facts_of(one).key or one.name


def facts_of(one: Field[Any]) -> Option:
    """The facts that `option` recorded."""
    return cast(Option, one.metadata.get(Option.KEY) or Option())


def default_text(one: Field[Any]) -> str:
    """The default as a file would have it; `required` when there is none."""
    default = one.default if one.default_factory is MISSING else one.default_factory()
    return "required" if default is MISSING else written(dump(default))


def type_name(kind: Any) -> str:
    """A type as text: `int`, `auto | int`, `list of int`."""
    origin, args = get_origin(kind), get_args(kind)
    if kind is Any or kind is object:
        return "anything"
    if kind is None or kind is type(None):
        return "null"
    if origin is Literal:
        return " | ".join(written(choice) for choice in args)
    if is_union(origin):
        return " | ".join(type_name(arg) for arg in args)
    if origin is tuple and not (len(args) == 2 and args[1] is ...):
        return "[" + ", ".join(type_name(arg) for arg in args) + "]"
    if origin is not None and is_sequence(origin):
        return f"list of {type_name(args[0])}" if args else "list"
    if (origin is not None and is_mapping(origin)) or kind in (dict, Mapping):
        return f"mapping of {type_name(args[1])}" if args and args[1] is not Any else "mapping"
    if isinstance(kind, type) and issubclass(kind, pathlib.PurePath):
        return "path"
    if isinstance(kind, type) and is_dataclass(kind) and not hasattr(kind, "from_plain"):
        return f"mapping ({kind.__name__})"
    return kind.__name__.lower() if hasattr(kind, "from_plain") else getattr(kind, "__name__", str(kind))


def dump(value: Any) -> Any:
    """Plain data (dict, list, str, numbers) that `load` reads back equal."""
    if hasattr(value, "to_plain"):
        return value.to_plain()
    if is_dataclass(value) and not isinstance(value, type):
        return {key_of(one): dump(getattr(value, one.name)) for one in settings(type(value))}
    if isinstance(value, Mapping):
        return {key: dump(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [dump(one) for one in value]
    if isinstance(value, pathlib.PurePath):
        return str(value)
    return value


@functools.lru_cache(maxsize=512)
def hints_of(cls: type) -> dict[str, Any]:
    return get_type_hints(cls)


def is_union(origin: Any) -> bool:
    return origin is Union or origin is types.UnionType


def is_mapping(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Mapping)


def is_sequence(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Sequence) and not issubclass(kind, str | bytes)


def written(value: Any) -> str:
    """A plain value as a file would have it, on one line."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {written(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(written, value)) + "]"
    return str(value)


def shown(value: Any) -> str:
    """The same for a message: on one line, cut after 80 characters."""
    if isinstance(value, list | tuple | Mapping) and len(value) > 80:
        value = dict(list(value.items())[:80]) if isinstance(value, Mapping) else list(value)[:80]
    if type(value) is int and value.bit_length() > 300:
        return f"a number of {value.bit_length():,} bits"
    text = written(value)
    text = text if text.isprintable() else ascii(text)[1:-1]
    return text if len(text) <= 80 else f"{text[:77]}..."


def _plain_number(value: float) -> str:
    return str(int(value)) if math.isfinite(value) and value == int(value) else str(value)
