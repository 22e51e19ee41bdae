"""Fixed data sets: recorded episodes in `.npz` files, as a store that batches are drawn from.

A file holds rows in the order in which they were lived, of one episode or of several one after another:

    obs, action, reward, terminated, truncated     [N, ...]; parts of a Dict as `obs/screen`
    next_obs                                       [N, ...], or obs has N + 1 rows

and what else the rows of the run have: `mask`, `state`, `extra/NAME`, `signals/NAME`, and `next_mask` and so on. The names of
D4RL and Minari are known too. The last row of an episode that did not terminate is left out if its next observation is not known.

Or recorded slabs (srl/replay/recording.py), or replays that another run has saved (`replays` in its folder), or `minari:NAME`, a
data set of Minari (srl/replay/minari.py).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from zipfile import BadZipFile, ZipFile

import numpy as np

from srl.api.slab import Window
from srl.core.errors import UserError
from srl.core.spec import Leaf
from srl.core.tree import Array, build, leaves
from srl.replay import saved
from srl.replay.recording import PREFIX, columns_of, slabs_in
from srl.replay.rings import ASKED, OF_SLABS, RingShape
from srl.replay.store import Store

_ALIASES = {
    "observations": "obs",
    "next_observations": "next_obs",
    "actions": "action",
    "rewards": "reward",
    "terminals": "terminated",
    "terminations": "terminated",
    "timeouts": "truncated",
    "truncations": "truncated",
}
_ENDS = ("terminated", "truncated")
_RINGS = "rings/"


def load_dataset(
    path: Path, record: Mapping[str, Any], *, window: Window, n_step: int = 1, gamma: float = 0.99, history: Sequence[str] = (),
    alpha: float | None = None, actions: Callable[[Any], Any] = lambda tree: tree,
) -> Store:  # fmt: skip
    """All rows of a file, or of the files or saved replays in a folder. `record`: of the slabs whose rows they are to be like.

    `actions`: from those of the env to recorded ones (`srl.api.actions.recorded_action`). Memories are zeros.
    """
    sizes = [high - low for _, rows, _ in _tables(path, ("reward", "valid", *_ENDS)) for low, high in _episodes(rows)]
    shape = RingShape.of(record, columns=1, size=1 << 40, window=window, history=history)
    apart = shape.behind + 1 + shape.every
    size = sum(sizes) + apart * (len(sizes) + 2) + shape.window.rows + record["reward"].shape[0]
    store = Store(record, columns=1, size=size, window=window, n_step=n_step, gamma=gamma, alpha=alpha, history=history)
    for file, rows, recorded in _tables(path):
        if not recorded:
            given = {name.partition("/")[2]: leaf for name, leaf in rows.items() if name.partition("/")[0] == "action"}
            rows |= dict(leaves(actions(build(given)), "action"))
        rows = {leaf: _fitting(rows, leaf, inner, file) for leaf, inner in _inner(record, rows)}
        for low, high in _episodes(rows):
            if not (rows["terminated"][high - 1] or all(_next(rows, name, high) is not None for name in rows if _is_asked(name))):
                high -= 1
            if high > low:
                store.insert(_slab(record, rows, low, high, shape.every), 0, False)
    if not len(store):
        raise UserError(f"the data set {path} has no window of {shape.window.rows} rows", code="E11")
    return store


def minari_name(path: str | Path) -> str | None:
    """NAME of `minari:NAME`; None if it is the path of files."""
    kind, _, name = str(path).partition(":")
    return name if kind == "minari" else None


def data_bytes(path: Path) -> int:
    """About the memory that its rows take."""
    if (name := minari_name(path)) is not None:
        from srl.replay import minari  # which needs gymnasium

        return minari.row_bytes(name)
    sizes = 0
    for file in _files(path):
        if file.is_dir():
            sizes += sum(array.nbytes for name, array in saved.read(file).items() if _RINGS in name)
            continue
        with _reading(file), ZipFile(file) as archive:
            sizes += sum(part.file_size for part in archive.infolist() if not part.filename.startswith("next_"))
    return sizes


def _files(path: Path) -> list[Path]:
    """Files of rows, or folders of saved replays."""
    files = sorted(path.glob("*.npz")) if path.is_dir() else [path]
    files = files or [folder for folder in (path, *sorted(path.iterdir())) if next(folder.glob("*.npy"), None)]
    if not files or not files[0].exists():
        raise UserError(f"the data set {path} has no file that ends with .npz, and no saved replay", code="E11")
    return files


def _tables(path: Path, names: Sequence[str] = ()) -> Iterator[tuple[Path, dict[str, Array], bool]]:
    """(file, its rows in order by our names, whether actions are as policies record them)."""
    if (name := minari_name(path)) is not None:
        from srl.replay import minari

        yield from ((path, rows, False) for rows in minari.episodes(name))
        return
    for file in _files(path):
        if file.is_dir():
            yield from ((file, rows, True) for rows in _kept(file, names))
        elif (slabs := _slabs_in(file, names)) is not None:
            yield from ((file, rows, True) for rows in columns_of(slabs))
        else:
            yield file, _read(file, names), False


def _kept(folder: Path, names: Sequence[str]) -> Iterator[dict[str, Array]]:
    """The rows of each ring of a saved replay, and what follows them."""
    with _reading(folder):
        arrays = saved.read(folder)
    rings = {name.rpartition(_RINGS)[2]: array for name, array in arrays.items() if _RINGS in name}
    known = {name.rpartition("/")[2]: array for name, array in arrays.items() if _RINGS not in name}
    if any("frames/" in name for name in arrays) or not {"heads", "sizes", "started"} <= set(known) or "valid" not in rings:
        raise _bad(folder, "rows with whole observations, not single frames", ", ".join(arrays)[:200])
    for column in np.flatnonzero(known["started"]).tolist():
        head, size = int(known["heads"][column]), int(known["sizes"][1])
        places = np.arange(max(0, head - size + 1), head + 1) % size
        valid = rings["valid"][column, places]
        now = np.flatnonzero(valid)
        rows = {}
        for path, array in rings.items():
            if not names or path in names:
                rows[path] = array[column, places[now]] if array.shape[1] == rings["valid"].shape[1] else array[column, :0]
                if _is_asked(path):
                    rows[f"next_{path}"] = array[column, places[now + 1]]
        rows["truncated"] |= ~valid[now + 1] & ~rows["terminated"]  # at a gap, and at the newest row
        yield rows


@contextlib.contextmanager
def _reading(file: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError, BadZipFile) as error:
        raise UserError(f"the data set {file} cannot be read: {error}", code="E11") from error


def _slabs_in(file: Path, names: Sequence[str]) -> dict[str, Array] | None:
    """The slabs of a file of a recording; None if it is none."""
    with _reading(file), np.load(file, allow_pickle=False) as data:
        if f"{PREFIX}valid" not in data.files:
            return None
        return slabs_in(data, (*names, "origin", "first") if names else ())


def _read(file: Path, names: Sequence[str] = ()) -> dict[str, Array]:
    """The arrays of one file by our names; the flags of ends are bool, and missing ones false."""
    rows: dict[str, Array] = {}
    with _reading(file), np.load(file, allow_pickle=False) as data:
        for name in data.files:
            first, *rest = name.split("/")
            ours = "/".join((_ALIASES.get(first, first), *rest))
            if not names or ours in names:
                rows[ours] = data[name]
    if "reward" not in rows or not set(_ENDS) & set(rows):
        raise _bad(file, "reward, terminated and truncated", ", ".join(rows))
    for name in _ENDS:
        rows[name] = rows.get(name, np.zeros(len(rows["reward"]))).astype(bool)
    return rows


def _episodes(rows: Mapping[str, Array]) -> Iterator[tuple[int, int]]:
    """(first row, the row after the last one) of every episode, the last of which may have no end."""
    low = 0
    for high in (*(np.flatnonzero(rows["terminated"] | rows["truncated"]) + 1).tolist(), len(rows["reward"])):
        if high > low:
            yield low, high
        low = high


def _inner(record: Mapping[str, Any], rows: Mapping[str, Array]) -> Iterator[tuple[str, Leaf]]:
    """(name, what one row is like) of every leaf that a file must have, and of next observations if it has them."""
    for path, leaf in leaves(record):
        name = path.partition("/")[0]
        if name in (*OF_SLABS, "memory", "valid", "choice") or (name in ("mask", "first") and path not in rows):
            continue
        one = Leaf(leaf.shape[2 if name == "state" else 3 :], leaf.dtype)
        yield path, one
        if f"next_{path}" in rows:
            yield f"next_{path}", one


def _fitting(rows: Mapping[str, Array], name: str, one: Leaf, file: Path) -> Array:
    """The array of this name as rows of the run."""
    expected, total = f"`{name}` with rows {one.dtype} {one.shape}", len(rows["reward"])
    if name not in rows:
        raise _bad(file, expected, ", ".join(rows))
    array = rows[name]
    sizes = (total, total + 1) if _is_asked(name) else (total,)
    if len(array) not in sizes or array.shape[1:] != one.shape or not np.can_cast(array.dtype, one.dtype, "same_kind"):
        raise _bad(file, f"{expected}, {total} of them", f"{array.dtype} {array.shape}")
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise _bad(file, f"`{name}` without nan and inf", f"some at row {int(np.argwhere(~np.isfinite(array))[0][0])}")
    return array.astype(one.dtype, copy=False)


def _is_asked(name: str) -> bool:
    return name.partition("/")[0] in ASKED


def _next(rows: Mapping[str, Array], name: str, high: int) -> Array | None:
    """The row of this leaf that follows the end of an episode; None if it is not known."""
    found: Array | None = None
    if f"next_{name}" in rows:
        found = rows[f"next_{name}"][high - 1]
    elif high == len(rows["reward"]) < len(rows[name]):
        found = rows[name][high]
    return found


def _slab(record: Mapping[str, Any], rows: Mapping[str, Array], low: int, high: int, every: int) -> dict[str, Any]:
    """One episode as a slab of one env: its last observation has a row of its own."""
    steps = high - low
    slab: dict[str, Array] = {}
    for path, leaf in leaves(record):
        name = path.partition("/")[0]
        axes = (1,) if name == "state" else (1, 1)
        if name in OF_SLABS:
            slab[path] = np.zeros(leaf.shape, leaf.dtype)
        elif name == "memory":
            slab[path] = np.zeros((-(-steps // every), *axes, *leaf.shape[3:]), leaf.dtype)
        elif path in rows:
            part = rows[path][low:high]
            if name in ASKED:
                last = rows[path][high] if high < len(rows["reward"]) and not _ends(rows, high) else _next(rows, path, high)
                part = np.concatenate([part, (part[-1] if last is None else last)[None]])
            slab[path] = part.reshape(len(part), *axes, *part.shape[1:])
        else:
            slab[path] = np.ones((steps + (name in ASKED), *axes, *leaf.shape[3:]), leaf.dtype)
    if "first" not in rows:
        slab["first"][1:] = False
    return build(slab)  # type: ignore[no-any-return]


def _ends(rows: Mapping[str, Array], high: int) -> bool:
    """True if an episode ends with the row before this one."""
    return bool(rows["terminated"][high - 1] or rows["truncated"][high - 1])


def _bad(file: Path, expected: str, found: str) -> UserError:
    return UserError(f"the data set {file} must have {expected}", ("found", found), code="E11")
