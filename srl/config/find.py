"""Find experiment files, and list them."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from srl.core.errors import UserError
from srl.core.files import usable_path
from srl.core.load import meant

ENDINGS = (".yaml", ".yml")


def experiment_folders() -> list[Path]:
    """`./experiments`, then the folder installed with the package."""
    own = Path("experiments")
    packaged = [
        Path(__file__).resolve().parents[2] / "experiments",  # a clone
        Path(sys.prefix) / "share" / "srl" / "experiments",  # an installed wheel
    ]
    known = [folder for folder in packaged if folder.is_dir() and folder.resolve() != own.resolve()]
    return [folder for folder in (own,) if folder.is_dir()] + known


def search_folders() -> list[Path]:
    """Folders searched for a name: `./experiments`, the working directory, the installed ones."""
    folders = experiment_folders()
    at = 1 if folders[:1] == [Path("experiments")] else 0
    return [*folders[:at], Path(), *folders[at:]]


def find(name: str | Path, search: Sequence[Path] | None = None, *, beside: Path | None = None, asked: object = None) -> Path:
    """The file of a name or path. E01 lists what there is.

    `beside`: the folder of the file that inherits it. `asked`: the place that names it.
    """
    given = usable_path(name)
    folders = list(search) if search is not None else search_folders()
    places = [*([beside] if beside is not None else []), *folders]
    if given.suffix in ENDINGS:
        places.insert(1 if beside is not None else 0, Path())  # a path is meant as it stands
    for folder in places:
        for candidate in _candidates(folder / given):
            if candidate.is_file():
                return candidate
    raise _unknown(str(name), folders, asked)


def list_experiments(search: Sequence[Path] | None = None) -> dict[str, str]:
    """Experiment -> summary, by name; parts in folders called `base` and names with a leading underscore are left out."""
    found: dict[str, str] = {}
    for folder in search if search is not None else experiment_folders():
        for path in sorted(one for ending in ENDINGS for one in folder.rglob(f"*{ending}")):
            parts = path.relative_to(folder).with_suffix("").parts
            if any(part == "base" or part.startswith(("_", ".")) for part in parts):
                continue
            found.setdefault("/".join(parts), _summary(path))
    return dict(sorted(found.items()))


def shown(path: Path) -> str:
    """The path relative to the working directory, if it is below it."""
    try:
        return str(path.resolve().relative_to(Path.cwd()))
    except ValueError:
        return str(path)


def _candidates(path: Path) -> list[Path]:
    if path.suffix in ENDINGS:
        return [path]
    return [path.with_name(path.name + ending) for ending in ENDINGS] + [path / "config.yaml"]  # a run folder


def _summary(path: Path) -> str:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return ""
    return next((line.lstrip("# ").strip() for line in text.splitlines() if line.startswith("#")), "")


def _unknown(name: str, folders: Sequence[Path], asked: object) -> UserError:
    names = list(list_experiments([folder for folder in folders if folder != Path()]))
    is_path = name.endswith(ENDINGS)
    known = ("known", f"{', '.join(names) or 'none'}    with a line on each: python -m srl list")
    return UserError(
        f"no {'file' if is_path else 'experiment'} is called '{name}'",
        *([("from", str(asked))] if asked is not None else []),
        *meant(str(Path(name).with_suffix("")) if is_path else name, names),
        *([known] if not is_path else []),
        ("searched", ", ".join(shown(folder) for folder in folders) or "nowhere"),
        code="E01",
    )
