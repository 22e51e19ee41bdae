"""Files of a run that travel between hosts as messages: what is new in a folder, in pieces, and how it is written elsewhere."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import TypeAlias

from srl.core.errors import HostileFrame
from srl.graph.placement import owner
from srl.graph.spec import Graph
from srl.store.atomic import replace_file, sync_folder, writing
from srl.store.weights import find_weights
from srl.workers.messages import Message

KINDS = ("file", "lines", "whole", "gone")
"""The messages that `pieces` makes and `Arrivals` takes."""

OWN = (
    *("config.yaml", "graph.yaml", "overrides.txt", "env.txt", "status.json", "params.json", "metrics.jsonl", "events.jsonl"),
    *("lock", "launch", "tb", "control.json", "live.json", "settings.json", "stop"),
)
"""Written by the controller alone."""

SEEDS = ("checkpoints", "replays", "eval.csv")
"""What a worker may read that begins, or begins again, on a host without the run folder."""

LOADED = "loaded"
"""The folder with the weights that policies start from: `loaded/POLICY`."""

PIECE = 1 << 18
"""Bytes of a file in one message."""
_TAIL = 1 << 16
"""Bytes of new lines of a log that are sent at once; of more, the last ones."""

Signature: TypeAlias = tuple[int, int, int]


def entries(folder: Path) -> dict[str, Signature]:
    """Files, and directories that appear as a whole -> what differs when they do. Hidden ones stay where they are."""
    found: dict[str, Signature] = {}
    for place, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        names = [name for name in files if not name.startswith(".")]
        if whole := [name for name in folders if _is_whole(Path(place) / name)]:
            folders[:] = [name for name in folders if name not in whole]
        for name in [*whole, *sorted(names)]:
            path = Path(place) / name
            try:
                found[str(path.relative_to(folder))] = signature(path)
            except FileNotFoundError:  # pruned meanwhile
                continue
    return found


def signature(path: Path) -> Signature:
    facts = path.stat()
    return facts.st_ino, facts.st_size, facts.st_mtime_ns


def seeds(graph: Graph, folder: Path, group: str) -> Iterator[Message]:
    """What a host of this group is sent before its first process starts: where the run folder is, and what is read of it."""
    shared = graph.hosts[group].shared
    yield {"type": "folder", "path": str(folder), "shared": shared}
    if shared:
        return
    placed = [node for node in graph.nodes if graph.node(owner(graph, node, 0)[0]).hosts == group]
    writes = any(node.kind.writes for node in placed)
    for name in entries(folder) if writes else ():
        if name.partition("/")[0] in SEEDS:
            yield from pieces(folder, name)
    for policy, entry in graph.policies.items():
        if entry.load is not None and (writes or entry.algorithm is None):
            path = find_weights(entry.load, policy)
            for piece in pieces(path.parent, path.name):
                yield _renamed(piece, path.name, f"{LOADED}/{policy}")


def _renamed(piece: Message, old: str, new: str) -> Message:
    return {key: one.replace(old, new, 1) if key in ("name", "whole") else one for key, one in piece.items()}


def pieces(folder: Path, name: str) -> Iterator[Message]:
    """A file, or a directory that appears as a whole. One that is deleted meanwhile is not complete and has no effect."""
    path = folder / name
    try:
        if not path.is_dir():
            yield from _pieces(path, name, "")
            return
        for file in sorted(path.iterdir()):
            yield from _pieces(file, f"{name}/{file.name}", name)
        yield {"type": "whole", "name": name}
    except FileNotFoundError:
        return


def new_lines(folder: Path, name: str, begin: int) -> tuple[int, Message | None]:
    """The end of what is now in a log, and what is new behind `begin`; of very much, the last lines."""
    with (folder / name).open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        file.seek(max(begin, size - _TAIL))
        data = file.read(size - file.tell())
    if size - begin > _TAIL:
        left = size - begin - len(data)
        data = b"\n... %d bytes are left out here ...\n" % left + data.partition(b"\n")[2]
    return size, {"type": "lines", "name": name, "data": data} if data else None


class Arrivals:
    """Writes what comes into a folder: only within it, and never over what is the controller's own."""

    def __init__(self, folder: Path, source: str, *, own: tuple[str, ...] = OWN) -> None:
        self._folder, self._source, self._own = folder, source, own

    def take(self, message: Message) -> None:
        """CannotWrite if that fails, HostileFrame for a name that is not allowed."""
        kind, path = message["type"], self._path(message["name"])
        with writing(path):
            if kind == "file":
                whole = self._path(message["whole"]) if message["whole"] else None
                self._file(path, whole, message["begin"], message["data"], last=message["last"])
            elif kind == "lines":
                path.parent.mkdir(parents=True, exist_ok=True)
                with path.open("ab") as file:
                    file.write(message["data"])
            elif kind == "whole":
                self._finish(path)
            else:
                _delete(path)

    def _file(self, path: Path, whole: Path | None, begin: int, data: bytes, *, last: bool) -> None:
        aside = self._aside(whole) / path.name if whole is not None else self._aside(path)
        if not begin and last and whole is None:
            path.parent.mkdir(parents=True, exist_ok=True)
            replace_file(path, data)
            return
        aside.parent.mkdir(parents=True, exist_ok=True)
        with aside.open("r+b" if begin else "wb") as file:
            file.seek(begin)
            file.write(data)
            if last:
                file.flush()
                os.fsync(file.fileno())
        if last and whole is None:
            aside.replace(path)

    def _finish(self, path: Path) -> None:
        aside = self._aside(path)
        sync_folder(aside)
        if path.exists():
            path.rename(path.with_name(f"{aside.name}-old"))
            shutil.rmtree(path.with_name(f"{aside.name}-old"))
        aside.rename(path)
        sync_folder(path.parent)

    def _aside(self, path: Path) -> Path:
        return path.with_name(f".tmp-{path.name}-{self._source}")

    def _path(self, name: str) -> Path:
        parts = PurePosixPath(name).parts
        wrong = not parts or len(parts) > 16 or any(part.startswith((".", "/")) or "\0" in part for part in parts)
        if wrong or parts[0] in self._own or len(name) > 1000:
            raise HostileFrame("a file from another host has a name that is not allowed", ("found", repr(name[:100])))
        return self._folder.joinpath(*parts)


def changes(folder: Path, before: Mapping[str, Signature], now: Mapping[str, Signature]) -> list[str]:
    """Names that are new or differ; directories first, so that what points to them comes after them."""
    new = [name for name, signature in now.items() if before.get(name) != signature]
    return sorted(new, key=lambda name: not (folder / name).is_dir())


def _pieces(path: Path, name: str, whole: str) -> Iterator[Message]:
    with path.open("rb") as file:
        size, begin = os.fstat(file.fileno()).st_size, 0
        while True:
            data = file.read(PIECE)
            last = begin + len(data) >= size or not data
            yield {"type": "file", "name": name, "whole": whole, "begin": begin, "data": data, "last": last}
            begin += len(data)
            if last:
                return


def _is_whole(path: Path) -> bool:
    """Directories that their writer renames into place and never changes."""
    return path.parent.name == "replays" or (path / "manifest.json").is_file()


def _delete(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
