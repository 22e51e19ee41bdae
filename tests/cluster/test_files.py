"""Files of workers on hosts that do not see the run folder."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest

from srl.cluster.files import Arrivals, new_lines, pieces
from srl.cluster.spool import Spool
from srl.core.errors import HostileFrame
from srl.store import checkpoint
from srl.store.run_folder import RunFolder
from srl.workers.messages import LIMIT, Message, pack, unpack

ROOT = Path(__file__).parents[2]


@pytest.fixture
def spool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterable[Spool]:
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    one = Spool()
    yield one
    one.close()
    assert not list((tmp_path / "tmp").iterdir())


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "run").mkdir()
    return tmp_path / "run"


def send(messages: Iterable[Message], to: Path | Spool) -> list[str]:
    """Over the wire."""
    taker = to if isinstance(to, Spool) else Arrivals(to, "host0")
    kinds = []
    for message in messages:
        taker.take(unpack(pack(message)))
        kinds.append(message["type"])
    return kinds


def weights(size: int) -> dict[str, dict[str, np.ndarray]]:
    return {"policy": {"w": np.arange(size, dtype=np.float32)}}


def test_checkpoints_arrive_whole_and_leave_when_they_are_pruned(spool: Spool, home: Path) -> None:
    folder = spool.path / "checkpoints"
    checkpoint.write(folder, 10, weights(LIMIT), {"env_steps": 10})
    assert send(spool.changes(final=True), home).count("file") > 15
    path = checkpoint.latest(home / "checkpoints")
    assert path is not None and checkpoint.read(path).groups["policy"]["w"][-1] == LIMIT - 1
    checkpoint.write(folder, 20, weights(1), {"env_steps": 20})
    checkpoint.prune(folder, 1)
    assert "gone" in send(spool.changes(final=True), home)
    assert [checkpoint.step_of(one) for one in checkpoint.checkpoints(home / "checkpoints")] == [20]
    assert send(spool.changes(final=True), home) == []


def test_a_checkpoint_that_has_not_arrived_whole_is_none(spool: Spool, home: Path) -> None:
    checkpoint.write(spool.path / "checkpoints", 10, weights(10), {"env_steps": 10})
    *first, _ = pieces(spool.path, "checkpoints/step_000000010")
    send(first, home)
    assert checkpoint.latest(home / "checkpoints") is None
    RunFolder(home).sweep()
    assert not list((home / "checkpoints").iterdir())


def test_what_the_controller_sent_is_not_sent_back(spool: Spool, home: Path) -> None:
    checkpoint.write(home / "checkpoints", 10, weights(10), {"env_steps": 10})
    (home / "eval.csv").write_text("env_steps\n10\n")
    for name in ("checkpoints/step_000000010", "checkpoints/latest", "eval.csv"):
        send(pieces(home, name), spool)
    assert checkpoint.latest(spool.path / "checkpoints") is not None
    assert list(spool.changes(final=True)) == []
    RunFolder(spool.path).append_eval({"env_steps": 20})
    assert send(spool.changes(final=True), home) == ["file"]
    assert [row["env_steps"] for row in RunFolder(home).read_eval()] == ["10", "20"]


def test_logs_grow_and_very_much_output_is_shortened(spool: Spool, home: Path) -> None:
    log = spool.path / "logs" / "actor-0.log"
    log.write_text("one\n")
    send(spool.changes(), home)
    with log.open("a") as file:
        file.write("two\n" * 100_000 + "the end\n")
    send(spool.changes(), home)
    text = (home / "logs" / "actor-0.log").read_text()
    assert text.startswith("one\n\n... ") and " bytes are left out here ...\n" in text and text.endswith("two\nthe end\n")
    assert len(text) < 70_000
    assert new_lines(spool.path, "logs/actor-0.log", log.stat().st_size) == (log.stat().st_size, None)


@pytest.mark.parametrize(
    "name", ["../x", "/etc/x", "a/../../x", "status.json", "lock", ".hidden", "checkpoints/.tmp-x", "", "a/" * 20 + "x"]
)
def test_no_other_host_decides_about_files_of_the_controller(home: Path, name: str) -> None:
    for message in (
        {"type": "file", "name": name, "whole": "", "begin": 0, "data": b"x", "last": True},
        {"type": "lines", "name": name, "data": b"x"},
        {"type": "gone", "name": name},
        {"type": "whole", "name": name},
    ):
        with pytest.raises(HostileFrame):
            Arrivals(home, "host0").take(message)
    assert not list(home.iterdir()) and not (home.parent / "x").exists()


def test_spools_of_killed_supervisors_are_deleted_by_the_next_one(spool: Spool) -> None:
    code = "import os, srl.cluster.spool as s; print(s.Spool().path, flush=True); os.kill(os.getpid(), 9)"
    environment = {**os.environ, "TMPDIR": str(spool.path.parent)}
    left = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    path = Path(left.stdout.strip())
    assert path.is_dir() and path.parent == spool.path.parent
    Spool().close()
    assert not path.exists() and spool.path.exists()


@pytest.mark.long  # the same over ssh: test_cartpole_learns_over_two_hosts[everything]
def test_trainer_and_evaluator_of_cartpole_run_on_other_hosts_without_shared_files(tmp_path: Path) -> None:
    (tmp_path / "tmp").mkdir()
    words = [
        "experiment=cartpole", "launcher=loopback", "hosts.far={count: 2, shared: false}", "workers.trainer.hosts=far",
        "workers.evaluator.hosts=far", "workers.actor.hosts=far", "layout=impala", "sampling.workers=2", "stop.return=100",
        "evaluation.every=10_000", "evaluation.episodes=2", f"--runs={tmp_path / 'runs'}",
    ]  # fmt: skip
    command = [sys.executable, "-m", "srl.launch", *words]
    environment = {**os.environ, "TMPDIR": str(tmp_path / "tmp")}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=110, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "solved" in done.stdout and " ok\n" in done.stdout, done.stdout
    assert "home (this machine): nothing" in done.stdout
    (folder,) = (tmp_path / "runs" / "cartpole").iterdir()
    run = RunFolder(folder)
    newest, best = checkpoint.latest(run.checkpoints), checkpoint.best(run.checkpoints)
    assert newest is not None and best is not None
    assert checkpoint.read(newest).state["env_steps"] == run.read_status()["env_steps"], "the last one has arrived"
    assert str(checkpoint.step_of(best)) in {row["env_steps"] for row in run.read_eval()}
    assert not list(run.checkpoints.rglob(".tmp-*")) and not list((tmp_path / "tmp").iterdir())


@pytest.mark.long
def test_a_run_without_shared_files_is_resumed_on_another_host(tmp_path: Path) -> None:
    words = [
        "hosts.far={count: 2, shared: false}", "launcher=loopback", "workers.trainer.hosts=far", "workers.evaluator.hosts=far",
        "workers.actor.hosts=far", "layout=offpolicy", "env=CartPole-v1", "algorithm=dqn", "sampling.workers=2",
        "checkpoint.replay=true", "evaluation={every: 2000, episodes: 2}",
    ]  # fmt: skip
    begin = [sys.executable, "-m", "srl.launch"]
    first = [*begin, *words, "stop.env_steps=6000", f"--runs={tmp_path / 'runs'}"]
    done = subprocess.run(first, cwd=ROOT, capture_output=True, text=True, timeout=110, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (folder,) = (tmp_path / "runs").glob("*/*")
    assert list((folder / "replays").rglob("*.npy")), "the rows of the replay have arrived"
    before = RunFolder(folder).read_eval()
    again = [*begin, f"--resume={folder}", "stop.env_steps=9000"]
    done = subprocess.run(again, cwd=ROOT, capture_output=True, text=True, timeout=110, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    run = RunFolder(folder)
    assert run.read_status()["env_steps"] >= 9000 and run.read_eval()[: len(before)] == before
    newest = checkpoint.latest(run.checkpoints)
    assert newest is not None and checkpoint.read(newest).state["env_steps"] >= 9000
