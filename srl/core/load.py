"""Strict loading: plain data into frozen dataclasses, which are the schema, and back.

A class with a form of its own (a schedule) takes part with `from_plain(data)`, whose ValueError is reported with its
place, and `to_plain()`. `KEYS`, if it has them, are all that a mapping of it may say.
"""

from __future__ import annotations

import pathlib
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, is_dataclass
from typing import Any, Literal, TypeVar, cast, get_args, get_origin

from srl.core.errors import Fact, UserError
from srl.core.option import (
    Option,
    Row,
    default_text,
    describe,
    dump,
    facts_of,
    hints_of,
    is_mapping,
    is_sequence,
    is_union,
    live_settings,
    option,
    settings,
    type_name,
    written,
)
from srl.core.where import Path, Provenance, Where, dotted

__all__ = ["Option", "Row", "describe", "dump", "live_settings", "load", "nearest", "option", "settings"]

T = TypeVar("T")
_HELP = "python -m srl.launch --help"
_LARGEST = 2**63 - 1


def load(cls: type[T], data: Any, where: Provenance | Where | None = None, *, path: Path | str = ()) -> T:
    """`data` as a `cls`, or a UserError that names the place.

    `path` is where `data` stands in the whole (`"algorithm"`): it is named in errors and, if `where` is a Provenance,
    looked up there.
    """
    start: Path = tuple(path.split(".")) if isinstance(path, str) and path else () if isinstance(path, str) else path
    return cast(T, _Loader(cls, where).value(cls, data, start))


def nearest(name: str, names: Sequence[str]) -> str | None:
    """The name that was probably meant."""
    import difflib  # for errors only

    found = difflib.get_close_matches(name.lower(), [known.lower() for known in names], n=1, cutoff=0.6)
    return next((known for known in names if found and known.lower() == found[0]), None)


