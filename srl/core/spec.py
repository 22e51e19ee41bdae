"""Specs: trees of (shape, dtype). They are agreed before the start, hashed, and travel as plain lists."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, TypeAlias

import numpy as np

from srl.core.errors import Fact, UserError
from srl.core.tree import leaves, map_tree


@dataclass(frozen=True, slots=True)
class Leaf:
    """The shape and numpy dtype name of one array."""

    shape: tuple[int, ...]
    dtype: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", tuple(int(size) for size in self.shape))
        object.__setattr__(self, "dtype", np.dtype(self.dtype).name)

    @property
    def nbytes(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64)) * np.dtype(self.dtype).itemsize

    def __str__(self) -> str:
        return f"{self.dtype} {self.shape}"


TreeSpec: TypeAlias = "Leaf | dict[str, Any]"


def lead(spec: Any, *axes: int) -> Any:
    """The spec with `axes` in front of every leaf."""
    return map_tree(lambda leaf: Leaf((*axes, *leaf.shape), leaf.dtype), spec)


def spec_of(tree: Any) -> Any:
    """The spec of a tree of arrays."""
    return map_tree(lambda leaf: Leaf(np.shape(leaf), np.asarray(leaf).dtype.name), tree)


def zeros(spec: Any) -> Any:
    """A tree of zeros that fits the spec."""
    return map_tree(lambda leaf: np.zeros(leaf.shape, leaf.dtype), spec)


def digest(spec: Any) -> str:
    """16 hex digits that differ when any path, shape or dtype does."""
    flat = [[path, list(leaf.shape), leaf.dtype] for path, leaf in leaves(spec)]
    return hashlib.sha256(json.dumps(flat).encode()).hexdigest()[:16]


def total_bytes(spec: Any) -> int:
    """Bytes of one tree that fits the spec, without alignment."""
    return sum(leaf.nbytes for _, leaf in leaves(spec))


def differences(expected: Any, found: Any) -> list[str]:
    """One line for every leaf that is missing, unknown or of another shape or dtype."""
    want, have = dict(leaves(expected)), dict(leaves(found))
    lines = [f"{path or 'value'}: missing, expected {leaf}" for path, leaf in want.items() if path not in have]
    lines += [f"{path or 'value'}: not expected" for path in have if path not in want]
    lines += [
        f"{path or 'value'}: expected {want[path]}, got {have[path]}"
        for path in want
        if path in have and want[path] != have[path]
    ]
    return lines


def differing(want: Mapping[str, Any], have: Mapping[str, Any]) -> list[str]:
    """The names that are in one of both only, or differ."""
    return [name for name in {**want, **have} if want.get(name) != have.get(name)]


def check_layers(what: str, want: Mapping[str, Any], have: Mapping[str, Any], *facts: Fact) -> None:
    """E09 if the layers of a network are not those of a checkpoint. `want`, `have`: leaves or shapes by name, here and there."""
    if wrong := differing(want, have):
        there, here = (one.get(wrong[0], "absent") for one in (have, want))
        others = [("others that differ", ", ".join(wrong[1:]))] if wrong[1:] else []
        raise UserError(f"{what}: layer '{wrong[0]}' is {there} there and {here} here", *facts, *others, code="E09")


# specs of a whole run as plain data: unions and nested trees, so each dataclass says which class it was -----------------

_CLASS = "$"


def to_plain(value: Any) -> Any:
    """Dicts, lists, text and numbers; a dataclass is a dict with its name under `$`."""
    if is_dataclass(value) and not isinstance(value, type):
        return {_CLASS: type(value).__name__} | {one.name: to_plain(getattr(value, one.name)) for one in fields(value)}
    if isinstance(value, Mapping):
        return {key: to_plain(one) for key, one in value.items()}
    return [to_plain(one) for one in value] if isinstance(value, list | tuple) else value


def from_plain(data: Any, classes: Iterable[type]) -> Any:
    """The inverse of `to_plain` for these classes and no others; sequences in their fields are tuples."""
    known = {one.__name__: one for one in classes}

    def build(data: Any) -> Any:
        if isinstance(data, list):
            return [build(one) for one in data]
        if not isinstance(data, dict):
            return data
        values = {key: build(one) for key, one in data.items() if key != _CLASS}
        if _CLASS not in data:
            return values
        return known[data[_CLASS]](**{key: tuple(one) if isinstance(one, list) else one for key, one in values.items()})

    return build(data)
