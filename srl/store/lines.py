"""JSON lines: one object a line, appended whole; a line torn by a crash is skipped, never glued to the next."""

from __future__ import annotations

import json
import math
import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from srl.core.files import bad_file, refuse_irregular
from srl.store.atomic import writing


class LineFile:
    """An append-only file of JSON objects. Several processes may append: each line is one write."""

    def __init__(self, path: Path) -> None:
        self.path = path
        refuse_irregular(path)
        with writing(path):
            self._descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            size = os.fstat(self._descriptor).st_size
            if size and os.pread(self._descriptor, 1, size - 1) != b"\n":  # a crash tore the last line
                os.write(self._descriptor, b"\n")

    def append(self, row: Mapping[str, Any]) -> None:
        """Write one line; it is in the file when this returns."""
        line = memoryview(json.dumps(row, separators=(",", ":"), allow_nan=False, ensure_ascii=False).encode() + b"\n")
        with writing(self.path):
            while line:
                line = line[os.write(self._descriptor, line) :]

    def close(self) -> None:
        """Close the file. Idempotent."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def read_lines(path: Path) -> Iterator[dict[str, Any]]:
    """The objects of a line file in order; lines that cannot be read are skipped. Without a file there are none."""
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise bad_file(path, "a folder, pipe or device", "a file")
            for line in file:
                try:
                    row = json.loads(line)
                except (ValueError, RecursionError):
                    continue
                if isinstance(row, dict):
                    yield row
    except FileNotFoundError:
        return
    except OSError as error:
        raise bad_file(path, error.strerror or str(error)) from error


def read_numbers(path: Path) -> Iterator[dict[str, float | int | None]]:
    """The rows of metrics.jsonl: finite numbers and null only."""
    for row in read_lines(path):
        yield {key: value for key, value in row.items() if value is None or _is_number(value)}


def _is_number(value: Any) -> bool:
    return (type(value) is int and abs(value) < 2**63) or (type(value) is float and math.isfinite(value))
