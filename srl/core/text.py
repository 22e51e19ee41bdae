"""Numbers and lists for people: counts with their noun, sizes in bytes, labels in a column."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any


def count(number: int, noun: str) -> str:
    """`1 env`, `12,288 steps`, `2 minibatches`."""
    ending = "" if number == 1 else "es" if noun.endswith(("s", "tch")) else "s"
    return f"{number:,} {noun}{ending}"


def size(number: float) -> str:
    """Bytes: `3.1 GB`."""
    for unit in ("B", "kB", "MB", "GB"):
        if number < 1000:
            return f"{number:.0f} {unit}" if unit == "B" or number >= 100 else f"{number:.1f} {unit}"
        number /= 1000
    return f"{number:.1f} TB"


def article(noun: str) -> str:
    """`an infer`, `a sample`."""
    return f"{'an' if noun[0] in 'aeiou' else 'a'} {noun}"


def aligned(lines: Iterable[tuple[str, str]]) -> str:
    """Labels in one column, texts in the next; a text of several lines stays in its column."""
    pairs = list(lines)
    width = max((len(label) for label, _ in pairs), default=0)
    rows = []
    for label, text in pairs:
        first, *rest = text.split("\n")
        rows.append(f"{label:<{width}}  {first}")
        rows += [f"{'':<{width}}  {each}" for each in rest]
    return "\n".join(row.rstrip() for row in rows)


def settings(values: Mapping[str, Any]) -> str:
    """`lr=0.001 hidden=[64, 64]`"""
    return " ".join(f"{key}={_value(value)}" for key, value in values.items())


def _value(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {_value(one)}" for key, one in value.items()) + "}"
    return "[" + ", ".join(map(_value, value)) + "]" if isinstance(value, list | tuple) else str(value)
