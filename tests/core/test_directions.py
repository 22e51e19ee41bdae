"""Rooms import in one direction only, torch stays where tensors are, and nothing pickles."""

import ast
import functools
from collections.abc import Iterator
from pathlib import Path

import pytest

import srl

ROOT = Path(srl.__file__).parent
TABLE = Path(__file__).parents[2] / "docs" / "architecture.md"
TENSORS = ("nets", "algorithms", "learners", "export")
TENSOR_FILES = {
    "api/algorithm.py",
    "api/batch.py",
    "api/parts.py",
    "api/flat.py",
    "api/minibatches.py",
    "api/neural.py",
    "api/value_head.py",
}


def files() -> Iterator[Path]:
    return (file for file in sorted(ROOT.rglob("*.py")))


def room(file: Path) -> str:
    parts = file.relative_to(ROOT).parts
    return parts[0] if len(parts) > 1 else file.stem


def imports(file: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


@functools.cache
def rooms() -> dict[str, set[str]]:
    """Room -> the rooms that it may import, from the table in docs/architecture.md."""
    allowed: dict[str, set[str]] = {}
    for line in TABLE.read_text().partition("## Rooms")[2].partition("\n## ")[0].splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("| `"):
            below = set(allowed) if cells[2] == "all above" else {name.strip() for name in cells[2].split(",") if name.strip()}
            allowed |= {name.strip(" `"): below for name in cells[0].split(",")}
    return allowed


def test_the_table_has_every_room_and_points_upwards_only():
    seen: set[str] = set()
    for name, below in rooms().items():
        assert below <= seen, name
        seen.add(name)
    assert {room(file) for file in files()} <= seen


@pytest.mark.parametrize("file", list(files()), ids=lambda file: str(file.relative_to(ROOT)))
def test_rooms_import_from_those_in_their_row_only(file):
    own = room(file)
    for module in imports(file):
        parts = module.split(".")
        if parts[0] != "srl":
            continue
        target = parts[1] if len(parts) > 1 else "__init__"
        assert target == own or target in rooms()[own], module


def test_torch_is_imported_only_where_tensors_are():
    found = []
    for file in files():
        name = str(file.relative_to(ROOT))
        if room(file) not in TENSORS and name not in TENSOR_FILES:
            found += [name for module in imports(file) if module.split(".")[0] == "torch"]
    assert not found


def test_nothing_pickles():
    banned = {"pickle", "cloudpickle", "dill", "shelve", "marshal"}
    assert not [str(file) for file in files() if banned & {module.split(".")[0] for module in imports(file)}]
