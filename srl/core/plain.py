"""Dataclasses as plain data that says which class it was, for msgpack: specs, which are unions and nested trees."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

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
