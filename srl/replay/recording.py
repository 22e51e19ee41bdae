"""Recordings: slabs of a stream in numbered `.npz` files, the newest of them within a size. A file has an array for each leaf,
`slabs/obs` and so on, with an axis for the slabs in front. `replay.data` reads them (srl/replay/dataset.py)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from srl.core.errors import CannotWrite
from srl.core.spec import lead, total_bytes, zeros
from srl.core.tree import Array, copy_into, leaves, map_tree

PREFIX = "slabs/"
_FILE = 32 << 20
"""Bytes of the slabs of one file, about."""
_UNUSED = ("version", "reused", "origin", "memory", "choice", "first", "valid")
"""Leaves of slabs that are no columns of rows."""


class Recording:
    """Slabs are copied when they come and written when a file is full. Files before the newest ones are deleted."""

    def __init__(self, folder: Path, record: Any, *, limit: int) -> None:
        """`limit`: bytes of all files together, at most; there is always one."""
        self.folder, self._limit = folder, limit
        self.written = 0
        """Bytes of all files that are there."""
        self._slabs = max(1, min(_FILE, limit // 4) // max(total_bytes(record), 1))
        self._held: dict[str, Any] = zeros(lead(record, self._slabs))
        self._count = 0
        folder.mkdir(parents=True, exist_ok=True)
        self._files = files_of(folder)
        self._number = int(self._files[-1].stem) + 1 if self._files else 0
        self.written = sum(file.stat().st_size for file in self._files)

    def put(self, slab: Mapping[str, Any]) -> None:
        """Copy a slab, and write a file if it is full."""
        copy_into(map_tree(lambda leaf: leaf[self._count], self._held), slab)
        self._count += 1
        if self._count == self._slabs:
            self.flush()

    def flush(self) -> None:
        """Write what is held. A file is whole or absent."""
        if not self._count:
            return
        file = self.folder / f"{self._number:06d}.npz"
        aside = file.with_suffix(".tmp")
        arrays: dict[str, Any] = {f"{PREFIX}{path}": leaf[: self._count] for path, leaf in leaves(self._held)}
        try:
            with aside.open("wb") as stream:
                np.savez(stream, **arrays)
            aside.replace(file)
        except OSError as error:
            raise CannotWrite(f"the recording {file} cannot be written: {error}") from error
        self._number, self._count = self._number + 1, 0
        self._files.append(file)
        self.written += file.stat().st_size
        while self.written > self._limit and len(self._files) > 1:
            oldest = self._files.pop(0)
            self.written -= oldest.stat().st_size
            oldest.unlink()


def files_of(folder: Path) -> list[Path]:
    """The files of a recording, oldest first."""
    return sorted(file for file in folder.glob("*.npz") if file.stem.isdigit())


def columns_of(arrays: Mapping[str, Array]) -> Iterator[dict[str, Array]]:
    """The rows of every env and agent in the order in which they were lived, with those that follow them (`next_obs`). `begins`
    and `ended` are true where an episode did so; `truncated` also where it is not known how it went on.

    `arrays`: of one file, without the prefix. Slabs that follow each other are joined where they say which they are.
    """
    valid = arrays["valid"]
    for chain in _chains(arrays.get("origin"), len(valid)):
        for env in range(valid.shape[2]):
            for agent in range(valid.shape[3]):
                yield _column(arrays, chain, env, agent)


def _chains(origin: Array | None, count: int) -> list[list[int]]:
    """Slabs that lie behind each other without a gap."""
    if origin is None:
        return [[one] for one in range(count)]
    chains: list[list[int]] = []
    newest: dict[int, list[int]] = {}
    for slab in range(count):
        first, number = origin[slab].tolist()
        chain = newest.get(first)
        if chain is None or origin[chain[-1]][1] != number - 1:
            chain = newest[first] = []
            chains.append(chain)
        chain.append(slab)
    return chains


def _column(arrays: Mapping[str, Array], chain: Sequence[int], env: int, agent: int) -> dict[str, Array]:
    steps = arrays["valid"].shape[1]
    valid = np.append(np.concatenate([arrays["valid"][slab, :, env, agent] for slab in chain]), False)
    now = np.flatnonzero(valid)
    rows: dict[str, Array] = {}
    for path, array in arrays.items():
        name = path.partition("/")[0]
        if name in _UNUSED:
            continue
        place: tuple[Any, ...] = (env,) if name == "state" else (env, agent)
        parts = [array[(slab, slice(0, steps), *place)] for slab in chain]
        if array.shape[1] > steps:
            parts.append(array[(chain[-1], slice(steps, steps + 1), *place)])
        whole = np.concatenate(parts)
        rows[path] = whole[now]
        if array.shape[1] > steps:
            rows[f"next_{path}"] = whole[now + 1]
    rows["begins"] = np.concatenate([arrays["first"][slab, :steps, env, agent] for slab in chain])[now]
    rows["ended"] = rows["truncated"] | rows["terminated"]
    rows["truncated"] = rows["truncated"] | (~valid[now + 1] & ~rows["terminated"])  # at a gap, and at the newest row
    return rows
