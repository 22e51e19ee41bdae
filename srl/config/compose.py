"""An experiment file, what it inherits, and overrides, merged into one mapping with the origin of every value."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import Any

from srl.config.find import ENDINGS, find, shown
from srl.config.merge import Merged, label
from srl.config.overrides import Override, parse_override
from srl.config.yaml import Sourced, read
from srl.core.errors import UserError
from srl.core.option import shown as cut
from srl.core.where import Provenance, Where

PYTHON = Where("python call")
_MOST_FILES = 100
"""Maximum number of inherited files, each counted as often as it is named."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Composed:
    """The data of an experiment before any schema has seen it."""

    data: dict[str, Any]
    provenance: Provenance
    name: str = ""
    """`cartpole`, `base/ppo`; empty when no file was named."""
    notes: tuple[str, ...] = ()
    """What was dropped because a `use` changed."""


def compose(
    experiment: str | FilePath | None,
    overrides: Sequence[str] = (),
    *,
    search: Sequence[FilePath] | None = None,
    settings: Mapping[str, Any] | None = None,
    origin: Where | None = None,
) -> Composed:
    """Merge the file of `experiment` (optional), `settings` of a Python call, and overrides from left to right.

    `experiment=NAME` and `import=MODULE` are understood among the overrides. `origin` replaces the places of the
    experiment's own values: a resume says where they really come from.
    """
    words, named, plugins = _split([parse_override(text) for text in overrides])
    experiment = experiment if experiment is not None else named
    merged = Merged()
    reader = _Reader(search)
    name = ""
    if experiment is not None:
        path = find(experiment, search)
        name = FilePath(experiment).stem if str(experiment).endswith(ENDINGS) else str(experiment)
        base = reader.read(path)
        if origin is not None:
            label(base.provenance, (), base.data, origin)
        merged.merge(base.data, base.provenance)
    for key, value in (settings or {}).items():
        merged.assign((key,), value, PYTHON)
    for word in words:
        _apply(word, merged, reader)
    if plugins:
        known = merged.data.get("plugins") or []
        listed = known if isinstance(known, list) else [known]
        merged.assign(("plugins",), [*listed, *(one for one in plugins if one not in listed)])
    return Composed(
        data=merged.data,
        provenance=merged.provenance,
        name=name,
        notes=tuple(dict.fromkeys([*reader.notes, *merged.notes])),
    )


class _Reader:
    """Reads files with what they inherit."""

    def __init__(self, search: Sequence[FilePath] | None) -> None:
        self.search = search
        self.notes: list[str] = []
        self._open: list[FilePath] = []
        self._read_so_far = 0

    def read(self, path: FilePath) -> Sourced:
        """A file merged over the files that it inherits."""
        real = path.resolve()
        if real in self._open:
            chain = " -> ".join(shown(one) for one in [*self._open[self._open.index(real) :], real])
            raise UserError(f"'{shown(path)}' inherits itself", ("chain", chain), code="E11")
        if self._read_so_far >= _MOST_FILES:
            raise UserError(f"more than {_MOST_FILES} files are inherited", ("at", shown(path)), code="E11")
        self._read_so_far += 1
        self._open.append(real)
        own = read(path, shown(path))
        if own.data is not None and not isinstance(own.data, dict):
            raise UserError(
                f"'{shown(path)}' contains no mapping", ("expected", "settings such as  env: CartPole-v1"), code="E11"
            )
        data = dict(own.data or {})
        merged = Merged()
        for name, place in self._parents(data.pop("inherit", None), own.provenance):
            parent = self.read(find(name, self.search, beside=path.parent, asked=place))
            parent.data.pop("expect", None)  # what one experiment reaches says nothing of another
            parent.provenance.drop(("expect",))
            merged.merge(parent.data, parent.provenance)
        own.provenance.drop(("inherit",))
        merged.merge(data, own.provenance)
        self.notes += merged.notes
        self._open.pop()
        return Sourced(merged.data, merged.provenance)

    def _parents(self, inherit: Any, places: Provenance) -> Iterator[tuple[str, Where | None]]:
        names = [inherit] if isinstance(inherit, str) else inherit if inherit is not None else []
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise UserError(
                "inherit expects names of experiments",
                ("from", str(places.at(("inherit",)))),
                ("try", "inherit: [base/ppo]"),
                code="E11",
            )
        yield from ((name, places.at(("inherit", i))) for i, name in enumerate(names))


def _split(words: list[Override]) -> tuple[list[Override], str | None, list[str]]:
    """Other overrides, the experiment, and the plugins."""
    rest, experiment, plugins = [], None, []
    for word in words:
        if word.path == ("experiment",) and word.action == "set":
            experiment = str(word.value)
        elif word.path == ("import",) and word.action == "set":
            plugins += [str(one) for one in (word.value if isinstance(word.value, list) else str(word.value).split(","))]
        else:
            rest.append(word)
    return rest, experiment, plugins


def _apply(word: Override, merged: Merged, reader: _Reader) -> None:
    if word.action == "merge":
        read_file = reader.read(find(word.value, reader.search, asked=f"'{word.text}' on the command line"))
        merged.merge(read_file.data, read_file.provenance)
    elif word.action == "remove":
        merged.remove(word.path)
    elif word.action == "add" and merged.has(word.path):
        place = merged.provenance.at(word.path)
        headline = f"'{cut(word.text)}' adds a setting that exists already"
        raise UserError(headline, ("from", str(place)), ("try", cut(word.text[1:])), code="E12")
    else:
        merged.assign(word.path, word.value)
