"""Recordings: slabs of a stream in numbered `.npz` files, the newest of them within a size. A file has an array for each leaf,
`slabs/obs` and so on, with an axis for the slabs in front, and `time`, when each slab came. `recording.json` says what they are
of. `replay.data` reads them (srl/replay/dataset.py), and the worker `playback`."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from srl.api.env import Box, Discrete, MultiBinary, MultiDiscrete
from srl.core.errors import CannotWrite, UserError
from srl.core.spec import Leaf, from_plain, lead, to_plain, total_bytes, zeros
from srl.core.tree import Array, copy_into, leaves, map_tree

PREFIX = "slabs/"
_ABOUT = "recording.json"
_FILE = 32 << 20
"""Bytes of the slabs of one file, about."""
_UNUSED = ("version", "reused", "origin", "memory", "choice", "first", "valid", "time")
"""Leaves of slabs that are no columns of rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class About:
    """What slabs do not say themselves."""

    env: str
    """The name of an env without settings; else empty."""
    action: Any
    """The action space of one agent (`ActionSpec`)."""
    bounds: str
    """How recorded actions become those of the env (`srl.api.actions.action_map`)."""
    record: Any
    """The spec of a slab."""
    groups: int
    """Groups of envs whose slabs are recorded."""

    def write(self, folder: Path) -> None:
        """Into the folder of the recording."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / _ABOUT).write_text(json.dumps(to_plain(self)))

    @staticmethod
    def read(folder: Path) -> About:
        """The inverse of `write`."""
        try:
            found = from_plain(
                json.loads((folder / _ABOUT).read_text()), (About, Leaf, Discrete, MultiDiscrete, MultiBinary, Box)
            )
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise _none(folder, str(error)) from error
        if not isinstance(found, About):
            raise _none(folder, f"{_ABOUT} of another kind")
        return found


class Recording:
    """Slabs are copied when they come and written when a file is full. Files before the newest ones are deleted."""

    def __init__(self, folder: Path, record: Any, *, limit: int) -> None:
        """`limit`: bytes of all files together, at most; there is always one."""
        self.folder, self._limit = folder, limit
        self.written = 0
        """Bytes of all files that are there."""
        self._slabs = max(1, min(_FILE, limit // 4) // max(total_bytes(record), 1))
        self._held: dict[str, Any] = zeros(lead(record, self._slabs))
        self._times = np.zeros(self._slabs)
        self._count = 0
        folder.mkdir(parents=True, exist_ok=True)
        self._files = _files(folder)
        self._number = int(self._files[-1].stem) + 1 if self._files else 0
        self.written = sum(file.stat().st_size for file in self._files)

    def put(self, slab: Mapping[str, Any]) -> None:
        """Copy a slab, and write a file if it is full."""
        copy_into(map_tree(lambda leaf: leaf[self._count], self._held), slab)
        self._times[self._count] = time.time()
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
                np.savez(stream, time=self._times[: self._count], **arrays)
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
    """The files of a recording, oldest first; there is at least one."""
    files = _files(folder)
    if not files:
        raise _none(folder, "no file such as 000000.npz")
    return files


def slabs_in(data: Any, names: Sequence[str] = ()) -> dict[str, Array]:
    """The leaves of the slabs in an open file, or those of these names; none if it is of another kind."""
    found = {name.removeprefix(PREFIX): name for name in data.files if name.startswith(PREFIX)}
    return {path: data[name] for path, name in found.items() if not names or path in names}


def slabs_of(folder: Path) -> Iterator[dict[str, Array]]:
    """The leaves of the slabs of one file after the other."""
    for file in files_of(folder):
        with np.load(file, allow_pickle=False) as data:
            yield slabs_in(data) | {"time": data["time"]}


def played(folder: Path) -> Iterator[tuple[float, dict[str, Array]]]:
    """Every slab, oldest first, and the seconds between it and the first one of its file."""
    for slabs in slabs_of(folder):
        times = slabs.pop("time")
        yield from ((float(at - times[0]), {path: leaf[i] for path, leaf in slabs.items()}) for i, at in enumerate(times))


def check_record(folder: str, wanted: Any, recorded: Any) -> None:
    """UserError if recorded slabs lack what slabs of a run have. Memories may be of another kind, and nothing need follow."""
    have = dict(leaves(recorded))
    for path, leaf in leaves(wanted):
        if have.get(path) != leaf and path.partition("/")[0] not in ("memory", "origin"):
            raise UserError(
                f"the recording {folder} must have `{path}`, {leaf}, in its slabs",
                ("found", str(have.get(path, "nothing of this name"))),
                ("try", "the env and the kind of algorithm that it was recorded with"),
                code="E11",
            )


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


def _files(folder: Path) -> list[Path]:
    return sorted(file for file in folder.glob("*.npz") if file.stem.isdigit())


def _none(folder: Path, found: str) -> UserError:
    return UserError(
        f"there is no recording in {folder}",
        ("found", found),
        ("expected", f"{_ABOUT} and files such as 000000.npz, which `record: FOLDER` writes"),
        code="E11",
    )
