"""JSON lines: one object a line, appended whole; a line torn by a crash is skipped, never glued to the next."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from srl.store.atomic import writing


class LineFile:
    """An append-only file of JSON objects. Several processes may append: each line is one write."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with writing(path):
            self._descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
            self._end_torn_line()

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

    def _end_torn_line(self) -> None:
        size = os.fstat(self._descriptor).st_size
        if size and os.pread(self._descriptor, 1, size - 1) != b"\n":
            os.write(self._descriptor, b"\n")


def read_lines(path: Path) -> Iterator[dict[str, Any]]:
    """The objects of a line file in order, without what a crash tore. No file, no objects."""
    if not path.exists():
        return
    with path.open("rb") as file:
        for line in file:
            try:
                row = json.loads(line)
            except ValueError:
                continue
            if isinstance(row, dict):
                yield row
