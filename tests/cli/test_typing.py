"""What a type checker sees of the public names."""

import subprocess
import sys
from pathlib import Path

import pytest

import srl

SCRIPT = """
import srl

run = srl.launch("cartpole", wait=False)
reveal_type(run)
reveal_type(run.wait())
reveal_type(srl.load_run("runs").policy("best"))
"""


@pytest.mark.long
def test_a_type_checker_sees_functions_and_their_results(tmp_path):
    pytest.importorskip("mypy")
    (tmp_path / "mine.py").write_text(SCRIPT)
    (tmp_path / "mypy.ini").write_text(f"[mypy]\nmypy_path = {Path(srl.__file__).parents[1]}\nfollow_imports = silent\n")
    command = [sys.executable, "-m", "mypy", "--config-file", "mypy.ini", "--cache-dir", "cache", "mine.py"]
    said = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=110, check=False).stdout
    for name in ("srl.run.Run", "srl.observe.result.RunResult", "srl.loaded.LoadedPolicy"):
        assert f'Revealed type is "{name}"' in said, said


def test_launch_is_a_function_whatever_is_imported():
    check = "import srl.launch, inspect; assert 'experiment' in inspect.signature(srl.launch).parameters"
    assert subprocess.run([sys.executable, "-c", check], timeout=60, check=False).returncode == 0
