"""Workers that die, hang or refuse; the controller killed. Nothing may be left behind."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.append(str(Path(__file__).parents[1] / "control"))
from rig import derived, graph

from srl.control.controller import Controller
from srl.observe.ledger import table
from srl.store.lines import read_lines
from srl.store.run_folder import RunFolder


@pytest.fixture(autouse=True)
def clean() -> Iterator[None]:
    """No process, shared memory or descriptor more than before."""
    shm, descriptors = names("/dev/shm"), names("/proc/self/fd")
    yield
    assert children() == []
    assert names("/dev/shm") <= shm
    assert len(names("/proc/self/fd")) <= len(descriptors)


def names(folder: str) -> set[str]:
    """Those of multiprocessing are of tests beside this one."""
    return {path.name for path in Path(folder).iterdir() if not path.name.startswith("sem.mp-")}


def children(parent: int | None = None) -> list[int]:
    with contextlib.suppress(ProcessLookupError, FileNotFoundError):
        pid = parent or os.getpid()
        tasks = Path(f"/proc/{pid}/task")
        return [int(child) for task in tasks.iterdir() for child in (task / "children").read_text().split()]
    return []


def run(graph: Any, tmp_path: Path, **more: Any) -> tuple[Controller, Any, RunFolder]:
    folder = RunFolder.create(tmp_path, "rig", 1)
    controller = Controller(graph, folder=folder, derived=derived(graph), **more)
    return controller, controller.run(), folder


def kill_when(controller: Controller, ready: Callable[[], bool], victim: str) -> threading.Thread:
    """Kill -9 a worker's process once the run has come so far."""

    def watch() -> None:
        end = time.monotonic() + 30
        while not ready():
            assert time.monotonic() < end
            threading.Event().wait(0.01)
        os.kill(controller._backend.processes[victim], signal.SIGKILL)

    thread = threading.Thread(target=watch)
    thread.start()
    return thread


@pytest.mark.parametrize("victim", ["counter/0", "adder/0"])
def test_a_killed_worker_ends_the_run_with_one_result(victim: str, tmp_path: Path) -> None:
    work = graph(counters=2, stop={"seconds": 60})
    controller = Controller(work, folder=RunFolder.create(tmp_path, "rig", 1), derived=derived(work))
    killer = kill_when(controller, lambda: controller.totals.env_steps > 0, victim)
    result = controller.run()
    killer.join()
    assert result.kind == "worker failure" and result.exit_code == 3
    assert len(result.failures) == 1 and result.first is not None
    assert result.first.worker == victim and result.first.how == "died (signal 9)"
    assert controller.totals.elapsed < result.first.at + 10
    assert bool(result.checkpoint) is (victim == "counter/0")  # the adder lived, so its sum was saved


@pytest.mark.parametrize("victim", ["counter/0", "adder/0"])
def test_a_killed_worker_is_restarted_and_the_run_ends_well(victim: str, tmp_path: Path) -> None:
    work = graph(counters=2, on_failure="restart", stop={"seconds": 60})
    folder = RunFolder.create(tmp_path, "rig", 1)
    controller = Controller(work, folder=folder, derived=derived(work))
    killer = kill_when(controller, lambda: controller.totals.env_steps > 0, victim)
    killed = time.monotonic()

    def stop_when_back() -> None:
        nonlocal killed
        killer.join()
        killed = time.monotonic()
        end = killed + 30
        while [event["event"] for event in read_lines(folder.events)].count("going") < 1:
            assert time.monotonic() < end
            threading.Event().wait(0.01)
        before = controller.totals.total("env_steps")
        killed = time.monotonic() - killed
        while controller.totals.total("env_steps") < before + 1000:
            assert time.monotonic() < end
            threading.Event().wait(0.01)
        controller.stop()

    stopper = threading.Thread(target=stop_when_back)
    stopper.start()
    result = controller.run()
    stopper.join()
    assert result.kind == "done", result.format()
    assert controller.totals.restarts[victim.partition("/")[0]] == 1
    assert killed < 10, "restarted too slowly"
    assert folder.read_status()["incarnation"] == 1
    (ledger,) = controller.totals.ledgers()
    assert ledger.balanced, table([ledger])


def test_restarts_are_limited(tmp_path: Path) -> None:
    work = graph(count={"die": "exit", "always": True}, on_failure="restart", restarts=2)
    controller, result, folder = run(work, tmp_path)
    assert result.kind == "worker failure" and controller.totals.restarts["counter"] == 2
    assert [event["restart"] for event in read_lines(folder.events) if event["event"] == "died"] == [True, True, False]
    assert result.first is not None and result.first.how == "exited with code 9"
    assert result.first.tail[-1] == "last words of the counter"
    assert "policy: workers.counter.on_failure=restart, but restarts=2 an hour are used up -> stopping" in result.format()


def test_a_worker_that_exits_has_failed_like_one_that_raises(tmp_path: Path) -> None:
    _, result, _ = run(graph(counters=2, count={"die": "leave", "only": 1}), tmp_path)
    assert result.exit_code == 3 and result.first is not None and result.first.worker == "counter/1"
    assert (result.first.how, result.first.cause) == ("raised SystemExit", "SystemExit: 3")


def test_what_a_worker_raises_is_in_the_result(tmp_path: Path) -> None:
    _, result, _ = run(graph(counters=2, count={"die": "raise", "only": 1}, stop={"seconds": 60}), tmp_path)
    assert result.exit_code == 3
    assert result.first.worker == "counter/1" and result.first.how == "raised ValueError"
    assert "the counter lost count" in result.format()


