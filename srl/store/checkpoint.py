"""A checkpoint is a directory: safetensors for arrays, JSON for the rest, a manifest with the hash of every file.

It is written aside, synced and renamed, so it is whole or absent; the pointer `latest` moves last.
One process writes to a folder, any process may read it; the best checkpoint lies in a folder of its own.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load as load_arrays
from safetensors.numpy import save as save_arrays

from srl.core.errors import UserError
from srl.core.files import bad_file, parse_json, read_as, read_file, read_json, read_text
from srl.core.machine import version_of
from srl.core.option import option, shown
from srl.core.tree import build, leaves
from srl.store.atomic import replace_file, sync_folder, write_synced, writing

FORMAT = 1
"""Grows when a reader of the old kind could misread a new checkpoint."""

_NAME = re.compile(r"step_(\d{9,18})(?:\.(\d{1,9}))?")
_GROUP = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
_ASIDE = ".tmp-"
_STATE = "state"
"""What is not an array, among the arrays of a checkpoint as bytes."""
_FINITE = ("policy", "optimizer")
"""Groups whose numbers must be finite."""
_DTYPES = (
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "float32", "float64", "complex64"),
)


@dataclass(frozen=True, kw_only=True)
class _File:
    size: int = option(low=0)
    sha256: str = option()


@dataclass(frozen=True, kw_only=True)
class _Manifest:
    format: int = option(low=1)
    step: int = option(low=0)
    files: Mapping[str, _File] = option()
    srl: str = ""
    written: float = option(0.0, low=0)


@dataclass(frozen=True, kw_only=True)
class _State:
    """The known keys of state.json; others are allowed."""

    seed: int = option(0, low=0)
    env_steps: int = option(0, low=0)
    updates: int = option(0, low=0)
    score: float | None = None
    seconds: float = option(0.0, low=0)
    clock: Mapping[str, float] = field(default_factory=dict)


class Held(dict[str, Any]):
    """The contents of a checkpoint file by name; a missing name is an error that names the file."""

    def __init__(self, data: Mapping[str, Any], file: Path) -> None:
        super().__init__({name: Held(one, file) if type(one) is dict else one for name, one in data.items()})
        self._file = file

    def __missing__(self, name: str) -> Any:
        raise _broken(self._file.parent, self._file, f"{', '.join(self) or 'nothing'}, but no '{name}'", f"'{name}'")


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The verified contents of a checkpoint."""

    path: Path
    step: int
    groups: dict[str, dict[str, NDArray[Any]]]
    """Arrays by flat name, writable, by group: `policy`, `optimizer`, `policy.hider` ..."""
    state: Mapping[str, Any]

    def tree(self, group: str) -> Any:
        """The arrays of a group as the tree whose paths are their names."""
        return build(self.groups[group])


def write(folder: Path, step: int, groups: Mapping[str, Mapping[str, Any]], state: Mapping[str, Any]) -> Path:
    """Write `folder/step_<step>` and let `latest` point to it. A group is a tree, or a dict of flat names, of arrays.

    A step that is written twice gets a second directory (`step_000100000.2`): the first stays whole until it is pruned.
    """
    files = {f"{group}.safetensors": _packed(group, tree) for group, tree in groups.items()}
    files["state.json"] = to_json(state)
    files["manifest.json"] = _manifest(step, files)
    target = _free_name(folder, step)
    aside = folder / f"{_ASIDE}{target.name}-{os.getpid()}"
    with writing(target):
        try:
            folder.mkdir(parents=True, exist_ok=True)
            shutil.rmtree(aside, ignore_errors=True)
            aside.mkdir()
            for name, data in files.items():
                write_synced(aside / name, data)
            sync_folder(aside)
            aside.rename(target)
        except OSError:
            shutil.rmtree(aside, ignore_errors=True)
            raise
        sync_folder(folder)
    replace_file(folder / "latest", f"{target.name}\n")
    return target


def read(path: Path) -> Checkpoint:
    """Read a checkpoint directory; everything is verified before it is used."""
    manifest = _read_manifest(path)
    files = {name: _verified(path / name, entry) for name, entry in manifest.files.items()}
    groups = {
        name.removesuffix(".safetensors"): Held(_unpacked(path / name, data), path / name)
        for name, data in files.items()
        if name.endswith(".safetensors")
    }
    file = path / "state.json"
    try:
        state = parse_json(file, files["state.json"])
        read_as(file, _State, state)
    except UserError as error:
        raise _broken_by(path, file, error) from error
    return Checkpoint(path, manifest.step, Held(groups, path / "manifest.json"), Held(state, file))


