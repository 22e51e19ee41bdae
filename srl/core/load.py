"""Strict loading: plain data into frozen dataclasses, which are the schema. `dump` is the way back.

A class with a form of its own (a schedule) has `from_plain(data)` and `to_plain()`; its ValueError is reported as the
error of its setting. `KEYS`, if it has them, are all the keys that a mapping of it may have.
"""

from __future__ import annotations

import difflib
import pathlib
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, is_dataclass
from typing import Any, Literal, TypeVar, cast, get_args, get_origin

from srl.core.errors import Fact, SettingError, UserError
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
    key_of,
    option,
    settings,
    shown,
    type_name,
)
from srl.core.where import Path, dotted

__all__ = ["Option", "Row", "describe", "dump", "load", "nearest", "option", "settings"]

T = TypeVar("T")
_HELP = "python -m srl.launch --help"
_LARGEST = 2**63 - 1


def load(cls: type[T], data: Any, *, path: Path | str = ()) -> T:
    """`data`, which the whole has at `path`, as a `cls`, or a UserError that names the setting."""
    return cast(T, _Loader(cls).value(cls, data, tuple(path.split(".")) if isinstance(path, str) else path))


def nearest(name: str, names: Sequence[str]) -> str | None:
    """The most similar name, if there is one."""
    found = difflib.get_close_matches(name.lower(), [known.lower() for known in names], n=1, cutoff=0.6)
    return next((known for known in names if found and known.lower() == found[0]), None)


def meant(name: Any, names: Sequence[Any]) -> list[Fact]:
    """`did you mean: ...?`, if one of the names is similar."""
    near = nearest(name, [known for known in names if isinstance(known, str)]) if isinstance(name, str) else None
    return [("did you mean", f"{near}?")] if near else []


