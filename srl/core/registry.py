"""Registered names: strings until they are used, so that knowing a name never costs an import."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

from srl.core.builtin import BUILTIN
from srl.core.errors import NotImportable, UserError
from srl.core.imports import (
    dotted_path,
    identity,
    import_module,
    import_path,
    import_paths,
    is_importing,
    module_path,
    place_of,
    stop_if_imported,
)
from srl.core.load import nearest

__all__ = [
    "REGISTRIES", "Registry", "dotted_path", "import_paths", "load_plugins", "place_of", "register_algorithm", "register_env",
    "register_learner", "register_policy", "register_transform", "register_transport", "register_worker", "stop_if_imported",
]  # fmt: skip

C = TypeVar("C")
ENTRY_POINTS = "srl.plugins"


class Registry:
    """The names of one kind of thing."""

    def __init__(self, kind: str, builtin: dict[str, str] | None = None) -> None:
        self.kind = kind
        self._targets: dict[str, Any] = dict(builtin or {})
        self._places: dict[str, str] = {}
        self._homes: dict[str, str] = {}

    def add(self, name: str, target: Any, *, place: str | None = None, home: str = "") -> None:
        """Register a class or `"pkg.mod:Class"`. The same thing again (a reload, `__main__`) renews it; another is refused.

        `home`: the module that does so; nobody's where `place` is given without it.
        """
        if place is None:
            place, home = _caller()
        if not name or ":" in name or name.endswith(".py"):
            raise UserError(f"'{name}' cannot be the name of a {self.kind}: it reads as a path", ("from", place), code="E13")
        if name in self._targets and not _same(self._targets[name], target):
            raise UserError(
                f"two things are registered as {self.kind} '{name}'",
                ("first", self.place(name)),
                ("second", place),
                ("try", "give one of them another name"),
                code="E13",
            )
        self._targets[name] = target
        self._places[name] = place
        if home and not is_importing():
            self._homes[name] = home

    def home(self, name: str) -> str | None:
        """The module, or file, whose import registers the name; None where no other process needs to be told of it."""
        home = self._homes.get(name)
        return module_path(home, name) if home in sys.modules else None

    def place(self, name: str) -> str:
        """`file.py:12`, where the name was registered."""
        target = self._targets[name]
        return self._places.get(name) or (f"{target} (built in)" if isinstance(target, str) else place_of(target))

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


def _register(kind: str, name: str) -> Callable[[C], C]:
    place, home = _caller()

    def keep(target: C) -> C:
        REGISTRIES[kind].add(name, target, place=place, home=home)
        return target

    return keep


def _same(old: Any, new: Any) -> bool:
    if old is new or old == new:
        return True
    if isinstance(old, str) and not isinstance(new, str) and old == f"{new.__module__}:{new.__qualname__}":
        return True
    return identity(old) == identity(new)


def _caller() -> tuple[str, str]:
    """`file.py:12` of the first frame outside this file, and its module."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename == __file__:
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}", str(frame.f_globals.get("__name__", ""))
