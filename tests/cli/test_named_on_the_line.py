"""What a command line names: files, folders of runs, transports; end to end on small runs."""

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import srl
from srl.__main__ import main as verbs
from srl.cli.launch import main

ROOT = Path(srl.__file__).parent.parent


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    root = tmp_path_factory.mktemp("runs")
    words = ["env=CartPole-v1", "algorithm=ppo", "mode=inline", "sampling={envs: 4, steps: 8}", "stop.updates=1"]
    assert main([*words, "--quiet", "--runs", str(root)]) == 0
    return next((root / "CartPole-v1").iterdir())


def test_the_graph_of_the_newest_run_below_a_folder(run, capsys):
    assert verbs(["graph", str(run.parent)]) == 0
    assert "samples.main" in capsys.readouterr().out


def test_a_run_whose_env_was_named_by_a_relative_file_is_evaluated_from_another_folder(tmp_path, monkeypatch, capsys):
    (tmp_path / "here").mkdir()
    (tmp_path / "there").mkdir()
    (tmp_path / "here" / "mine.py").write_text((ROOT / "docs/examples/my_env.py").read_text())
    monkeypatch.chdir(tmp_path / "here")
    words = ["env=mine.py:Corridor", "algorithm=ppo", "mode=inline", "sampling={envs: 4, steps: 8}", "stop.updates=1"]
    assert main([*words, "--runs", str(tmp_path / "runs"), "--quiet"]) == 0
    monkeypatch.chdir(tmp_path / "there")
    assert verbs(["eval", str(tmp_path / "runs"), "--episodes", "1"]) == 0


def test_the_script_srl_evaluates_a_class_of_the_folder_that_the_run_was_launched_in(tmp_path):
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    there.mkdir()
    (here / "mine.py").write_text((ROOT / "docs/examples/my_env.py").read_text())
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    words = ["env=mine:Corridor", "algorithm=ppo", "mode=inline", "sampling={envs: 4, steps: 8}", "stop.updates=1"]
    launch = [sys.executable, "-m", "srl.launch", *words, "--runs", str(tmp_path / "runs"), "--quiet"]
    assert subprocess.run(launch, cwd=here, env=environment, timeout=60, check=False).returncode == 0
    script = "import sys; sys.path.pop(0); from srl.__main__ import main; sys.exit(main())"  # as bin/srl, without this folder
    for folder in (here, there):
        command = [sys.executable, "-c", script, "eval", str(tmp_path / "runs"), "--episodes", "1"]
        assert subprocess.run(command, cwd=folder, env=environment, timeout=60, check=False).returncode == 0
    command = [sys.executable, "-c", script, "check", "env", "mine:Corridor"]
    assert subprocess.run(command, cwd=here, env=environment, timeout=60, check=False).returncode == 0


@pytest.mark.parametrize("mode", ["inline", "local"])
def test_a_run_without_standard_streams(mode, tmp_path):
    words = ["env=CartPole-v1", "algorithm=ppo", f"mode={mode}", "sampling={envs: 4, steps: 8, workers: 1}", "stop.updates=2"]
    command = shlex.join([sys.executable, "-m", "srl.launch", *words, "--runs", str(tmp_path)])
    ended = subprocess.run(f"exec {command} <&- >&- 2>&-", shell=True, cwd=ROOT, timeout=60, check=False)
    assert ended.returncode == 0
    (status,) = tmp_path.glob("*/*/status.json")
    assert json.loads(status.read_text())["state"] == "done"


def test_a_registered_transport_carries_a_stream(tmp_path, monkeypatch, capsys):
    (tmp_path / "pipes.py").write_text(
        "import srl\n"
        "from srl.streams.shm import ShmTransport\n"
        "@srl.register_transport('pipe')\n"
        "class Pipe(ShmTransport):\n"
        "    def __init__(self, wakeup, network):\n"
        "        open('used', 'a').close()\n"
        "        super().__init__(wakeup, network)\n"
    )
    monkeypatch.chdir(tmp_path)
    words = ["env=CartPole-v1", "algorithm=ppo", "import=pipes.py", "streams.samples.main.via=pipe", "layout=impala"]
    assert main([*words, "sampling={envs: 4, steps: 8, workers: 1}", "stop.updates=2", "--quiet"]) == 0
    assert (tmp_path / "used").exists()
    assert main([*words[:2], "streams.sample.via=zmk", "--dry-run"]) == 2
    assert "error[E07]: no transport is called 'zmk'\n  did you mean: zmq?" in capsys.readouterr().err