def to_bytes(saved: Checkpoint) -> bytes:
    """All of it but the path, for another host."""
    arrays = {f"{group}/{name}": array for group, own in saved.groups.items() for name, array in own.items()}
    rest = {"step": saved.step, "groups": list(saved.groups), "state": saved.state}
    arrays[_STATE] = np.frombuffer(to_json(rest), np.uint8)
    return save_arrays(arrays)


def from_bytes(data: bytes) -> Checkpoint:
    """The inverse of `to_bytes`, for bytes that come from a process of this run."""
    arrays = load_arrays(data)
    rest = json.loads(arrays.pop(_STATE).tobytes())
    groups: dict[str, dict[str, NDArray[Any]]] = {name: {} for name in rest["groups"]}
    for path, array in arrays.items():
        group, _, name = path.partition("/")
        groups[group][name] = array.copy()
    return Checkpoint(Path("of another host"), rest["step"], groups, rest["state"])


@contextlib.contextmanager
def using(path: Path) -> Iterator[None]:
    """Report errors raised while restoring from this checkpoint as errors of the checkpoint."""
    try:
        yield
    except UserError as error:
        if not any(label in ("checkpoint", "file") for label, _ in error.facts):
            error.add("checkpoint", str(path))
        raise
    except (KeyError, IndexError, TypeError, ValueError, RuntimeError, OverflowError, AttributeError) as error:
        raise _broken(path, path, f"{type(error).__name__}: {error}", "what this run would have saved") from error


def to_json(value: Any) -> bytes:
    """A JSON document that a person may open; numbers that are not finite become null."""
    return json.dumps(_plain(value), indent=1, allow_nan=False, ensure_ascii=False).encode() + b"\n"


def latest(folder: Path) -> Path | None:
    """The checkpoint written last, or None."""
    pointer = folder / "latest"
    if os.path.lexists(pointer):
        target = read_text(pointer).strip()
        if not _NAME.fullmatch(target):
            raise bad_file(pointer, f"'{shown(target)}'", "the name of a checkpoint, such as step_000100000", code="E15")
        if (folder / target / "manifest.json").is_file():
            return folder / target
    found = checkpoints(folder)
    return found[-1] if found else None


def best(folder: Path) -> Path | None:
    """The checkpoint that `write_best` wrote last, or None. It lies in a folder of its own, `best`, beside the trainer's."""
    return latest(folder / "best")


def best_score(folder: Path) -> float | None:
    path = best(folder)
    return None if path is None else float(read(path).state["score"])


def write_best(folder: Path, step: int, groups: Mapping[str, Mapping[str, Any]], score: float) -> Path:
    """Write a new best checkpoint and delete the previous one. Any process may do so."""
    written = write(folder / "best", step, groups, {"score": float(score), "env_steps": step})
    prune(folder / "best", 1)
    return written


def prune(folder: Path, keep: int) -> list[Path]:
    """Delete all but the last `keep` checkpoints, never `latest`; also delete what a crash left incomplete."""
    if keep < 1:
        raise ValueError(f"keep must be at least 1, not {keep}")
    kept = latest(folder)
    found = sorted(checkpoints(folder), key=_written)
    victims = [path for path in found[:-keep] if path != kept]
    with writing(folder):
        for path in victims:
            path.rename(folder / f"{_ASIDE}{path.name}-pruned-{time.time_ns()}")
        for path in half_written(folder):
            shutil.rmtree(path)
    return victims


def checkpoints(folder: Path) -> list[Path]:
    """Every whole checkpoint of a folder, by step."""
    found = [path for path in folder.glob("step_*") if _NAME.fullmatch(path.name) and (path / "manifest.json").is_file()]
    return sorted(found, key=_order)


def half_written(folder: Path) -> list[Path]:
    """Directories that a writer did not finish."""
    return sorted(path for path in folder.glob(f"{_ASIDE}step_*") if path.is_dir() and not path.is_symlink())


def step_of(path: Path) -> int:
    return _order(path)[0]


def _packed(group: str, tree: Mapping[str, Any]) -> bytes:
    if not _GROUP.fullmatch(group) or group.endswith(".safetensors"):
        raise ValueError(f"checkpoint group {group!r}: a name is made of letters, digits, '_', '-' and '.'")
    if not isinstance(tree, Mapping):
        raise TypeError(f"checkpoint group {group!r}: expected a dict of arrays, got {type(tree).__name__}")
    arrays: dict[str, NDArray[Any]] = {}
    for name, leaf in leaves(tree):
        if name in arrays or name == "__metadata__":
            raise ValueError(f"checkpoint group {group!r}: the name {name!r} is {'used twice' if name in arrays else 'reserved'}")
        arrays[name] = _dense(f"{group}: {name}", leaf)
    return save_arrays(arrays)


