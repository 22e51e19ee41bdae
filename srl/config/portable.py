"""Make settings independent of process and folder: absolute paths, and import paths of classes."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from srl.core.errors import NotImportable, UserError
from srl.core.files import usable_path
from srl.core.registry import REGISTRIES, dotted_path

_FILE = re.compile(r"(?P<file>.+\.py)(?P<rest>:[A-Za-z_][\w.]*)")
_FAMILIES = {"policies": "policy", "algorithms": "algorithm", "envs": "env", "workers": "worker", "choose": "rule"}


def by_name(settings: Any, kind: str = "env") -> Any:
    """Settings of a Python call, with a path in place of every class and function.

    A class of a notebook is registered under its own name, for inline runs.
    """
    if isinstance(settings, Mapping):
        return {key: by_name(one, _kind(key, kind)) for key, one in settings.items()}
    if isinstance(settings, list | tuple):
        return [by_name(one, kind) for one in settings]
    if not isinstance(settings, type) and not (callable(settings) and hasattr(settings, "__qualname__")):
        return settings
    try:
        return dotted_path(settings)
    except NotImportable:
        name = str(settings.__qualname__)
        REGISTRIES[kind].add(name, settings, place=f"{settings.__module__}")
        return name


def absolute(config: Mapping[str, Any], exact: Callable[[str], str] = str) -> dict[str, Any]:
    """A configuration with the absolute paths of existing files and runs.

    `exact`: from the path of what is loaded to the path of the one run that it means now.
    """
    plain: dict[str, Any] = {key: _absolute(value) for key, value in everywhere(config).items()}
    if isinstance(plugins := plain.get("plugins"), list | tuple):
        plain["plugins"] = [_found(one) if str(one).endswith(".py") else one for one in plugins]

    policies = plain.get("policies")
    for part in (plain, *(policies.values() if isinstance(policies, dict) else ())):
        if isinstance(part, dict) and isinstance(load := part.get("load"), str):
            part["load"] = exact(_found(load))
    return plain


def everywhere(settings: Any, kind: str = "") -> Any:
    """Settings with import paths in place of names that only this process has registered."""
    if isinstance(settings, Mapping):
        return {key: everywhere(one, kind if key == "use" else _kind(key, "")) for key, one in settings.items()}
    if isinstance(settings, list | tuple):
        return [everywhere(one, kind) for one in settings]
    return REGISTRIES[kind].everywhere(settings) if kind and isinstance(settings, str) else settings


def _kind(key: Any, above: str) -> str:
    return str(key) if key in REGISTRIES else _FAMILIES.get(str(key), above)


def _absolute(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _absolute(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_absolute(one) for one in value]
    if isinstance(value, str) and (match := _FILE.fullmatch(value)):
        return f"{_found(match['file'])}{match['rest']}"
    return value


def _found(path: Any) -> Any:
    """The absolute path of an existing file; anything else unchanged, for a later error."""
    if not isinstance(path, str):
        return path
    try:
        full = usable_path(path)
    except UserError:
        return path
    return str(full.resolve()) if full.exists() else path