class _Loader:
    """One `load`. A path of no parts is called by the name of the root class."""

    def __init__(self, root: type) -> None:
        self.root = root

    def value(self, kind: Any, data: Any, path: Path) -> Any:
        """`data` as a `kind`."""
        origin = get_origin(kind)
        base = origin or kind
        if kind is Any or kind is object:
            return data
        if hasattr(kind, "from_plain"):
            return self._own_form(kind, data, path)
        if isinstance(kind, type) and is_dataclass(kind):
            return self._dataclass(kind, data, path)
        if origin is Literal:
            if _exact(kind, data):
                return data
            raise self._wrong(type_name(kind), data, path, *meant(data, get_args(kind)))
        if is_union(origin):
            return self._union(kind, data, path)
        if is_mapping(base):
            return self._mapping(kind, data, path)
        if is_sequence(base):
            return self._sequence(kind, base, data, path)
        return self._scalar(type(None) if kind is None else kind, data, path)

    def _dataclass(self, cls: type, data: Any, path: Path) -> Any:
        if isinstance(data, cls):
            return data
        known = {key_of(one): one for one in settings(cls)}
        if not isinstance(data, Mapping):
            raise self._wrong(f"a mapping with {', '.join(known)}", data, path)
        self._check_keys(data, list(known), path, cls)
        hints = hints_of(cls)
        values = {}
        for key, item in data.items():
            name = known[key].name
            values[name] = self.value(hints[name], item, (*path, key))
            self._check_range(facts_of(known[key]), values[name], item, (*path, key))
        for key, one in known.items():
            if key not in data and one.default is MISSING and one.default_factory is MISSING:
                about = facts_of(one).help
                raise UserError(
                    f"{self._name(path)} needs the setting '{key}'",
                    ("expected", f"{key} ({type_name(hints[one.name])}){': ' + about if about else ''}"),
                    ("try", f"{dotted((*path, key))}=..."),
                    code="E14",
                    path=path,
                )
        return self._made(lambda: cls(**values), path)

    def _own_form(self, kind: Any, data: Any, path: Path) -> Any:
        if isinstance(data, kind):
            return data
        if isinstance(data, Mapping) and hasattr(kind, "KEYS"):
            self._check_keys(data, kind.KEYS, path)
        return self._made(lambda: kind.from_plain(data), path)

    def _made(self, make: Any, path: Path) -> Any:
        """Make the object; errors of its own checks get the path."""
        try:
            return make()
        except SettingError as problem:
            full = (*path, *problem.path) if problem.path else path
            raise UserError(f"{self._name(full)} {problem.must}", *problem.facts, *_help(full), code="E03", path=full) from None
        except (ValueError, TypeError) as problem:
            raise UserError(f"{self._name(path)}: {problem}", *_help(path), code="E03", path=path) from problem

    def _union(self, kind: Any, data: Any, path: Path) -> Any:
        members = get_args(kind)
        for member in members:  # an int stays an int in `float | int`
            if _exact(member, data):
                return self.value(member, data, path)
        problems: dict[Any, UserError] = {}
        for member in members:
            try:
                return self.value(member, data, path)
            except UserError as problem:
                problems[member] = problem
        inner = [
            problem for member, problem in problems.items() if is_dataclass(member) or is_mapping(get_origin(member) or member)
        ]
        if isinstance(data, Mapping) and len(inner) == 1:
            raise inner[0]
        choices = [choice for member in members if get_origin(member) is Literal for choice in get_args(member)]
        facts = [*meant(data, choices), *(fact for member in members for fact in _hint(member, data, path))]
        raise self._wrong(type_name(kind), data, path, *facts[:1])

    def _mapping(self, kind: Any, data: Any, path: Path) -> dict[str, Any]:
        if not isinstance(data, Mapping):
            raise self._wrong(type_name(kind), data, path)
        args = get_args(kind)
        for key in data:
            if not isinstance(key, str):
                raise self._wrong("text as a key", key, path, ("try", f'quote it: "{key}"'))
        return {key: self.value(args[1] if args else Any, item, (*path, key)) for key, item in data.items()}

    def _sequence(self, kind: Any, base: Any, data: Any, path: Path) -> Any:
        if not isinstance(data, list | tuple):
            raise self._wrong(type_name(kind), data, path, *_hint(kind, data, path))
        args = get_args(kind)
        if base is tuple and args and args[-1] is not ...:
            if len(data) != len(args):
                raise self._wrong(f"{len(args)} entries, {type_name(kind)}", data, path)
            return tuple(self.value(one, item, (*path, i)) for i, (one, item) in enumerate(zip(args, data, strict=True)))
        items = (self.value(args[0] if args else Any, item, (*path, i)) for i, item in enumerate(data))
        return list(items) if base is list else tuple(items)

    def _scalar(self, kind: Any, data: Any, path: Path) -> Any:
        if not isinstance(kind, type):
            raise TypeError(f"{self.root.__name__}: settings of type {kind!r} cannot be loaded")
        if kind is int and (type(data) is int or (type(data) is float and data.is_integer())):  # 1e6 steps
            whole = int(data)
            if -_LARGEST - 1 <= whole <= _LARGEST:  # they travel between processes and end in arrays
                return whole
            bound = f"at most {_LARGEST}" if whole > 0 else f"at least {-_LARGEST - 1}"
            raise self._must(f"{bound}, found {shown(whole)}", path, ("about", "whole numbers must fit in 64 bits"))
        if _exact(kind, data):
            return data
        if kind is float and type(data) is int and abs(data) <= 2**1023:
            return float(data)
        if issubclass(kind, pathlib.PurePath) and isinstance(data, str | pathlib.PurePath):
            return kind(data)
        if kind not in (int, float, bool, str, type(None)) and isinstance(data, kind):
            return data
        raise self._wrong(type_name(kind), data, path, *_hint(kind, data, path))

    def _check_range(self, facts: Option, value: Any, data: Any, path: Path) -> None:
        if not facts.range():
            return
        for one in value if isinstance(value, list | tuple) else (value,):
            number = isinstance(one, int | float) and not isinstance(one, bool)
            bounds = (one, one) if number else getattr(one, "bounds", None)
            if bounds is not None and not facts.holds(*bounds):
                about = [("about", facts.help)] if facts.help else []
                raise self._must(f"{facts.range()}, found {shown(data)}", path, *about)

    def _check_keys(self, data: Mapping[Any, Any], known: Sequence[str], path: Path, cls: type | None = None) -> None:
        for key in data:
            if key not in known:
                near = nearest(str(key), known)
                fact = ("did you mean", f"{near}{_facts(cls, near)}?") if near else ("settings", ", ".join(known) or "none")
                headline = f"{self._name(path)} has no setting '{shown(key)}'"
                raise UserError(headline, fact, ("all", _help_command(path)), code="E02", path=(*path, str(key)))

    def _must(self, bound: str, path: Path, *facts: Fact) -> UserError:
        return UserError(f"{self._name(path)} must be {bound}", *facts, code="E03", path=path)

    def _wrong(self, expected: str, data: Any, path: Path, *facts: Fact) -> UserError:
        headline = f"{self._name(path)} expects {expected}, found {_found(data)}"
        return UserError(headline, *facts, *_help(path), code="E03", path=path)

    def _name(self, path: Path) -> str:
        return f"'{dotted(path)}'" if path else f"'{self.root.__name__.removesuffix('Config').lower()}'"