def _dense(where: str, leaf: Any) -> NDArray[Any]:
    """Little-endian and in C order: safetensors copies the raw memory and would silently scramble anything else."""
    array = np.asarray(leaf, order="C")  # keeps 0-d, which ascontiguousarray does not
    if array.dtype.name not in _DTYPES:
        raise TypeError(f"{where}: {array.dtype} cannot be stored; expected numbers or booleans (put the rest into the state)")
    return array.astype(array.dtype.newbyteorder("<"), copy=False)


def _unpacked(path: Path, data: bytes) -> dict[str, NDArray[Any]]:
    try:
        arrays = load_arrays(data)
    except (SafetensorError, ValueError, KeyError, TypeError) as error:
        raise _broken(path.parent, path, f"not a safetensors file ({error})") from error
    group = path.name.partition(".")[0]
    for name, array in arrays.items():
        if group in _FINITE and array.dtype.kind in "fc" and not np.isfinite(array).all():
            raise _broken(path.parent, path, f"numbers that are not finite in '{name}'", "finite numbers")
        parts = name.split("/")
        if any("/".join(parts[:size]) in arrays for size in range(1, len(parts))):
            raise _broken(path.parent, path, f"'{name}' is inside of an array", "names that form a tree")
    return {name: np.require(arrays[name], requirements="W") for name in sorted(arrays)}


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return None if isinstance(value, float) and not np.isfinite(value) else value


def _manifest(step: int, files: Mapping[str, bytes]) -> bytes:
    entries = {name: {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()} for name, data in files.items()}
    srl = version_of("really-scalable-rl") or "source tree"
    return to_json({"format": FORMAT, "srl": srl, "step": step, "written": time.time(), "files": entries})


def _read_manifest(path: Path) -> _Manifest:
    if path.name.startswith(_ASIDE):
        raise _broken(path, path, "half-written: its writer was stopped before it finished")
    file = path / "manifest.json"
    try:
        data = parse_json(file, read_file(file))
        version = data.get("format")
        if type(version) is int and version > FORMAT:
            raise _broken(path, file, f"format {version} of srl {data.get('srl')}", f"format {FORMAT} or an older one")
        manifest = read_as(file, _Manifest, data)
    except UserError as error:
        raise error if error.code == "E15" else _broken_by(path, file, error) from error
    names = set(manifest.files)
    if strange := sorted(name for name in names if "/" in name or name.startswith(".")):
        raise _broken(path, file, f"the file name {strange[0]!r}", "names of files in this folder")
    if "state.json" not in names:
        raise _broken(path, file, "no 'state.json' among the files", "state.json")
    return manifest


def _verified(file: Path, entry: _File) -> bytes:
    try:
        size = file.stat().st_size
    except OSError as error:
        raise _broken(file.parent, file, f"missing or unreadable ({error.strerror})") from error
    if size != entry.size:
        raise _broken(file.parent, file, f"cut off or overwritten: {size:,} bytes", f"{entry.size:,} bytes")
    try:
        data = read_file(file, largest=size)
    except UserError as error:
        raise _broken_by(file.parent, file, error) from error
    digest = hashlib.sha256(data).hexdigest()
    if digest != entry.sha256:
        raise _broken(file.parent, file, f"changed after writing: sha256 {digest[:12]}...", f"sha256 {entry.sha256[:12]}...")
    return data


def _broken_by(path: Path, file: Path, error: UserError) -> UserError:
    facts = dict(error.facts)
    return _broken(path, file, facts.get("found", error.headline), facts.get("expected", ""))


def _broken(path: Path, file: Path, found: str, expected: str = "") -> UserError:
    lines = [("file", str(file)), ("found", found), *([("expected", expected)] if expected else [])]
    whole = [each.name for each in checkpoints(path.parent) if each != path]
    shown = whole if len(whole) <= 4 else [whole[0], "...", *whole[-2:]]
    others = f"another checkpoint of {path.parent}: {', '.join(shown)}"
    hint = others if whole else "an earlier run; this folder has no other checkpoint"
    return UserError(f"checkpoint {path.name!r} cannot be used", *lines, ("try", hint), code="E15")


def _free_name(folder: Path, step: int) -> Path:
    if step < 0:
        raise ValueError(f"step must not be negative, got {step}")
    target = folder / f"step_{step:09d}"
    again = 1
    while target.exists():
        again += 1
        target = folder / f"step_{step:09d}.{again}"
    return target


def _order(path: Path) -> tuple[int, int]:
    match = _NAME.fullmatch(path.name)
    if match is None:
        raise ValueError(f"{path}: not the name of a checkpoint (expected step_000100000)")
    return int(match[1]), int(match[2] or 1)


def _written(path: Path) -> tuple[float, tuple[int, int]]:
    """When a checkpoint was written: after a resume from an earlier step, newer ones have smaller steps."""
    try:
        moment = read_json(path / "manifest.json", _Manifest)[0].written
    except UserError:
        moment = 0.0
    return moment, _order(path)
