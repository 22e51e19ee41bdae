"""From what a file names to its class and its settings."""

from __future__ import annotations

from typing import Any

from srl.core.errors import UserError
from srl.core.load import load
from srl.core.registry import REGISTRIES
from srl.core.types import Component
from srl.core.where import Path


def resolved(kind: str, wanted: Component, path: Path) -> tuple[Any, tuple[Any, ...]]:
    """(class, its loaded `Config` if it has one); a UserError about the setting at `path` if there is no such name or setting."""
    found = REGISTRIES[kind].resolve(wanted.use)
    if (schema := getattr(found, "Config", None)) is not None:
        return found, (load(schema, wanted.args, path=path),)
    if wanted.args:
        raise UserError(f"{kind} '{wanted.use}' has no settings", ("found", ", ".join(wanted.args)), code="E02", path=path)
    return found, ()
