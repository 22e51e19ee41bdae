"""The folder of a run on a host that does not see the real one: workers write here, and what is new is sent to the controller."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from srl.cluster.files import LOADED, Arrivals, Signature, changes, entries, new_lines, pieces, signature
from srl.workers.messages import Message

_PREFIX = "srl-spool-"
_LOCK = ".lock"
_SETTLED = 0.5
"""Seconds since the last change of a file that is written bit by bit."""


class Spool:
    """Made in the folder for temporary files; deleted by `close`, or by the next spool if this process is killed."""

    def __init__(self) -> None:
        sweep()
        made = Path(tempfile.mkdtemp(prefix=f".{_PREFIX}"))
        self._lock = (made / _LOCK).open("wb")
        fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        self.path = made.rename(made.with_name(made.name.removeprefix(".")))  # only now can another spool find it
        for name in ("logs", "videos", "checkpoints"):
            (self.path / name).mkdir()
        self._arrivals = Arrivals(self.path, "home", own=())
        self._known: dict[str, Signature] = {}
        """What the controller has."""
        self._sent: dict[str, int] = {}
        """Log -> bytes that were sent."""

    def take(self, message: Message) -> None:
        """A file of the controller."""
        self._arrivals.take(message)
        if message["type"] == "whole" or (message["type"] == "file" and message["last"] and not message["whole"]):
            self._known[message["name"]] = signature(self.path / message["name"])

    def changes(self, *, final: bool = False) -> Iterator[Message]:
        """What the controller does not have yet. `final`: also what was written a moment ago."""
        now = entries(self.path)
        yield from self._lines(name for name in now if name.startswith("logs/"))
        files = {name: one for name, one in now.items() if not name.startswith(("logs/", f"{LOADED}/"))}
        young = time.time_ns() - int(1e9 * _SETTLED)
        for name in changes(self.path, self._known, files):
            if not final and files[name][2] > young and not (self.path / name).is_dir():
                continue
            yield from pieces(self.path, name)
            self._known[name] = files[name]
        for name in [name for name in self._known if name not in now]:
            yield {"type": "gone", "name": name}
            del self._known[name]

    def close(self) -> None:
        """Delete it. Idempotent."""
        shutil.rmtree(self.path, ignore_errors=True)
        self._lock.close()

    def _lines(self, names: Iterator[str]) -> Iterator[Message]:
        for name in names:
            self._sent[name], message = new_lines(self.path, name, self._sent.get(name, 0))
            if message is not None:
                yield message


def sweep() -> None:
    """Delete the spools of this user whose process is gone."""
    for path in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):
            if path.stat().st_uid != os.getuid():
                continue
            with (path / _LOCK).open("rb") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(path, ignore_errors=True)
