"""Names that the user's own script registers mean the same in its workers."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import yaml

import srl
from srl.config.portable import everywhere
from srl.core.registry import REGISTRIES

ROOT = str(Path(srl.__file__).parents[1])

SCRIPT = """\
import srl
from srl.algorithms.ppo import PPO
from srl.envs.fake import FakeEnv

srl.register_algorithm("our-ppo")(PPO)  # a class of another module: this one gives the name


@srl.register_env("our-env")
class Ours(FakeEnv):
    pass


def run():
    sampling = {"envs": 2, "steps": 8, "workers": 1}
    settings = {"env": {"use": "our-env", "teams": {"red": 1}}, "algorithm": "our-ppo", "sampling": sampling}
    run = srl.launch(**settings, evaluation=None, stop={"updates": 2}, runs="runs", quiet=True)
    print(run.result.kind)
"""
GUARDED = SCRIPT + '\n\nif __name__ == "__main__":\n    run()\n'
UNGUARDED = SCRIPT + "\n\nrun()\n"
LATE = GUARDED.replace('@srl.register_env("our-env")\n', "").replace(
    "    run()", '    srl.register_env("our-env")(Ours)\n    run()'
)


def ran(folder: Path, text: str) -> subprocess.CompletedProcess[str]:
    (folder / "script.py").write_text(text)
    command = [sys.executable, "script.py"]
    return subprocess.run(
        command, cwd=folder, env={"PYTHONPATH": ROOT, "PATH": ""}, capture_output=True, text=True, timeout=60, check=False
    )


@pytest.mark.parametrize("text", [GUARDED, pytest.param(LATE, marks=pytest.mark.long)], ids=["at the top", "registered late"])
def test_workers_know_the_names_that_a_script_registers(tmp_path: Path, text: str) -> None:
    done = ran(tmp_path, text)
    assert done.stdout.splitlines()[-1:] == ["done"], done.stdout + done.stderr
    (config,) = tmp_path.glob("runs/*/*/config.yaml")
    data = yaml.safe_load(config.read_text())
    assert data["env"]["use"] == f"{tmp_path / 'script.py'}:Ours"  # a resume finds it too
    assert data["algorithm"] == "srl.algorithms.ppo:PPO" and data["name"] == "our-env"


def test_a_script_whose_import_starts_a_run_is_refused_with_what_to_do(tmp_path: Path) -> None:
    done = ran(tmp_path, UNGUARDED)
    assert done.returncode == 1
    assert f"error[E07]: importing {tmp_path / 'script.py'} starts a run" in done.stderr
    assert 'try: put the call under `if __name__ == "__main__":`' in done.stderr
    assert not list(tmp_path.glob("runs/*/*"))


def test_built_in_names_stay_and_registered_ones_become_paths() -> None:
    REGISTRIES["transform"].add("our-transform", "their_pkg.mod:Transform")
    given = {
        "algorithm": "ppo",
        "graph": {"nodes": [{"worker": "actor", "args": {"transform": ["our-transform"]}}]},
        "x": "actor",
    }
    found = everywhere(given)
    assert found["algorithm"] == "ppo" and found["x"] == "actor"
    assert found["graph"]["nodes"] == [{"worker": "actor", "args": {"transform": ["their_pkg.mod:Transform"]}}]
