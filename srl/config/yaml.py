"""YAML with the scalars of YAML 1.2, no key given twice, and the place of every value.

Stock PyYAML reads `1e-4` as text, `010` as 8, `yes` as true and `12:30:00` as 45000; here they are 0.0001, 10, text and text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import Any, NoReturn, cast

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode
from yaml.resolver import Resolver

from srl.core.errors import UserError
from srl.core.where import Path, Provenance, Where

_INT = re.compile(r"[-+]?[0-9]+(_[0-9]+)*$")
_OTHER_INT = re.compile(r"0o[0-7]+$|0x[0-9a-fA-F]+$")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(_[0-9]+)*(\.[0-9]*)?)([eE][-+]?[0-9]+)?$")
_INF = re.compile(r"[-+]?\.(inf|Inf|INF)$")
_NAN = re.compile(r"\.(nan|NaN|NAN)$")
_WORDS = {"": None, "~": None, "null": None, "Null": None, "NULL": None}
_WORDS |= {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}  # type: ignore[dict-item]
_PLAIN = "plain"
_TAG = "tag:yaml.org,2002:"
_DEEPEST = 100
_MOST = 1_000_000

_CLoader: Any = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
_CDumper: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


@dataclass(frozen=True, slots=True)
class Sourced:
    """Plain data and where each of its values stands."""

    data: Any
    provenance: Provenance


def read(path: FilePath | str, shown: str | None = None) -> Sourced:
    """A file; `shown` is how it is named in errors."""
    shown = shown or str(path)
    try:
        text = FilePath(path).read_text(encoding="utf-8")
    except OSError as problem:
        raise UserError(f"cannot read '{shown}': {problem.strerror or problem}", code="E11") from problem
    except UnicodeDecodeError as problem:
        raise UserError(f"'{shown}' is not UTF-8 text", ("cause", str(problem)), code="E11") from problem
    return parse(text, shown)


def parse(text: str, source: str = "text") -> Sourced:
    """One YAML document. An empty one is None."""
    loader = None
    try:
        loader = _Loader(text)
        node = loader.get_single_node()
    except yaml.YAMLError as problem:
        _unreadable(problem, source)
    finally:
        if loader is not None:
            loader.dispose()
    provenance = Provenance()
    if node is None:
        return Sourced(None, provenance)
    return Sourced(_Builder(source, provenance).build(node, ()), provenance)


def scalar(text: str) -> Any:
    """What a plain scalar means in the core schema of YAML 1.2 (and `300_000`)."""
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
    text: str = yaml.dump(
        data,
        Dumper=_Dumper,
        sort_keys=False,
        allow_unicode=True,
        default_flow_style=flow,
        width=1 << 30 if flow else 120,
    )
    return text.removesuffix("\n").removesuffix("\n...") if flow else text


class _Loader(_CLoader):  # type: ignore[misc]
    """Marks scalars that are neither quoted nor tagged; what they mean is decided by `scalar`."""

    def resolve(self, kind: Any, value: Any, implicit: Any) -> Any:
        return _PLAIN if kind is ScalarNode and implicit[0] else super().resolve(kind, value, implicit)


class _Builder:
    """Nodes into plain data."""

    def __init__(self, source: str, provenance: Provenance) -> None:
        self.source = source
        self.provenance = provenance
        self.count = 0

    def build(self, node: Node, path: Path) -> Any:
        """The data of a node; its place is recorded unless that of its key already is."""
        self.count += 1
        if len(path) > _DEEPEST or self.count > _MOST:
            raise UserError("an alias that contains itself, or far too much data", ("from", str(self._where(node))), code="E11")
        if self.provenance.exact(path) is None:
            self.provenance.put(path, self._where(node))
        if isinstance(node, MappingNode):
            self._tagged(node, "map")
            return self._mapping(node, path)
        if isinstance(node, SequenceNode):
            self._tagged(node, "seq")
            return [self.build(child, (*path, index)) for index, child in enumerate(node.value)]
        return self._scalar(cast(ScalarNode, node))

    def _mapping(self, node: MappingNode, path: Path) -> dict[str, Any]:
        data: dict[str, Any] = {}
        for key_node, value_node in node.value:
            where = self._where(key_node)
            if not isinstance(key_node, ScalarNode):
                raise UserError("a key must be text", ("from", str(where)), code="E11")
            key = str(key_node.value)
            if key == "<<" and not key_node.style:
                raise UserError(
                    "merge keys (<<) are not part of YAML 1.2", ("from", str(where)), ("try", "inherit: [file]"), code="E11"
                )
            if key in data:
                first = self.provenance.exact((*path, key))
                raise UserError(f"'{key}' is given twice", ("first", str(first)), ("again", str(where)), code="E11")
            self.provenance.put((*path, key), where)
            data[key] = self.build(value_node, (*path, key))
        return data

    def _scalar(self, node: ScalarNode) -> Any:
        text = str(node.value)
        tag = node.tag or ""
        if tag == _PLAIN:
            return scalar(text)
        if tag == _TAG + "str":
            return text
        value = scalar(text)
        wanted = {"int": int, "float": float, "bool": bool, "null": type(None)}.get(tag.removeprefix(_TAG))
        if wanted is float and type(value) is int:
            value = float(value)
        if wanted is None or type(value) is not wanted:
            raise UserError(
                f"tag {tag.replace(_TAG, '!!')} cannot be used for {text!r}", ("from", str(self._where(node))), code="E11"
            )
        return value

    def _tagged(self, node: Node, expected: str) -> None:
        if node.tag not in (_TAG + expected, "!"):
            shown = str(node.tag).replace(_TAG, "!!")
            raise UserError(f"tag {shown} is not known", ("from", str(self._where(node))), code="E11")

    def _where(self, node: Node) -> Where:
        return Where(self.source, node.start_mark.line + 1, node.start_mark.column + 1)


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

    def represent_list_data(self, value: Any) -> SequenceNode:
        return cast(SequenceNode, self.represent_sequence(_TAG + "seq", value))


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
_REPRESENTERS: dict[Any, Callable[..., Any]] = {
    float: _Dumper.represent_float,
    str: _Dumper.represent_text,
    dict: _Dumper.represent_mapping_data,
    list: _Dumper.represent_list_data,
    tuple: _Dumper.represent_list_data,
}
for _kind, _how in _REPRESENTERS.items():
    _Dumper.add_representer(_kind, _how)


def _unreadable(problem: yaml.YAMLError, source: str) -> NoReturn:
    mark = getattr(problem, "problem_mark", None)
    place = Where(source, mark.line + 1, mark.column + 1) if mark is not None else Where(source)
    what = " ".join(str(part) for part in (getattr(problem, "context", None), getattr(problem, "problem", None)) if part)
    raise UserError(f"not readable as YAML: {what or problem}", ("from", str(place)), code="E11") from problem
