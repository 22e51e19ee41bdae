"""`srl status`, `stop`, `logs` and `top` of runs that are under way: by the folder, and over the network."""

from __future__ import annotations

import contextlib
import json
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from srl.__main__ import main
from srl.dashboard.runs import read_live
from srl.store.run_folder import RunFolder
from tests.waiting import until

ROOT = Path(__file__).parents[2]


@contextlib.contextmanager
def started(runs: Path, *words: str) -> Iterator[tuple[subprocess.Popen[str], Path]]:
    """A run that goes on until it is told to stop, and its folder."""
    command = [
        sys.executable,
        "-m",
        "srl.launch",
        "experiment=cartpole",
        "stop={seconds: 300, env_steps: null, return: null}",
        "evaluation=null",
        "--quiet",
    ]
    with subprocess.Popen([*command, f"--runs={runs}", *words], cwd=ROOT, stdout=subprocess.PIPE, text=True) as run:
        try:
            until(lambda: run.poll() is not None or any("screen" in read_live(one) for one in RunFolder.below(runs)))
            (folder,) = RunFolder.below(runs)
            yield run, folder.path
        finally:
            run.kill()


def test_a_run_over_hosts_answers_by_its_folder_and_over_the_network(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    away = ["launcher=loopback", "hosts.far.shared=false", "workers.actor.hosts=far", "sampling.workers=1", "layout=impala"]
    with started(tmp_path / "runs", *away) as (run, folder):
        control = shutil.copy(folder / "control.json", tmp_path)
        assert stat.S_IMODE((folder / "control.json").stat().st_mode) == 0o600
        for place in (str(folder), control):
            until(
                lambda place=place: main(["top", place]) == 0 and "actor/0" in (out := capsys.readouterr().out) and "far/0" in out
            )
        assert main(["status", control]) == 0
        said = capsys.readouterr().out
        assert "running" in said and str(folder) in said
        (folder / "logs" / "actor-0.log").write_text("first\nsecond\n")
        assert main(["logs", control]) == 0 and "second" in capsys.readouterr().out
        assert main(["logs", control, "actor/0", "-n", "1"]) == 0 and capsys.readouterr().out == "second\n"
        assert main(["logs", control, "actor/9"]) == 2 and "logs: actor/0" in capsys.readouterr().err
        facts = json.loads(Path(control).read_text())
        wrong = tmp_path / "wrong.json"
        wrong.write_text(json.dumps({**facts, "token": "x" * 43}))
        assert main(["stop", str(wrong)]) == 2 and "does not accept this token" in capsys.readouterr().err
        assert main(["status", control, "--address", "127.0.0.1:9"]) == 2 and "ssh -L" in capsys.readouterr().err
        assert main(["stop", control]) == 0 and "it has ended" in capsys.readouterr().out
        assert run.wait(30) == 130
        assert "by srl stop" in run.stdout.read()
    assert RunFolder(folder).state == "interrupted" and list((folder / "checkpoints").glob("step_*"))
    assert not [name for name in ("control.json", "stop") if (folder / name).exists()]


@pytest.mark.parametrize("mode", ["inline", pytest.param("local", marks=pytest.mark.long)])
def test_a_plain_run_is_stopped_by_its_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str], mode: str) -> None:
    with started(tmp_path / "runs", f"mode={mode}") as (run, folder):
        assert main(["top", str(tmp_path / "runs")]) == 0 and "trainer" in capsys.readouterr().out
        assert main(["stop", str(tmp_path / "runs")]) == 0
        said = capsys.readouterr().out
        assert "it has ended: interrupted, saved as step_" in said and f"--resume {folder}" in said
        assert run.wait(30) == 130
    assert main(["stop", str(folder)]) == 2 and "is not active" in capsys.readouterr().err
