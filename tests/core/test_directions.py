"""The house has floors: a room imports from lower ones only, torch stays where tensors are, and nothing pickles."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import srl

ROOT = Path(srl.__file__).parent
FLOORS = [
    {"core"},
    {"api"},
    {"config", "envs", "nets", "streams", "store", "replay", "algorithms"},
    {"graph"},
    {"workers", "learners"},
    {"observe"},
    {"control"},
    {"cluster"},
    {"session", "loaded", "tune", "export"},
    {"cli"},
    {"launch", "__main__"},
    {"__init__"},
]
CONTRACTS = {
    ("config", "srl.graph.spec"),  # the classes that the short form shares with graphs
    ("workers", "srl.learners.make"),
    ("learners", "srl.workers.base"),
}
TENSORS = ("nets", "algorithms", "learners")
TENSOR_FILES = {"api/algorithm.py", "api/batch.py", "api/neural.py"}


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


def floor(name: str) -> int:
    found = [number for number, rooms in enumerate(FLOORS) if name in rooms]
    assert found, f"room '{name}' has no floor: add it to FLOORS"
    return found[0]


@pytest.mark.parametrize("file", list(files()), ids=lambda file: str(file.relative_to(ROOT)))
def test_rooms_import_from_lower_floors_only(file):
    own = room(file)
    wrong = []
    for module in imports(file):
        parts = module.split(".")
        if parts[0] != "srl" or len(parts) < 2 or parts[1] == own:
            continue
        agreed = any(own == home and module.startswith(target) for home, target in CONTRACTS)
        if floor(parts[1]) >= floor(own) and not agreed:
            wrong.append(module)
    assert not wrong


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
