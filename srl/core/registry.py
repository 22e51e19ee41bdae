"""Registered names: strings until they are used, so that knowing a name never costs an import."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

from srl.core.builtin import BUILTIN
from srl.core.errors import NotImportable, UserError
from srl.core.imports import dotted_path, import_module, import_path, import_paths, place_of
from srl.core.load import nearest

__all__ = [
    "REGISTRIES", "Registry", "dotted_path", "import_paths", "load_plugins", "place_of", "register_algorithm", "register_env",
    "register_learner", "register_policy", "register_sink", "register_transform", "register_transport", "register_worker",
]  # fmt: skip

C = TypeVar("C")
ENTRY_POINTS = "srl.plugins"


class Registry:
    """The names of one kind of thing."""

    def __init__(self, kind: str, builtin: dict[str, str] | None = None) -> None:
        self.kind = kind
        self._builtin = dict(builtin or {})
        self._targets: dict[str, Any] = dict(self._builtin)
        self._places: dict[str, str] = {}

    def add(self, name: str, target: Any, *, place: str | None = None) -> None:
        """Register a class or `"pkg.mod:Class"`. The same thing again (a reload, `__main__`) renews it; another is refused."""
        place = place or _caller()
        if not name or ":" in name or name.endswith(".py"):
            raise UserError(
                f"'{name}' is not a valid name of {_a(self.kind)}",
                ("from", place),
                ("expected", "a name without ':' that does not end in .py"),
                code="E13",
            )
        if name in self._targets and _path(self._targets[name]) != _path(target):
            raise UserError(
                f"two things are registered as {self.kind} '{name}'",
                ("first", self.place(name)),
                ("second", place),
                ("try", "give one of them another name"),
                code="E13",
            )
        self._targets[name] = target
        self._places[name] = place

    def place(self, name: str) -> str:
        """`file.py:12`, where the name was registered."""
        target = self._targets[name]
        return self._places.get(name) or (f"{target} (built in)" if isinstance(target, str) else place_of(target))

    def everywhere(self, name: str) -> str:
        """A built-in name as it is, a name that was registered in this process as the path that every process can import."""
        if name not in self._targets or name in self._builtin:
            return name
        try:
            return self.path(name)
        except NotImportable:  # of a notebook: an inline run finds it by its name
            return name

    def resolve(self, name: Any) -> Any:
        """The class behind a name or a path; anything that is not text is taken as it is."""
        if not isinstance(name, str):
            return name
        target = self._targets.get(name, name)
        if not isinstance(target, str):
            return target
        if target is name and ":" not in name:
            raise self._unknown(name)
        return import_path(target, self.kind)

    def path(self, name: Any) -> str:
        """The path under which every process finds what `name` means; imports nothing."""
        if isinstance(name, str) and name not in self._targets and ":" not in name:
            raise self._unknown(name)
        target = self._targets.get(name, name) if isinstance(name, str) else name
        return target if isinstance(target, str) else dotted_path(target)

    def held(self, name: Any) -> Any:
        """The class itself, where this process registered one and not its path; else None."""
        target = self._targets.get(name) if isinstance(name, str) else name
        return None if isinstance(target, str) else target

    def names(self) -> list[str]:
        return sorted(self._targets)

    def __contains__(self, name: object) -> bool:
        return name in self._targets

    def __iter__(self) -> Iterator[str]:
        return iter(self.names())

    def _unknown(self, name: str) -> NotImportable:
        error = NotImportable(f"no {self.kind} is called '{name}'")
        if near := nearest(name, self.names()):
            error.add("did you mean", f"{near}?")
        error.add("known", ", ".join(self.names()) or "none")
        error.add("try", f"a path such as my_pkg.mod:Class or path/to/file.py:Class, or import=my_pkg, which registers '{name}'")
        return error


REGISTRIES: dict[str, Registry] = {kind: Registry(kind, table) for kind, table in BUILTIN.items()}


def load_plugins(names: Iterable[str] = (), *, installed: bool = True) -> list[str]:
    """Import modules and `.py` files so that they register what they have, and the installed entry points `srl.plugins`."""
    done = []
    for name in names:
        import_module(name, f"plugin '{name}'")
        done.append(name)
    if installed:
        from importlib.metadata import entry_points

        for entry in entry_points(group=ENTRY_POINTS):
            owner = f" of {entry.dist.name}" if entry.dist is not None else ""
            import_module(entry.value.partition(":")[0], f"plugin '{entry.name}'{owner}")
            done.append(entry.value)
    return done


def register_env(name: str) -> Callable[[C], C]:
    return _register("env", name)


def register_policy(name: str) -> Callable[[C], C]:
    return _register("policy", name)


def register_algorithm(name: str) -> Callable[[C], C]:
    return _register("algorithm", name)


def register_learner(name: str) -> Callable[[C], C]:
    return _register("learner", name)


def register_worker(name: str) -> Callable[[C], C]:
    return _register("worker", name)


def register_transport(name: str) -> Callable[[C], C]:
    return _register("transport", name)


def register_transform(name: str) -> Callable[[C], C]:
    return _register("transform", name)


def register_sink(name: str) -> Callable[[C], C]:
    return _register("sink", name)


def _register(kind: str, name: str) -> Callable[[C], C]:
    place = _caller()

    def keep(target: C) -> C:
        REGISTRIES[kind].add(name, target, place=place)
        return target

    return keep


def _path(target: Any) -> str:
    """What stays the same when a module is executed again."""
    if isinstance(target, str):
        return target
    try:
        return dotted_path(target)
    except NotImportable:
        return f"{target.__module__}:{target.__qualname__}"


def _caller() -> str:
    """`file.py:12` of the first frame outside this file."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename == __file__:
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


def _a(kind: str) -> str:
    return f"an {kind}" if kind[0] in "aeiou" else f"a {kind}"