class _Loader:
    """One `load`: knows the root class and where things came from."""

    def __init__(self, root: type, where: Provenance | Where | None) -> None:
        self.root = root
        self.where = where

    def value(self, kind: Any, data: Any, path: Path) -> Any:
        """`data` as a `kind`."""
        origin = get_origin(kind)
        if kind is Any or kind is object:
            return data
        if hasattr(kind, "from_plain"):
            return self._own_form(kind, data, path)
        if isinstance(kind, type) and is_dataclass(kind):
            return self._dataclass(kind, data, path)
        if origin is Literal:
            return self._literal(kind, data, path)
        if is_union(origin):
            return self._union(kind, data, path)
        base = origin or kind
        if isinstance(base, type) and is_mapping(base):
            return self._mapping(kind, data, path)
        if isinstance(base, type) and is_sequence(base):
            return self._sequence(kind, base, data, path)
        return self._scalar(kind, data, path)

    def _dataclass(self, cls: type, data: Any, path: Path) -> Any:
        if isinstance(data, cls):
            return data
        if not isinstance(data, Mapping):
            raise self._wrong(f"a mapping with {', '.join(one.name for one in settings(cls))}", data, path)
        known = {one.name: one for one in settings(cls)}
        self._all_known(data, list(known), path, cls)
        hints = hints_of(cls)
        values = {}
        for key, item in data.items():
            facts = facts_of(known[key])
            values[key] = self.value(hints[key], item, (*path, key))
            self._in_range(facts, values[key], item, (*path, key))
        self._all_given(cls, values, path)
        return self._build(cls, values, path)

    def _build(self, cls: type, values: Mapping[str, Any], path: Path) -> Any:
        try:
            return cls(**values)
        except UserError:
            raise
        except ValueError as problem:
            text = str(problem)
            words = text.replace("'", " ").replace("`", " ").replace(",", " ").replace(":", " ").split()
            about = next((word for word in words if word in values), None)
            place = path if about is None else (*path, about)
            raise UserError(f"{self._name(path)}: {text}", *self._from(place), *self._help(path), code="E03") from problem

    def _all_given(self, cls: type, values: Mapping[str, Any], path: Path) -> None:
        for one in settings(cls):
            if one.name not in values and one.default is MISSING and one.default_factory is MISSING:
                kind = type_name(hints_of(cls)[one.name])
                about = facts_of(one).help
                lines = [
                    ("expected", f"{one.name} ({kind}){': ' + about if about else ''}"),
                    ("try", f"{dotted((*path, one.name))}=..."),
                ]
                raise UserError(f"{self._name(path)} needs the setting '{one.name}'", *self._from(path), *lines, code="E14")

    def _own_form(self, kind: Any, data: Any, path: Path) -> Any:
        if isinstance(data, kind):
            return data
        if isinstance(data, Mapping) and hasattr(kind, "KEYS"):
            self._all_known(data, kind.KEYS, path)
        try:
            return kind.from_plain(data)
        except UserError:
            raise
        except (ValueError, TypeError) as problem:
            about = str(problem).partition(" ")[0]
            if isinstance(data, Mapping) and about in data:
                place, headline = (*path, about), f"{self._name((*path, about))}: {problem}"
            else:
                place, headline = path, f"{self._name(path)} expects {type_name(kind)}: {problem}"
            raise UserError(headline, *self._from(place), *self._help(path), code="E03") from problem

    def _literal(self, kind: Any, data: Any, path: Path) -> Any:
        for choice in get_args(kind):
            if type(choice) is type(data) and choice == data:
                return data
        raise self._wrong(type_name(kind), data, path, _nearest_hint(data, get_args(kind)))

    def _union(self, kind: Any, data: Any, path: Path) -> Any:
        members = get_args(kind)
        for member in members:  # an int stays an int in `float | int`
            if _exact(member, data):
                return self.value(member, data, path)
        problems: list[UserError] = []
        for member in members:
            try:
                return self.value(member, data, path)
            except UserError as problem:
                problems.append(problem)
        if isinstance(data, Mapping):
            inner = [problem for member, problem in zip(members, problems, strict=True) if _takes_mapping(member)]
            if len(inner) == 1:
                raise inner[0]
        choices = [choice for member in members if get_origin(member) is Literal for choice in get_args(member)]
        hint = _nearest_hint(data, choices) or next((h for h in (_hint(member, data, path) for member in members) if h), None)
        raise self._wrong(type_name(kind), data, path, hint)

    def _mapping(self, kind: Any, data: Any, path: Path) -> dict[str, Any]:
        if not isinstance(data, Mapping):
            raise self._wrong(type_name(kind), data, path)
        args = get_args(kind)
        inner = args[1] if args else Any
        for key in data:
            if not isinstance(key, str):
                raise self._wrong("text as a key", key, path, ("try", f'quote it: "{key}"'))
        return {key: self.value(inner, item, (*path, key)) for key, item in data.items()}

    def _sequence(self, kind: Any, base: type, data: Any, path: Path) -> Any:
        if not isinstance(data, list | tuple):
            raise self._wrong(type_name(kind), data, path, _hint(kind, data, path))
        args = get_args(kind)
        if issubclass(base, tuple) and args and not (len(args) == 2 and args[1] is ...):
            if len(data) != len(args):
                raise self._wrong(f"{len(args)} entries, {type_name(kind)}", data, path)
            return tuple(self.value(one, item, (*path, i)) for i, (one, item) in enumerate(zip(args, data, strict=True)))
        items = (self.value(args[0] if args else Any, item, (*path, i)) for i, item in enumerate(data))
        return list(items) if base is list else tuple(items)

    def _scalar(self, kind: Any, data: Any, path: Path) -> Any:
        if kind is None:
            kind = type(None)
        if not isinstance(kind, type):
            raise TypeError(f"{self.root.__name__}: settings of type {kind!r} cannot be loaded")
        if _exact(kind, data):
            return self._whole(data, path) if kind is int else data
        if kind is float and type(data) is int:
            return float(data)
        if kind is int and type(data) is float and data.is_integer():
            return self._whole(int(data), path)  # 1e6 steps
        if issubclass(kind, pathlib.PurePath) and isinstance(data, str | pathlib.PurePath):
            return kind(data)
        if kind not in (int, float, bool, str, type(None)) and isinstance(data, kind):
            return data
        raise self._wrong(type_name(kind), data, path, _hint(kind, data, path))

    def _whole(self, data: int, path: Path) -> int:
        """Whole numbers travel between processes and end in arrays: 64 bits must do."""
        if -_LARGEST - 1 <= data <= _LARGEST:
            return data
        bound = f"at most {_LARGEST}" if data > 0 else f"at least {-_LARGEST - 1}"
        headline = f"{self._name(path)} must be {bound}, found {data}"
        raise UserError(headline, *self._from(path), ("about", "whole numbers have 64 bits"), code="E03")

    def _in_range(self, facts: Option, value: Any, data: Any, path: Path) -> None:
        if facts.choices and value is not None and value not in facts.choices:
            raise self._wrong(" | ".join(map(written, facts.choices)), data, path, _nearest_hint(data, facts.choices))
        if not facts.range():
            return
        for one in value if isinstance(value, list | tuple) else (value,):
            bounds = getattr(one, "bounds", None) or (
                (one, one) if isinstance(one, int | float) and not isinstance(one, bool) else None
            )
            if bounds is not None and not facts.holds(*bounds):
                headline = f"{self._name(path)} must be {facts.range()}, found {written(data)}"
                about = [("about", facts.help)] if facts.help else []
                raise UserError(headline, *self._from(path), *about, code="E03")

    def _all_known(self, data: Mapping[Any, Any], known: Sequence[str], path: Path, cls: type | None = None) -> None:
        for key in data:
            if key not in known:
                near = nearest(str(key), known)
                label, text = (
                    ("did you mean", f"{near}{_facts(cls, near)}?") if near else ("settings", ", ".join(known) or "none")
                )
                raise UserError(
                    f"{self._name(path)} has no setting '{key}'",
                    *self._from((*path, str(key))),
                    (label, f"{text}    all: {_help_command(path)}"),
                    code="E02",
                )

    def _wrong(self, expected: str, data: Any, path: Path, hint: Fact | None = None) -> UserError:
        found = _found(data)
        tries = [hint] if hint else []
        return UserError(
            f"{self._name(path)} expects {expected}, found {found}", *self._from(path), *tries, *self._help(path), code="E03"
        )

    def _name(self, path: Path) -> str:
        return f"'{dotted(path)}'" if path else f"'{self.root.__name__.removesuffix('Config').lower() or 'it'}'"

    def _from(self, path: Path) -> list[Fact]:
        place = self.where.at(path) if isinstance(self.where, Provenance) else self.where
        return [("from", str(place))] if place is not None else []

    def _help(self, path: Path) -> list[Fact]:
        return [("all", _help_command(path))] if path else []


