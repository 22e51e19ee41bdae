"""Overrides on the command line: `a.b=3`, `a.list=[1,2]`, `+a.new=1`, `~a.b`, `@file.yaml`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Literal

from srl.config.yaml import parse
from srl.core.errors import UserError
from srl.core.option import shown
from srl.core.where import Path

_DEEPEST = 40
"""Parts of a name."""
_PART = re.compile(r'"(?P<quoted>(?:[^"\\]|\\.)*)"|(?P<bare>[^".=][^.=]*)', re.DOTALL)


@dataclass(frozen=True, slots=True)
class Override:
    """`set` and `add` (which must be new) carry a value; `merge` carries the name of a file."""

    action: Literal["set", "add", "remove", "merge"]
    path: Path
    value: Any
    text: str


def parse_override(text: str) -> Override:
    """One word of a command line."""
    if text.startswith("@"):
        if len(text) == 1:
            raise _bad(text, "names no file", "@file.yaml")
        return Override("merge", (), text[1:], text)
    if text.startswith("~"):
        path, rest = _path(text, 1)
        if rest:
            raise _bad(text, "removes a setting and has no value", text.partition("=")[0])
        return Override("remove", path, None, text)
    path, rest = _path(text, 1 if text.startswith("+") else 0)
    if len(path) > _DEEPEST:
        raise _bad(text, f"has more than {_DEEPEST} parts in its name", "section.name=value")
    if not rest.startswith("="):
        raise _bad(text, "has no value", f"{text}=...")
    return Override("add" if text.startswith("+") else "set", path, _value(rest[1:], text), text)


def _path(text: str, start: int) -> tuple[Path, str]:
    """The path at `start` and what follows it. Parts are joined by dots; a part may stand in double quotes."""
    parts: list[str] = []
    at = start
    while True:
        part = _PART.match(text, at)
        if part is None and text[at : at + 1] == '"':
            raise _bad(text, "has a quote that does not close", 'a."b.c"=1')
        if part is None:
            raise _bad(text, "has an empty part in its name", "section.name=value")
        parts.append(part["bare"] or re.sub(r"\\(.)", r"\1", part["quoted"], flags=re.DOTALL))
        at = part.end() + 1
        if text[part.end() : at] != ".":
            break
    if text[part.end() : at] not in ("", "="):
        raise _bad(text, "has text after a quoted part", 'a."b.c"=1')
    return tuple(parts), text[part.end() :]


def _value(text: str, whole: str) -> Any:
    try:
        return parse(text, "command line").data
    except UserError as problem:
        name = whole.partition("=")[0]
        raise UserError(
            f"the value of '{shown(name)}' cannot be read: {shown(text)}",
            ("cause", problem.headline),
            ("try", f"quotes, once for the shell and once for YAML: '{shown(name)}=\"{shown(text)}\"'"),
            code="E12",
        ) from problem


def _bad(text: str, why: str, example: str) -> UserError:
    return UserError(
        f"override '{shown(text)}' {why}",
        ("try", example),
        ("forms", "a.b=3  a.list=[1,2]  +a.new=1  ~a.b  @file.yaml"),
        code="E12",
    )
