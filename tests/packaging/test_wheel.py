"""What is published: a wheel that works from any folder, and the files about the project."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
import yaml

import srl

ROOT = Path(srl.__file__).parents[1]


def run(*words: object, cwd: Path) -> str:
    ended = subprocess.run([str(word) for word in words], cwd=cwd, capture_output=True, text=True, timeout=115, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


@pytest.mark.long
def test_a_wheel_runs_experiments_and_examples_from_an_empty_folder(tmp_path: Path) -> None:
    source, home, empty = tmp_path / "source", tmp_path / "venv", tmp_path / "empty"
    for folder in (source, empty):
        folder.mkdir()
    files = run("git", "ls-files", "-z", cwd=ROOT).split("\0")
    for name in filter(None, files):
        if name.startswith(("srl/", "experiments/", "docs/examples/")) or "/" not in name:
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            (source / name).write_bytes((ROOT / name).read_bytes())
    run(sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "-w", tmp_path, source, cwd=tmp_path)
    run(sys.executable, "-m", "venv", "--without-pip", home, cwd=tmp_path)
    (wheel,) = tmp_path.glob("*.whl")
    place = home / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"
    run(sys.executable, "-m", "pip", "--python", home / "bin" / "python", "install", "--no-deps", wheel, cwd=tmp_path)
    others = [one for one in sys.path if one.endswith("site-packages")] or [sysconfig.get_path("purelib")]
    (place / "others.pth").write_text("\n".join(others) + "\n")
    command = home / "bin" / "srl"
    assert "cartpole_dagger" in run(command, "list", cwd=empty)
    found = run(home / "bin" / "python", "-c", "import srl; print(srl.__file__)", cwd=empty)
    assert str(home) in found
    small = ["stop.env_steps=3_000", "evaluation=null", "--quiet"]
    run(command, "launch", "experiment=cartpole_dagger", *small, cwd=empty)  # names a file of docs/examples
    run(command, "launch", "experiment=cartpole", *small, cwd=empty)
    assert "return" in run(command, "eval", "runs/cartpole", "--episodes", "2", cwd=empty)


def test_files_about_the_project_can_be_read_by_machines() -> None:
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert cited["cff-version"] == "1.2.0" and cited["version"] == srl.__version__ and cited["license"] == "MIT"
    forms = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"))
    assert len(forms) == 3
    for form in forms:
        assert {"name", "description", "body"} <= set(yaml.safe_load(form.read_text()))
