"""Overrides as they are typed: `a.b=3`, `a.list=[1,2]`, `+a.new=1`, `~a.b`, `@file.yaml`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from srl.config.yaml import parse
from srl.core.errors import UserError
from srl.core.option import shown
from srl.core.where import Path

_DEEPEST = 40
"""Parts of a name."""


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
        part, at = _quoted(text, at) if text[at : at + 1] == '"' else _bare(text, at)
        parts.append(part)
        if text[at : at + 1] != ".":
            break
        at += 1
    if text[at : at + 1] not in ("", "="):
        raise _bad(text, "has text after a quoted part", 'a."b.c"=1')
    return tuple(parts), text[at:]


def _bare(text: str, at: int) -> tuple[str, int]:
    end = min((found for found in (text.find(".", at), text.find("=", at)) if found >= 0), default=len(text))
    if end == at:
        raise _bad(text, "has an empty part in its name", "section.name=value")
    return text[at:end], end


def _quoted(text: str, at: int) -> tuple[str, int]:
    part, at = "", at + 1
    while at < len(text) and text[at] != '"':
        if text[at] == "\\":
            at += 1
        part += text[at : at + 1]
        at += 1
    if at >= len(text):
        raise _bad(text, "has a quote that does not close", 'a."b.c"=1')
    return part, at + 1


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
