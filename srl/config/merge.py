"""Merge mappings: dicts merge, lists replace, null removes, and every value keeps its origin."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from srl.core.errors import Fact, UserError
from srl.core.load import nearest
from srl.core.option import shown
from srl.core.where import COMMAND_LINE, Path, Provenance, Where, dotted

_COMPONENTS = ("env", "policy", "algorithm", "transform", "learner", "launcher")
_FAMILIES = ("envs", "policies", "algorithms", "workers")


class Merged:
    """A mapping with the origin of every value.

    A component (`env`, `policy`, `algorithm` ...) may be a name, which is short for `{use: name}`. Another `use` drops the
    settings of the old one, except those of the command line, and leaves a note.
    """

    def __init__(self) -> None:
        self.data: dict[str, Any] = {}
        self.provenance = Provenance()
        self.notes: list[str] = []

    def merge(self, data: Mapping[str, Any], places: Provenance) -> None:
        """Merge the mapping of a file; null removes a setting that exists."""
        self._over(self.data, data, (), places, nulls_remove=True)

    def assign(self, path: Path, value: Any, where: Where = COMMAND_LINE) -> None:
        """Set one path; a mapping is merged, null is a value."""
        path = self._known(path)
        places = Provenance()
        label(places, path, value, where)
        *parents, last = path
        inside = self._inside(tuple(parents), path, where)
        key = self._position(inside, last, path) if isinstance(inside, list) else last
        self._put(inside, key, value, path, places, nulls_remove=False)

    def remove(self, path: Path) -> None:
        path = self._known(path)
        holder, key = self._existing(path)
        if isinstance(holder, list):
            headline = f"'{dotted(path)}' cannot be removed: a list is only replaced as a whole"
            raise self._error(headline, path, ("try", f"{dotted(path[:-1])}=[...]"))
        del holder[key]
        self.provenance.drop(path)

    def has(self, path: Path) -> bool:
        """Whether there is a setting of this name."""
        try:
            self._existing(self._known(path))
        except UserError:
            return False
        return True

    def _known(self, path: Path) -> Path:
        """The path with parts joined where a name contains dots: an existing key, or the name of a stream."""
        if path[:1] == ("streams",) and len(path) > 3:  # streams.params.main.via
            path = ("streams", ".".join(map(str, path[1:-1])), path[-1])
        here: Any = self.data
        found: list[Any] = []
        rest = list(path)
        while rest:
            longest = range(len(rest), 1, -1) if isinstance(here, dict) and rest[0] not in here else ()
            width = next((size for size in longest if ".".join(map(str, rest[:size])) in here), 1)
            found.append(rest[0] if width == 1 else ".".join(map(str, rest[:width])))
            rest = rest[width:]
            here = here.get(found[-1]) if isinstance(here, dict) else None
        return tuple(found)

    def _over(self, base: dict[str, Any], new: Mapping[str, Any], path: Path, places: Provenance, *, nulls_remove: bool) -> None:
        for key, value in new.items():
            full = (*path, key)
            if value is None and nulls_remove and key in base:
                del base[key]
                self.provenance.drop(full)
            else:
                self._put(base, key, value, full, places, nulls_remove=nulls_remove)

    def _put(self, base: Any, key: Any, value: Any, full: Path, places: Provenance, *, nulls_remove: bool) -> None:
        old = base.get(key) if isinstance(base, dict) else base[key]
        if isinstance(value, str) and isinstance(old, dict) and ("use" in old or _is_component(full)):
            place = places.exact(full) or COMMAND_LINE
            value, places = {"use": value}, Provenance({full: place, (*full, "use"): place})
        if isinstance(value, Mapping) and isinstance(old, str) and _is_component(full):
            self._spell_out(base, key, full)
            old = base[key]
        if isinstance(value, Mapping) and isinstance(old, dict):
            if value.get("use") is not None and old.get("use", value["use"]) != value["use"]:
                self._drop_others(old, value["use"], full, places.at((*full, "use")))
            self._over(old, value, full, places, nulls_remove=nulls_remove)
            return
        if full[-1] == "use" and isinstance(base, dict) and old is not None and old != value:
            self._drop_others(base, value, full[:-1], places.at(full))
        base[key] = copy.deepcopy(value)
        self.provenance.drop(full)
        self.provenance.graft(full, places.below(full))

    def _spell_out(self, base: Any, key: Any, full: Path) -> None:
        """`name` becomes `{use: name}`."""
        base[key] = {"use": base[key]}
        if (place := self.provenance.exact(full)) is not None:
            self.provenance.put((*full, "use"), place)

    def _drop_others(self, old: dict[str, Any], new_use: Any, full: Path, where: Where | None) -> None:
        dropped = [key for key in old if key != "use" and not self._typed((*full, key))]
        for key in dropped:
            del old[key]
            self.provenance.drop((*full, key))
        if dropped:
            was = old.get("use", "the default")
            self.notes.append(
                f"{dotted(full)}: {was} -> {new_use} ({where}); dropped the settings of {was}: {', '.join(dropped)}"
            )

    def _typed(self, path: Path) -> bool:
        """Whether the command line set the value or something in it."""
        return any(where == COMMAND_LINE for _, where in self.provenance.below(path))

    def _inside(self, parents: Path, whole: Path, where: Where) -> Any:
        """The mapping or list at `parents`, made where there is nothing."""
        here: Any = self.data
        for depth, key in enumerate(parents):
            path = parents[: depth + 1]
            if isinstance(here, list):
                key = self._position(here, key, path)
            elif here.get(key) is None:
                here[key] = {}
                self.provenance.put(path, where)
            elif isinstance(here[key], str) and _is_component(path):
                self._spell_out(here, key, path)
            if not isinstance(here[key], dict | list):
                headline = f"'{dotted(whole)}' cannot be set: '{dotted(path)}' is {shown(here[key])}, not a mapping"
                raise self._error(headline, path)
            here = here[key]
        return here

    def _position(self, here: list[Any], key: Any, path: Path) -> int:
        position = _index(key, here)
        if position is None:
            size = f"{len(here)} entries, 0 to {len(here) - 1}" if here else "no entries"
            raise self._error(f"'{dotted(path)}': the list '{dotted(path[:-1])}' has {size}", path[:-1])
        return position

    def _existing(self, path: Path) -> tuple[Any, Any]:
        """The mapping or list that holds this setting, and its key there."""
        here: Any = self.data
        for depth, key in enumerate(path):
            if isinstance(here, list):
                key = self._position(here, key, path[: depth + 1])
            elif not isinstance(here, dict) or key not in here:
                raise self._absent(here, path, depth)
            if depth < len(path) - 1:
                here = here[key]
        return here, path[-1]

    def _absent(self, here: Any, path: Path, depth: int) -> UserError:
        error = UserError(f"'~{dotted(path)}' cannot be applied: there is no '{dotted(path[: depth + 1])}'", code="E12")
        names = list(here) if isinstance(here, dict) else []
        if near := nearest(str(path[depth]), names):
            error.add("did you mean", f"~{dotted((*path[:depth], near, *path[depth + 1 :]))}?")
        elif names:
            error.add("there are", ", ".join(names))
        return error

    def _error(self, headline: str, path: Path, *facts: Fact) -> UserError:
        return UserError(headline, *facts, code="E12", path=path).at(self.provenance)


def label(places: Provenance, path: Path, value: Any, where: Where) -> None:
    """Record one origin for a value and everything in it."""
    places.put(path, where)
    items = value.items() if isinstance(value, Mapping) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        label(places, (*path, key), item, where)


def _is_component(path: Path) -> bool:
    return path[-1] in _COMPONENTS or (len(path) > 1 and path[-2] in _FAMILIES)


def _index(key: Any, items: list[Any]) -> int | None:
    text = str(key)
    return int(text) if text.isascii() and text.isdigit() and int(text) < len(items) else None
