"""Numbers and lists for people: counts with their noun, sizes in bytes, durations, labels in a column."""

from __future__ import annotations

import textwrap
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from srl.core.option import written

_WHOLE_WORDS: Any = {"break_long_words": False, "break_on_hyphens": False}


def count(number: int, noun: str) -> str:
    """`1 env`, `12,288 steps`, `2 minibatches`."""
    if number != 1:
        noun = f"{noun[:-1]}ies" if noun.endswith("ory") else f"{noun}es" if noun.endswith(("s", "tch")) else f"{noun}s"
    return f"{number:,} {noun}"


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


def aligned(lines: Iterable[tuple[str, str]], columns: int | None = None) -> str:
    """Labels in one column, texts in the next, folded at words where they are longer than `columns`."""
    pairs = list(lines)
    width = max((len(label) for label, _ in pairs), default=0)
    rows = []
    for label, text in pairs:
        folded = text.split("\n")
        if columns is not None:
            room = max(20, columns - width - 2)
            folded = [part for each in folded for part in textwrap.wrap(each, room, **_WHOLE_WORDS) or [""]]
        first, *rest = folded
        rows.append(f"{label:<{width}}  {first}")
        rows += [f"{'':<{width}}  {each}" for each in rest]
    return "\n".join(row.rstrip() for row in rows)


def columns(rows: Sequence[Sequence[str]], *, right: Collection[int] = ()) -> str:
    """Cells below each other; the columns `right` are set to the right."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join(
        "  ".join(cell.rjust(widths[i]) if i in right else cell.ljust(widths[i]) for i, cell in enumerate(row)).rstrip()
        for row in rows
    )


def figure(value: float | None) -> str:
    """`1,200`, `0.512`, `487.2`; empty for None."""
    if value is None:
        return ""
    return f"{value:,}" if isinstance(value, int) else f"{value:,.4g}" if abs(value) < 9999.5 else f"{value:,.0f}"


def clock_time(seconds: float) -> str:
    """`00:12:41`, days in front when there are any."""
    days, rest = divmod(int(seconds), 86400)
    text = f"{rest // 3600:02d}:{rest // 60 % 60:02d}:{rest % 60:02d}"
    return f"{days}d {text}" if days else text


def mean_and_spread(values: Sequence[float]) -> str:
    """`487.2 ± 12.3`: mean and standard deviation."""
    mean = sum(values) / len(values)
    spread = (sum((value - mean) ** 2 for value in values) / max(1, len(values) - 1)) ** 0.5
    return f"{figure(mean)} ± {figure(spread)}" if len(values) > 1 else figure(mean)


def settings(values: Mapping[str, Any]) -> str:
    """`lr=0.001 hidden=[64, 64]`"""
    return " ".join(f"{key}={written(value)}" for key, value in values.items())
