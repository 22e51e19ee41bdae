"""Files that are either whole or absent: written aside, synced, renamed."""

from __future__ import annotations

import os
from pathlib import Path


def replace_file(path: Path, content: str | bytes) -> None:
    """Put `content` in place of `path` in one step; after a crash the old or the new content is there, never a part."""
    aside = path.with_name(f".tmp-{path.name}-{os.getpid()}")
    write_synced(aside, content)
    aside.replace(path)
    sync_folder(path.parent)


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
