"""What has changed in a run since a page was last told."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from srl.dashboard.curves import evaluations, parsed
from srl.dashboard.runs import moment
from srl.store.run_folder import RunFolder

_AT_ONCE = 1 << 20
"""Bytes of metrics.jsonl that are read at a time."""


class News:
    """Of one run, for one page."""

    def __init__(self, name: str, run: RunFolder, seen: int) -> None:
        self._name, self._run = name, run
        self._seen = seen
        """Bytes of metrics.jsonl that the page has."""
        self._changed: tuple[int, ...] = ()

    def latest(self) -> Iterator[bytes]:
        """Messages as JSON: new rows of metrics.jsonl, and the state of the run if a file of it has changed."""
        if rows := self._rows():
            told: dict[str, Any] = {"id": self._name, "end": self._seen, "rows": [row for row in rows if "rate/env" in row]}
            if len(told["rows"]) < len(rows):
                told["evaluations"] = evaluations(self._run)
            yield _packed(told)
        run = self._run
        changed = (*(_time_of(path) for path in (run.live, run.status, run.events, run.videos)), run.is_live)
        if changed != self._changed:
            self._changed = changed
            yield _packed({"id": self._name, **moment(run)})

    def _rows(self) -> list[dict[str, Any]]:
        """Whole lines since the last call."""
        try:
            with self._run.metrics.open("rb") as file:
                file.seek(self._seen)
                whole = file.read(_AT_ONCE).rpartition(b"\n")[0]
        except OSError:
            return []
        self._seen += len(whole) + 1 if whole else 0
        return parsed(whole.split(b"\n")) if whole else []


def _packed(data: dict[str, Any]) -> bytes:
    return json.dumps(data, separators=(",", ":")).encode()


def _time_of(path: Any) -> int:
    try:
        found: int = path.stat().st_mtime_ns
    except OSError:
        return 0
    return found