def _help_command(path: Path) -> str:
    return f"{_HELP} {path[0]}" if path else _HELP


def _facts(cls: type | None, name: str) -> str:
    """` (int, default 3)`, where a dataclass knows."""
    one = next((one for one in settings(cls) if one.name == name), None) if cls is not None else None
    if cls is None or one is None:
        return ""
    default = default_text(one)
    return f" ({type_name(hints_of(cls)[name])}, {default if default == 'required' else f'default {default}'})"


def _takes_mapping(kind: Any) -> bool:
    return (isinstance(kind, type) and is_dataclass(kind)) or is_mapping(get_origin(kind) or kind)


def _exact(kind: Any, data: Any) -> bool:
    """Whether `data` is a `kind` without any conversion."""
    if get_origin(kind) is Literal:
        return any(type(choice) is type(data) and choice == data for choice in get_args(kind))
    if kind is None or kind is type(None):
        return data is None
    if kind in (int, float, bool, str):
        return type(data) is kind
    return isinstance(kind, type) and is_dataclass(kind) and isinstance(data, kind)


def _hint(kind: Any, data: Any, path: Path) -> Fact | None:
    """What to write instead, when that is clear."""
    name = dotted(path)
    if kind is str and data is not None and not isinstance(data, Mapping | list | tuple):
        return ("try", f'quotes make it text: "{written(data)}"')
    if kind is bool and isinstance(data, str) and data.lower() in ("yes", "on", "y", "no", "off", "n"):
        return ("try", f"{name}={'true' if data.lower() in ('yes', 'on', 'y') else 'false'}")
    if kind in (int, float) and isinstance(data, str) and _is_number(data):
        return ("try", f"{name}={data.strip()} (without quotes)")
    if kind is int and type(data) is float:
        return ("try", f"at most {_LARGEST}" if data.is_integer() else "a whole number")
    if is_sequence(get_origin(kind) or kind) and not isinstance(data, Mapping) and data is not None:
        args = get_args(kind)
        number = 1 if not args or args[-1] is ... or get_origin(kind) is not tuple else len(args)
        return ("try", f"{name}=[{', '.join([written(data)] * number)}]")
    return None


def _nearest_hint(data: Any, choices: Sequence[Any]) -> Fact | None:
    near = nearest(data, [choice for choice in choices if isinstance(choice, str)]) if isinstance(data, str) else None
    return ("did you mean", f"{near}?") if near else None


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _found(data: Any) -> str:
    if data is None:
        return "null"
    if isinstance(data, Mapping):
        return f"a mapping with {', '.join(map(str, list(data)[:5]))}" if data else "an empty mapping"
    if isinstance(data, str):
        return f"text {data!r}"
    kind = "list" if isinstance(data, list | tuple) else type(data).__name__
    return f"{kind} {written(data)}"
