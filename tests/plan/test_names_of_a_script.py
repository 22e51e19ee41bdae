"""Names that the user's own script registers mean the same in its workers."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import yaml

import srl
from srl.config.portable import homes
from srl.core.registry import REGISTRIES, load_plugins

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
    settings = {"env": {"use": "our-env", "teams": {"red": 1}}, "algorithm": "our-ppo", "sampling": {"envs": 2, "steps": 8}}
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


@pytest.mark.parametrize("text", [GUARDED, UNGUARDED], ids=["guarded", "unguarded"])
def test_workers_know_the_names_that_a_script_registers(tmp_path: Path, text: str) -> None:
    done = ran(tmp_path, text)
    assert done.stdout.splitlines()[-1:] == ["done"], done.stdout + done.stderr
    (config,) = tmp_path.glob("runs/*/*/config.yaml")
    data = yaml.safe_load(config.read_text())
    assert data["env"]["use"] == "our-env" and data["plugins"] == [str(tmp_path / "script.py")]  # a resume finds them too


def test_a_name_that_others_would_not_come_to_is_refused_with_what_to_do(tmp_path: Path) -> None:
    done = ran(tmp_path, LATE)
    line = LATE.splitlines().index('    srl.register_env("our-env")(Ours)') + 1
    assert done.returncode == 1
    assert (
        "error[E07]: env 'our-env' is registered in this process only\n"
        f"  from: {tmp_path}/script.py:{line}\n"
        "  because: other processes import that file, and do not come to this line\n"
        '  try: register it at the top level of the file, not below `if __name__ == "__main__":` nor in a function\n'
        "  or: mode=inline\n"
    ) in done.stderr


def test_names_of_plugins_and_built_in_ones_need_no_home(tmp_path: Path) -> None:
    file = tmp_path / "srl_test_plugin.py"
    file.write_text('import srl\n\n\n@srl.register_env("plugged-env")\nclass Plugged:\n    pass\n')
    load_plugins([str(file)], installed=False)
    assert "plugged-env" in REGISTRIES["env"]
    assert homes({"env": "plugged-env", "algorithm": {"use": "ppo"}, "seed": 1}) == []


def test_the_module_that_registers_is_the_home_wherever_the_name_stands() -> None:
    REGISTRIES["transform"].add("homed-transform", "their_pkg.mod:Transform")
    assert homes({"graph": {"nodes": [{"args": {"transform": "homed-transform"}}]}}) == [__name__]
