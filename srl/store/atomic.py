"""Files that are either whole or absent: written aside, synced, renamed. What cannot be written is a CannotWrite."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path

from srl.core.errors import CannotWrite

_FULL = (errno.ENOSPC, errno.EDQUOT)


def replace_file(path: Path, content: str | bytes) -> None:
    """Put `content` in place of `path` in one step; after a crash the old or the new content is there, never a part."""
    aside = path.with_name(f".tmp-{path.name}-{os.getpid()}")
    with writing(path):
        try:
            write_synced(aside, content)
            aside.replace(path)
        except OSError:
            aside.unlink(missing_ok=True)
            raise
        sync_folder(path.parent)


def swap_file(path: Path, content: str) -> None:
    """The same without waiting for the disk: for what is written every second and worth nothing after a crash."""
    aside = path.with_name(f".tmp-{path.name}")
    with writing(path):
        aside.write_text(content, encoding="utf-8")
        aside.replace(path)


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Report an OSError raised inside as CannotWrite."""
    try:
        yield
    except OSError as error:
        hint = "free some space there, then continue with --resume" if error.errno in _FULL else "a folder that you may write to"
        raise CannotWrite(f"cannot write {path}", ("found", error.strerror or str(error)), ("try", hint)) from error


def write_synced(path: Path, content: str | bytes) -> None:
    """Write a file and wait until the disk has it."""
    data = content.encode() if isinstance(content, str) else content
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def sync_folder(path: Path) -> None:
    """Wait until the disk has the names in a folder (a rename is durable only then)."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
