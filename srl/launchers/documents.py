"""YAML documents that launchers submit: how they are written, and how fields of a person's own are added."""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping
from typing import Any

import yaml


class _Dumper(yaml.SafeDumper):
    """Texts of several lines as blocks; no anchors."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


_Dumper.add_representer(
    str,
    lambda dumper, text: dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None),
)


def document(data: Mapping[str, Any]) -> str:
    """One YAML document."""
    text: str = yaml.dump(dict(data), Dumper=_Dumper, sort_keys=False, width=120)
    return text


def plain_name(name: str) -> str:
    """With small letters, digits and `-` only, as DNS wants it."""
    return re.sub("[^a-z0-9]+", "-", name.lower()).strip("-") or "run"


def fresh_name(name: str, longest: int) -> str:
    """A name that no other run has."""
    return f"{plain_name(name)[: longest - 7].rstrip('-')}-{secrets.token_hex(3)}"


def merged(base: Any, more: Any) -> Any:
    """Mappings are merged, lists are joined, all else is replaced."""
    if isinstance(base, Mapping) and isinstance(more, Mapping):
        return {**base, **{key: merged(base[key], value) if key in base else value for key, value in more.items()}}
    if isinstance(base, list) and isinstance(more, list):
        return [*base, *more]
    return more
