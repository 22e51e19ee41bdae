"""Read files that may have been written by others: only regular files of a bounded size and of the expected form."""

from __future__ import annotations

import contextlib
import json
import os
import stat
from dataclasses import is_dataclass
from pathlib import Path
from typing import IO, Any, NoReturn, TypeVar, cast

from srl.core.errors import UserError
from srl.core.load import load
from srl.core.option import key_of, settings, shown

T = TypeVar("T")
LARGEST = 16 << 20
"""Bytes of the largest file of text that is read."""
_DEEPEST = 60


def bad_file(path: Path, found: str, expected: str = "", *, code: str = "E11") -> UserError:
    """The error of a file that cannot be used."""
    facts = [("found", found), *([("expected", expected)] if expected else [])]
    return UserError(f"cannot read {path}", *facts, code=code)


def usable_path(text: str | Path) -> Path:
    """The path with `~` expanded; UserError where no file can have it: a null byte, a name that is too long."""
    try:
        path = Path(text).expanduser()
        with contextlib.suppress(FileNotFoundError, NotADirectoryError, PermissionError):
            path.lstat()
    except (OSError, ValueError, RuntimeError) as error:
        raise UserError(f"'{shown(str(text))}' cannot be the path of a file", ("found", str(error)[:200]), code="E11") from error
    return path


def refuse_irregular(path: Path) -> None:
    """UserError if there is something else than a regular file."""
    if os.path.lexists(path) and not stat.S_ISREG(path.lstat().st_mode):
        raise bad_file(path, "a folder" if path.is_dir() else "a link, pipe or device", "a file")


def read_file(path: Path, *, largest: int = LARGEST) -> bytes:
    """The bytes of a regular file; UserError if it is anything else, cannot be read or is larger than that."""
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise bad_file(path, "a folder" if stat.S_ISDIR(status.st_mode) else "a pipe or device", "a file")
            data = file.read(min(status.st_size, largest) + 1)
    except OSError as error:
        raise bad_file(path, error.strerror or str(error)) from error
    if len(data) > largest:
        raise bad_file(path, f"{status.st_size:,} bytes", f"at most {largest:,} bytes")
    return data


def read_text(path: Path) -> str:
    """The text of a regular file."""
    try:
        return read_file(path).decode()
    except UnicodeDecodeError as error:
        raise bad_file(path, f"byte {error.start:,} is not UTF-8 text", "text") from error


def read_json(path: Path, schema: type[T]) -> tuple[T, dict[str, Any]]:
    """A JSON object as its schema has it, and all of it: keys that the schema does not know are kept as they are."""
    data = parse_json(path, read_file(path))
    return read_as(path, schema, data), data


def parse_json(path: Path, text: bytes) -> dict[str, Any]:
    """The JSON object in the file; numbers are finite."""
    try:
        data = json.loads(text, parse_constant=_not_finite)
    except RecursionError:
        raise bad_file(path, "JSON that is nested too deeply", f"at most {_DEEPEST} levels") from None
    except ValueError as error:
        raise bad_file(path, f"not JSON ({error})", "a JSON object") from error
    if not isinstance(data, dict):
        raise bad_file(path, f"a JSON {type(data).__name__}", "a JSON object")
    if depth(data) > _DEEPEST:
        raise bad_file(path, "JSON that is nested too deeply", f"at most {_DEEPEST} levels")
    return data


def read_as(path: Path, schema: type[T], data: dict[str, Any]) -> T:
    """The part of a document that its schema knows, as an object."""
    assert is_dataclass(schema)
    known = {key_of(one) for one in settings(schema)}
    try:
        return cast(T, load(schema, {key: value for key, value in data.items() if key in known}))
    except UserError as error:
        raise bad_file(path, error.headline, *(text for label, text in error.facts if label == "expected")) from error


def last_lines(file: IO[bytes], most: int) -> list[str]:
    """The last lines of an open log that others write to, wherever this process reads in it."""
    size, room = os.fstat(file.fileno()).st_size, 400 * most
    return os.pread(file.fileno(), room, max(0, size - room)).decode(errors="replace").splitlines()[-most:]


def depth(value: Any) -> int:
    """Levels of nesting in lists and dicts; 1 for anything else."""
    level, levels = [value], 0
    while level:
        levels += 1
        level = [
            inner for one in level if isinstance(one, dict | list) for inner in (one.values() if isinstance(one, dict) else one)
        ]
    return levels


def _not_finite(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")