@pytest.mark.parametrize("via", ["shm", "zmq"])
@pytest.mark.parametrize("die", ["raise", "exit"])
@pytest.mark.parametrize("at", [600, pytest.param(3000, marks=pytest.mark.long)])
def test_workers_that_fail_together_are_no_false_alarm_of_the_ledger(at: int, die: str, via: str, tmp_path: Path) -> None:
    """The second dies while the run ends, and nobody is left who would say what became of its records."""
    controller, result, _ = run(graph(counters=2, via=via, count={"die": die, "at": at}, stop={"seconds": 60}), tmp_path)
    assert result.exit_code == 3
    (ledger,) = controller.totals.ledgers()
    assert ledger.balanced, table([ledger])
    assert die != "raise" or via == "zmq" or not ledger.lost


@pytest.mark.parametrize("mode", ["inline", "local"])
@pytest.mark.parametrize("when", ["start", "user"])
def test_a_user_error_in_a_worker_is_the_runs_user_error(mode: str, when: str, tmp_path: Path) -> None:
    _, result, _ = run(graph(count={"die": when}, mode=mode, on_failure="restart"), tmp_path)
    assert result.exit_code == 2
    assert result.format() == "error[E00]: the counter cannot count\n  try: another counter"


def test_alive_is_not_progressing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("srl.control.controller.GRACE", 0.5)
    _, result, _ = run(graph(count={"die": "hang"}), tmp_path, stall=1.5)
    assert result.exit_code == 4
    assert "no progress for 1.5 seconds" in result.format()


RUN = """
import sys
sys.path.insert(0, {rig!r})
from rig import graph, derived
from srl.control.controller import Controller
from srl.observe.sinks.console import Console
from srl.store.run_folder import RunFolder
work = graph(counters=2, mode={mode!r}, stop={{"seconds": 100}}, count={{"die": {die!r}, "at": 500}})
print("start", flush=True)
sys.exit(Controller(work, folder=RunFolder.open({folder!r}), derived=derived(work), sinks=[Console()]).run().exit_code)
"""


def hangs_up() -> None:
    """As a shell starts it, whatever this process ignores (nohup)."""
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


@contextlib.contextmanager
def started(tmp_path: Path, mode: str = "local", die: str = "") -> Iterator[tuple[subprocess.Popen[bytes], RunFolder]]:
    """A run in a process of its own, once its workers work."""
    folder = RunFolder.create(tmp_path, "rig", 1)
    script = RUN.format(rig=str(Path(__file__).parents[1] / "control"), mode=mode, die=die, folder=str(folder.path))
    with subprocess.Popen(
        [sys.executable, "-c", script], cwd=Path(__file__).parents[2], stdout=subprocess.PIPE, preexec_fn=hangs_up
    ) as process:
        end = time.monotonic() + 30
        while not (folder.metrics.exists() and folder.metrics.stat().st_size):
            assert time.monotonic() < end and process.poll() is None
            threading.Event().wait(0.01)
        yield process, folder
        assert process.poll() is not None


@pytest.mark.parametrize("mode", ["inline", "local"])
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 75), (signal.SIGUSR1, 75)])
def test_the_first_signal_drains_and_saves(mode: str, number: int, code: int, tmp_path: Path) -> None:
    with started(tmp_path, mode) as (process, folder):
        if code == 75:  # a scheduler signals every process of a job
            for worker in children(process.pid):
                os.kill(worker, number)
        process.send_signal(number)
        if code == 75:  # and more than once: a batch script passes on what the run gets too
            process.send_signal(signal.SIGTERM)
        assert process.wait(20) == code
        assert folder.read_status()["checkpoint"].startswith("step_")
        assert "draining" in [event["event"] for event in read_lines(folder.events)]


@pytest.mark.parametrize("mode", ["inline", "local"])
def test_a_terminal_that_is_closed_lets_the_run_save(mode: str, tmp_path: Path) -> None:
    with started(tmp_path, mode) as (process, folder):
        assert process.stdout is not None
        process.stdout.close()
        process.send_signal(signal.SIGHUP)
        while "draining" not in [event["event"] for event in read_lines(folder.events)] and process.poll() is None:
            threading.Event().wait(0.01)
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGHUP)
        assert process.wait(20) == 130
        assert folder.state == "interrupted" and folder.read_status()["checkpoint"].startswith("step_")


def test_the_second_signal_stops_now(tmp_path: Path) -> None:
    with started(tmp_path, die="hang") as (process, _):
        process.send_signal(signal.SIGINT)
        threading.Event().wait(0.2)
        process.send_signal(signal.SIGINT)
        before = time.monotonic()
        process.wait(20)
        assert time.monotonic() - before < 8


def test_workers_die_with_their_controller(tmp_path: Path) -> None:
    with started(tmp_path) as (process, _):
        workers = children(process.pid)
        assert len(workers) == 3
        process.kill()
        process.wait()
        end = time.monotonic() + 5
        while any(alive(pid) for pid in workers):
            assert time.monotonic() < end
            threading.Event().wait(0.01)


def test_a_live_run_is_not_resumed_and_says_how_far_it_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from srl.__main__ import main as verbs
    from srl.cli.launch import main as launch

    with started(tmp_path) as (process, folder):
        folder.write_text("config.yaml", "env: CartPole-v1\n")
        assert launch(["--resume", str(folder.path)]) == 2
        assert "srl stop" in capsys.readouterr().err
        end = time.monotonic() + 20
        while not folder.read_status()["env_steps"]:
            assert time.monotonic() < end
            threading.Event().wait(0.05)
        assert verbs(["status", str(tmp_path)]) == 0
        assert re.search(r"running +[1-9][\d,]*", capsys.readouterr().out)
        process.kill()
        process.wait()
        assert verbs(["status", str(tmp_path)]) == 0
        assert re.search(r"died +[1-9][\d,]*", capsys.readouterr().out)


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False