def _help(path: Path) -> list[Fact]:
    return [("all", _help_command(path))] if path else []


def _help_command(path: Path) -> str:
    section = path[2] if path[:1] == ("policies",) and len(path) > 2 else path[0] if path else ""
    return f"{_HELP} {section}".rstrip()


def _facts(cls: type | None, key: str) -> str:
    """` (int, default 3)`, where a dataclass knows."""
    if cls is None:
        return ""
    one = next(one for one in settings(cls) if key_of(one) == key)
    default = default_text(one)
    return f" ({type_name(hints_of(cls)[one.name])}, {default if default == 'required' else f'default {default}'})"


def _exact(kind: Any, data: Any) -> bool:
    """Whether `data` is a `kind` without any conversion."""
    if get_origin(kind) is Literal:
        return any(type(choice) is type(data) and choice == data for choice in get_args(kind))
    if kind is None or kind is type(None):
        return data is None
    if kind in (int, float, bool, str):
        return type(data) is kind
    return isinstance(kind, type) and is_dataclass(kind) and isinstance(data, kind)


def _hint(kind: Any, data: Any, path: Path) -> list[Fact]:
    """A suggestion for a value of the wrong type."""
    name = dotted(path)
    if kind is str and data is not None and not isinstance(data, Mapping | list | tuple):
        return [("try", f'quotes make it text: "{shown(data)}"')]
    if kind is bool and isinstance(data, str) and data.lower() in ("yes", "on", "y", "no", "off", "n"):
        return [("try", f"{name}={'true' if data.lower() in ('yes', 'on', 'y') else 'false'}")]
    if kind in (int, float) and isinstance(data, str) and _is_number(data):
        return [("try", f"{name}={data.strip()} (without quotes)")]
    if kind is int and type(data) is float:
        return [("try", f"at most {_LARGEST}" if data.is_integer() else "a whole number")]
    if is_sequence(get_origin(kind) or kind) and not isinstance(data, Mapping) and data is not None:
        args = get_args(kind)
        number = 1 if not args or args[-1] is ... or get_origin(kind) is not tuple else len(args)
        return [("try", f"{name}=[{', '.join([shown(data)] * number)}]")]
    return []


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
        return f"a mapping with {', '.join(map(shown, list(data)[:5]))}" if data else "an empty mapping"
    if isinstance(data, str):
        return f"text '{shown(data)}'"
    kind = "list" if isinstance(data, list | tuple) else type(data).__name__
    return f"{kind} {shown(data)}"
