"""On a core that learning wants, a viewer that is watched and an evaluator that never rests take less than two per cent of it."""

from __future__ import annotations

import os
import signal
import statistics
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import srl
from srl.store.run_folder import RunFolder
from tests.waiting import until

RUN: dict[str, Any] = {
    "env": "CartPole-v1",
    "algorithm": {"use": "ppo", "epochs": 4, "minibatch": 256},
    "layout": "impala",
    "sampling": {"envs": 16, "steps": 64, "workers": 1},
    "evaluation": {"every": 1, "episodes": 64},
    "viewer": {"show": "page"},
    "workers": {"evaluator": {"on_failure": "leave"}},
    "stop": {"seconds": 100},
}
SECONDS = 10.0


@pytest.fixture
def busy_core() -> Iterator[None]:
    """This process and its children have one core, which another program wants all the time."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    other = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    yield
    other.kill()
    other.wait()
    os.sched_setaffinity(0, before)


def used(process: int) -> float:
    """Processor seconds."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@pytest.mark.long
def test_viewer_and_evaluator_take_next_to_nothing_of_a_busy_core(busy_core: None, tmp_path: Path) -> None:
    run = srl.launch(wait=False, **RUN, mode="local", runs=tmp_path, quiet=True)
    folder = RunFolder(run.folder)
    try:
        until(lambda: folder.read_status().get("env_steps", 0) > 0, 90)
        processes = run._controller._backend.processes  # type: ignore[union-attr]
        with urllib.request.urlopen(folder.read_status()["viewer"] + "pictures", timeout=30) as browser:
            assert browser.read(64)
            before, begun = {name: used(pid) for name, pid in processes.items()}, time.monotonic()
            looking = threading.Event()
            threading.Thread(target=lambda: [None for _ in iter(lambda: looking.is_set() or not browser.read(1024), True)]).start()
            looking.wait(SECONDS)
            span = time.monotonic() - begun
            cores = {name: (used(pid) - before[name]) / span for name, pid in processes.items()}
            looking.set()
        print("cores", cores)
        assert cores["viewer/0"] < 0.02, cores
        assert cores["evaluator/0"] < 0.03, cores
        for name in ("viewer/0", "evaluator/0"):  # killed: the run goes on as it was
            os.kill(processes[name], signal.SIGKILL)
        until(lambda: len(run._controller._backend.processes) == 2, 90)  # type: ignore[union-attr]
        steps = folder.read_status()["env_steps"]
        until(lambda: folder.read_status()["env_steps"] > steps, 90)
    finally:
        result = run.stop().finish(60)
    assert result.kind == "done", result.format()
    assert statistics.fmean(row["lag/updates"] for row in run.metrics() if "lag/updates" in row) <= 1
