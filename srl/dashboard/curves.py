"""Curves of a run as columns. Of a long metrics.jsonl only lines at even distances are read, so that pages open at once."""

from __future__ import annotations

import csv
import json
import os
from pathlib import Path
from typing import Any, BinaryIO

from srl.core.errors import UserError
from srl.store.run_folder import RunFolder

POINTS = 1000
"""Points of a curve, at most about twice as many."""
_LONGEST = 1 << 16
"""Bytes of the longest line that is looked for."""
_OWN = ("time", "nonfinite")

Columns = dict[str, list[float | None]]


def read_curves(run: RunFolder, *, points: int = POINTS) -> dict[str, Any]:
    """`columns`: every figure by name, with `wall`, `env_steps` and `update`; `evaluations`: those of eval.csv.

    `end`: bytes read; `thinned`: lines that one line stands for.
    """
    rows, end, thinned = read_rows(run.metrics, points)
    rows = [row for row in rows if "rate/env" in row]  # evaluations have lines of their own, and come from eval.csv
    return {"columns": columns(rows), "evaluations": evaluations(run), "end": end, "thinned": thinned}


def columns(rows: list[dict[str, Any]]) -> Columns:
    """The rows by name; None where a row lacks a name."""
    names = dict.fromkeys(name for row in rows for name in row if name not in _OWN)
    return {name: [_rounded(row.get(name)) for row in rows] for name in names}


def evaluations(run: RunFolder) -> Columns:
    """eval.csv by name, in the order of env steps."""
    try:
        rows = run.read_eval()
    except (UserError, csv.Error):
        return {}
    rows.sort(key=lambda row: _number(row.get("env_steps")) or 0.0)
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: [_rounded(_number(row.get(name))) for row in rows] for name in names}


def read_rows(path: Path, points: int = POINTS) -> tuple[list[dict[str, Any]], int, int]:
    """The rows of a file of JSON lines, at most about 2 * `points` of them; the bytes they are of; how many one stands for."""
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            start = file.read(_LONGEST)
            lines = start.count(b"\n") or 1
            each = len(start) / lines  # bytes a line, about
            if size <= 2 * points * each:
                file.seek(0)
                whole, _, _ = file.read(size).rpartition(b"\n")
                return parsed(whole.split(b"\n")), len(whole) + 1 if whole else 0, 1
            found = [_line_at(file, round(size * number / points)) for number in range(points)]
            file.seek(max(0, size - _LONGEST))
            tail, _, _ = file.read(min(size, _LONGEST)).rpartition(b"\n")
            found.append(tail.rpartition(b"\n")[2])  # the newest line is always there
            end = max(0, size - _LONGEST) + len(tail) + 1
            return parsed(list(dict.fromkeys(found))), end, max(1, round(size / each / points))
    except OSError:
        return [], 0, 1


def _line_at(file: BinaryIO, place: int) -> bytes:
    """The first whole line from this byte on."""
    file.seek(place)
    if place:
        file.readline(_LONGEST)
    return file.readline(_LONGEST).rstrip(b"\n")


def parsed(lines: list[bytes]) -> list[dict[str, Any]]:
    """Lines that a crash has torn are left out."""
    rows = []
    for line in lines:
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(row, dict):
            rows.append(row)
    return rows


def _number(text: str | None) -> float | None:
    try:
        return float(text or "")
    except ValueError:
        return None


def _rounded(value: Any) -> float | None:
    """Six digits are more than a curve shows."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    return float(f"{value:.6g}") if isinstance(value, float) and abs(value) < float("inf") else None
