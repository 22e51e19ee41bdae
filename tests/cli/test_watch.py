"""`srl watch` beside a run: shows its newest policy, leaves it as it is, and goes on when it ends."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import srl
from srl.__main__ import main as verbs
from srl.store import checkpoint
from srl.store.run_folder import RunFolder
from tests.waiting import until

RUN: dict[str, Any] = {
    "env": "CartPole-v1",
    "algorithm": {"use": "ppo", "epochs": 2, "minibatch": 256},
    "sampling": {"envs": 8, "steps": 32, "workers": 1},
    "checkpoint": {"every": 0},
    "stop": {"seconds": 200},
}


class Watching:
    """The command in a process of its own, and a browser that looks."""

    def __init__(self, folder: Path) -> None:
        command = [sys.executable, "-m", "srl", "watch", str(folder), "--show", "page", "--fps", "500"]
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # background jobs of a shell ignore it
        )  # fmt: skip
        assert self.process.stdout is not None
        self.said: list[str] = []
        threading.Thread(target=lambda: self.said.extend(self.process.stdout or ()), daemon=True).start()
        until(lambda: self.said or self.process.poll() is not None)
        found = re.search(r"http://127\.0\.0\.1:\S+", self.said[0])
        assert found, self.said
        self.address = found.group(0)
        self.pictures = urllib.request.urlopen(self.address + "pictures", timeout=10)

    def facts(self) -> dict[str, Any]:
        with urllib.request.urlopen(self.address + "state", timeout=10) as answer:
            return dict(json.load(answer))


@contextmanager
def watching(folder: Path, *, until_told_by: int = signal.SIGINT, within: float = 30) -> Iterator[Watching]:
    watcher = Watching(folder)
    try:
        yield watcher
        assert watcher.process.poll() is None
        watcher.process.send_signal(until_told_by)
        assert watcher.process.wait(within) == (0 if until_told_by == signal.SIGINT else -until_told_by)
    finally:
        watcher.pictures.close()
        watcher.process.kill()
        watcher.process.wait()
        assert watcher.process.stdout is not None
        watcher.process.stdout.close()


def test_it_follows_a_run_leaves_it_unchanged_and_goes_on_when_it_ends(tmp_path: Path) -> None:
    run = srl.launch(wait=False, **RUN, mode="local", runs=tmp_path, quiet=True)
    folder = RunFolder(run.folder)
    try:
        until(lambda: folder.read_status().get("env_steps", 0) > 0)
        before = set(run.folder.rglob("*"))
        with watching(run.folder) as watcher:
            until(lambda: watcher.facts()["update"] > 0)
            first = watcher.facts()
            until(lambda: watcher.facts()["update"] > first["update"] + 3)  # there is no checkpoint: these come from the run
            assert checkpoint.latest(folder.checkpoints) is None
            assert watcher.facts()["source"] == ""
        assert any("this is its newest policy" in line for line in watcher.said)
        assert {path.name for path in run.folder.rglob("*") if path not in before} <= {"metrics.jsonl", "eval.csv"}
        with watching(run.folder) as watcher:  # again, and it goes on
            until(lambda: watcher.facts()["update"] > first["update"] + 3)
            run.stop().finish(60)
            until(lambda: any("the run has ended (done)" in line for line in watcher.said))
            last = checkpoint.latest(folder.checkpoints)
            assert last is not None
            until(lambda: watcher.facts()["env_steps"] == checkpoint.read(last).state["env_steps"])
            step = watcher.facts()["step"]
            until(lambda: watcher.facts()["step"] != step)
    finally:
        assert run.stop().finish(60).kind == "done"
    assert not folder.params.exists()


def test_of_an_inline_run_the_newest_checkpoint_plays(tmp_path: Path) -> None:
    run = srl.launch(wait=False, **RUN | {"checkpoint": {"every": 2}}, mode="inline", runs=tmp_path, quiet=True)
    until(lambda: checkpoint.latest(run.folder / "checkpoints") is not None)
    try:
        with watching(run.folder, until_told_by=signal.SIGTERM) as watcher:  # SDL, which draws, would take it
            until(lambda: watcher.facts()["source"].startswith("step_"))
            first = watcher.facts()["source"]
            until(lambda: watcher.facts()["source"] not in ("", first))
            assert any("keeps its parameters to itself" in line for line in watcher.said)
    finally:
        run.stop().finish(60)


@pytest.mark.long
def test_it_ends_at_once_on_a_core_that_another_program_keeps_busy(tmp_path: Path) -> None:
    run = srl.launch(**RUN | {"stop": {"updates": 1}}, mode="inline", runs=tmp_path, quiet=True)
    usable = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(usable)})
    hog = None
    try:
        with watching(run.folder, within=10):
            hog = subprocess.Popen([sys.executable, "-c", "print(flush=True)\nwhile True: pass"], stdout=subprocess.PIPE)
            assert hog.stdout is not None and hog.stdout.readline()
    finally:
        os.sched_setaffinity(0, usable)
        if hog is not None:
            hog.kill()
            hog.communicate()


def test_without_a_checkpoint_of_a_finished_run_nothing_is_shown(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    run = srl.launch(**RUN | {"stop": {"updates": 1}}, mode="inline", runs=tmp_path, quiet=True)
    for path in (run.folder / "checkpoints").rglob("*"):
        if path.name in ("latest", "manifest.json"):
            path.unlink()
    assert verbs(["watch", str(run.folder)]) == 2
    assert "ended (done) before it saved one" in capfd.readouterr().err
