"""YAML with the scalars of YAML 1.2, no duplicate keys, and the origin of every value.

Stock PyYAML reads `1e-4` as text, `010` as 8, `yes` as true and `12:30:00` as 45000; here they are 0.0001, 10, text and text.
Tags are not supported. What is nested too deeply, or too large, is refused while it is read.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import Any, cast

import yaml
from yaml.events import AliasEvent, Event, MappingEndEvent, MappingStartEvent, ScalarEvent, SequenceEndEvent, SequenceStartEvent
from yaml.nodes import MappingNode, ScalarNode
from yaml.resolver import Resolver

from srl.core.errors import Fact, UserError
from srl.core.files import depth, read_text
from srl.core.where import Path, Provenance, Where

_INT = re.compile(r"[-+]?[0-9]+(_[0-9]+)*$")
_OTHER_INT = re.compile(r"0o[0-7]+$|0x[0-9a-fA-F]+$")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(_[0-9]+)*(\.[0-9]*)?)([eE][-+]?[0-9]+)?$")
_INF = re.compile(r"[-+]?\.(inf|Inf|INF)$")
_NAN = re.compile(r"\.(nan|NaN|NAN)$")
_WORDS = {"": None, "~": None, "null": None, "Null": None, "NULL": None}
_WORDS |= {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}  # type: ignore[dict-item]
_TAG = "tag:yaml.org,2002:"
_DEEPEST = 40
"""Levels of nesting."""
_MOST = 200_000
"""Values of one file, aliases counted as often as they are used."""
_LONGEST = 400
"""Digits of a number."""

_CLoader: Any = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
_CDumper: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


@dataclass(frozen=True, slots=True)
class Sourced:
    """Plain data with the origin of each value."""

    data: Any
    provenance: Provenance


def read(path: FilePath | str, shown: str | None = None) -> Sourced:
    """A file; `shown` is how it is named in errors."""
    return parse(read_text(FilePath(path)), shown or str(path))


def parse(text: str, source: str = "text") -> Sourced:
    """One YAML document. An empty one is None."""
    provenance = Provenance()
    loader = None
    try:
        loader = _CLoader(text)
        return Sourced(_Builder(loader, source, provenance).document(), provenance)
    except yaml.YAMLError as problem:
        raise _unreadable(problem, source) from problem
    except UnicodeError as problem:
        raise UserError(f"not readable as YAML: {problem}", ("from", source), code="E11") from problem
    finally:
        if loader is not None:
            loader.dispose()


def scalar(text: str) -> Any:
    """The value of a plain scalar in the core schema of YAML 1.2 (and of `300_000`)."""
    if text in _WORDS:
        return _WORDS[text]
    if _INT.match(text):
        return int(text.replace("_", ""))
    if _OTHER_INT.match(text):
        return int(text, 0)
    if _FLOAT.match(text):
        return float(text.replace("_", ""))
    if _INF.match(text):
        return float("-inf") if text.startswith("-") else float("inf")
    return float("nan") if _NAN.match(text) else text


def dump(data: Any, *, flow: bool = False) -> str:
    """YAML text that `parse` reads back equal. `flow`: on one line, without a newline at its end."""
    width = 1 << 30 if flow else 120
    text: str = yaml.dump(data, Dumper=_Dumper, sort_keys=False, allow_unicode=True, default_flow_style=flow, width=width)
    return text.removesuffix("\n").removesuffix("\n...") if flow else text


class _Builder:
    """Events of the parser into plain data."""

    def __init__(self, parser: Any, source: str, provenance: Provenance) -> None:
        self.next: Callable[[], Any] = parser.get_event
        self.source = source
        self.provenance = provenance
        self.count = 0
        self.anchors: dict[str, tuple[Any, int]] = {}
        """The data and its number of values."""

    def document(self) -> Any:
        """The data of the document; None if it is empty."""
        self.next()  # the stream begins
        if not isinstance(self.next(), yaml.DocumentStartEvent):
            return None
        data = self._value(self.next(), ())
        self.next()  # the document ends
        if not isinstance(more := self.next(), yaml.StreamEndEvent):
            raise self._bad("a second document begins here", more, ("expected", "one document in a file"))
        return data

    def _value(self, event: Any, path: Path) -> Any:
        """The data that begins with this event. Its origin is recorded, unless the one of its key was."""
        self._count(1, event)
        if len(path) > _DEEPEST:
            raise self._bad(f"nested more than {_DEEPEST} levels deep", event)
        if self.provenance.exact(path) is None:
            self.provenance.put(path, self._where(event))
        if isinstance(event, AliasEvent):
            return self._copy(event, path)
        tag = event.tag
        if tag is not None and tag != "!":
            raise self._bad(f"the tag {tag.replace(_TAG, '!!')} is not supported", event, ("try", "quotes, if it is text"))
        before = self.count
        if isinstance(event, MappingStartEvent):
            data: Any = self._mapping(path)
        elif isinstance(event, SequenceStartEvent):
            data = []
            while not isinstance(item := self.next(), SequenceEndEvent):
                data.append(self._value(item, (*path, len(data))))
        else:
            data = self._scalar(event)
        if event.anchor is not None:
            self.anchors[event.anchor] = (data, self.count - before + 1)
        return data

    def _mapping(self, path: Path) -> dict[str, Any]:
        data: dict[str, Any] = {}
        while not isinstance(key_event := self.next(), MappingEndEvent):
            if not isinstance(key_event, ScalarEvent):
                raise self._bad("a key must be text", key_event)
            key = str(key_event.value)
            if key == "<<" and key_event.implicit[0]:
                raise self._bad("merge keys (<<) are not part of YAML 1.2", key_event, ("try", "inherit: [file]"))
            if key in data:
                first = str(self.provenance.exact((*path, key)))
                again = ("again", str(self._where(key_event)))
                raise UserError(f"'{key}' is given twice", ("first", first), again, code="E11")
            self.provenance.put((*path, key), self._where(key_event))
            data[key] = self._value(self.next(), (*path, key))
        return data

    def _scalar(self, event: ScalarEvent) -> Any:
        if not event.implicit[0] or event.tag == "!":
            return str(event.value)
        if len(event.value) > _LONGEST and (_INT.match(event.value) or _OTHER_INT.match(event.value)):
            raise self._bad(f"a number of {len(event.value):,} digits", event, ("expected", f"at most {_LONGEST}"))
        return scalar(event.value)

    def _copy(self, event: AliasEvent, path: Path) -> Any:
        if event.anchor not in self.anchors:
            raise self._bad(f"*{event.anchor} has no anchor before it", event)
        data, size = self.anchors[event.anchor]
        self._count(size, event)
        if len(path) + depth(data) > _DEEPEST:
            raise self._bad(f"nested more than {_DEEPEST} levels deep", event)
        return copy.deepcopy(data)

    def _count(self, more: int, event: Event) -> None:
        self.count += more
        if self.count > _MOST:
            raise self._bad(f"more than {_MOST:,} values, aliases included", event)

    def _bad(self, headline: str, event: Event, *facts: Fact) -> UserError:
        return UserError(headline, ("from", str(self._where(event))), *facts, code="E11")

    def _where(self, event: Event) -> Where:
        mark: Any = event.start_mark
        return Where(self.source, mark.line + 1, mark.column + 1)


class _Dumper(_CDumper):  # type: ignore[misc]
    """Writes floats so that they stay floats, and quotes what a YAML 1.1 or 1.2 reader could take for something else."""

    def ignore_aliases(self, data: Any) -> bool:
        return True

    def represent_float(self, value: float) -> ScalarNode:
        text = {float("inf"): ".inf", float("-inf"): "-.inf"}.get(value, ".nan" if value != value else repr(value))
        return cast(ScalarNode, self.represent_scalar(_TAG + "float", text))

    def represent_text(self, value: str) -> ScalarNode:
        awkward = not value.isprintable()
        return cast(ScalarNode, self.represent_scalar(_TAG + "str", value, style='"' if awkward else None))

    def represent_mapping_data(self, value: Mapping[Any, Any]) -> MappingNode:
        for key in value:
            if not isinstance(key, str):
                raise TypeError(f"only text can be a key of a file, not {key!r}")
        return cast(MappingNode, self.represent_mapping(_TAG + "map", dict(value)))


def _resolvers() -> dict[Any, list[tuple[str, Any]]]:
    """YAML 1.2's resolvers before those of 1.1, which only make text quoted."""
    mine: list[tuple[str, re.Pattern[str]]] = [
        (_TAG + "null", re.compile(r"(?:~|null|Null|NULL|)$")),
        (_TAG + "bool", re.compile(r"(?:true|True|TRUE|false|False|FALSE)$")),
        (_TAG + "int", _INT),
        (_TAG + "int", _OTHER_INT),
        (_TAG + "float", _FLOAT),
        (_TAG + "float", _INF),
        (_TAG + "float", _NAN),
    ]
    old: dict[Any, list[tuple[str, Any]]] = Resolver.yaml_implicit_resolvers
    firsts = {*old, *"0123456789+-.~nNtTfF", ""}
    return {first: mine + old.get(first, []) for first in firsts if first is not None}


_Dumper.yaml_implicit_resolvers = _resolvers()
_Dumper.add_representer(float, _Dumper.represent_float)
_Dumper.add_representer(str, _Dumper.represent_text)
_Dumper.add_representer(dict, _Dumper.represent_mapping_data)


def _unreadable(problem: yaml.YAMLError, source: str) -> UserError:
    mark = getattr(problem, "problem_mark", None)
    place = Where(source, mark.line + 1, mark.column + 1) if mark is not None else Where(source)
    what = " ".join(str(part) for part in (getattr(problem, "context", None), getattr(problem, "problem", None)) if part)
    return UserError(f"not readable as YAML: {what or problem}", ("from", str(place)), code="E11")
