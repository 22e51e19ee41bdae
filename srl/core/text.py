"""Numbers and nouns in sentences."""

from __future__ import annotations


def count(number: int, noun: str) -> str:
    """`1 env`, `12,288 steps`, `2 minibatches`."""
    ending = "" if number == 1 else "es" if noun.endswith(("s", "tch")) else "s"
    return f"{number:,} {noun}{ending}"
