"""What means the same in every folder and every process."""

from pathlib import Path

import pytest

from srl.config.portable import absolute, by_name
from srl.core.registry import REGISTRIES


class Thing:
    pass


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "my.py").write_text("class A: pass\n")
    (tmp_path / "runs").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_files_that_are_there_become_absolute(here: Path) -> None:
    file = here / "sub" / "my.py"
    found = absolute(
        {
            "env": "sub/my.py:A",
            "algorithm": {"use": "sub/my.py:A", "lr": 1.0},
            "policies": {"main": {"policy": {"use": "./sub/my.py:A"}, "load": "runs"}},
            "graph": {"nodes": {"x": {"worker": "sub/my.py:A", "args": {"transform": [{"use": "sub/my.py:A"}]}}}},
            "plugins": ["sub/my.py", "my_pkg"],
            "load": "runs",
        }
    )
    assert found == {
        "env": f"{file}:A",
        "algorithm": {"use": f"{file}:A", "lr": 1.0},
        "policies": {"main": {"policy": {"use": f"{file}:A"}, "load": str(here / "runs")}},
        "graph": {"nodes": {"x": {"worker": f"{file}:A", "args": {"transform": [{"use": f"{file}:A"}]}}}},
        "plugins": [str(file), "my_pkg"],
        "load": str(here / "runs"),
    }


@pytest.mark.parametrize("text", ["nowhere.py:A", "my_pkg.mod:A", "CartPole-v1", "sub/my.py"])
def test_other_text_stays_as_it_is(here: Path, text: str) -> None:
    assert absolute({"env": text, "load": "gone"}) == {"env": text, "load": "gone"}


def test_classes_become_paths() -> None:
    path = f"{__name__}:Thing"
    assert by_name({"env": Thing, "algorithm": {"use": Thing, "lr": 1}, "x": [Thing]}) == {
        "env": path,
        "algorithm": {"use": path, "lr": 1},
        "x": [path],
    }


def test_what_no_other_process_finds_is_held_here_under_its_name() -> None:
    class Local:
        pass

    name = by_name({"policies": {"main": {"policy": {"use": Local}}}})["policies"]["main"]["policy"]["use"]
    assert name.endswith("<locals>.Local") and REGISTRIES["policy"].held(name) is Local
