from __future__ import annotations

import os
import signal
from typing import Any

import pytest
from rig import derived, graph, with_node

from srl.control.controller import GRACE, LATE, Controller
from srl.observe.sinks.console import Console
from srl.observe.sinks.jsonl import JsonLines
from srl.store.lines import read_lines
from srl.store.run_folder import RunFolder


def run(graph: Any, folder: Any = None, **more: Any) -> Any:
    controller = Controller(graph, folder=folder, derived=derived(graph), **more)
    return controller, controller.run()


@pytest.mark.parametrize(
    ("mode", "via", "inside"),
    [("inline", "inproc", False), ("local", "inproc", True), ("local", "shm", False), ("local", "zmq", False)],
)
def test_a_graph_runs_to_its_end_wherever_its_workers_are(mode: str, via: str, inside: bool, tmp_path: Any) -> None:
    folder = RunFolder.create(tmp_path, "rig", 1)
    controller, result = run(graph(counters=1 if inside else 2, mode=mode, via=via, inside=inside), folder)
    assert result.kind == "done" and result.exit_code == 0
    assert controller.totals.env_steps == 1000
    assert result.checkpoint == "step_000001000"
    (ledger,) = controller.totals.ledgers()
    assert ledger.taken >= 1000 and ledger.balanced
    assert [event["event"] for event in read_lines(folder.events)][-2:] == ["draining", "ended"]


@pytest.mark.parametrize("mode", ["inline", "local"])
def test_a_run_that_cannot_save_did_not_end_well(mode: str, tmp_path: Any) -> None:
    _, result = run(graph(mode=mode, add={"full": True}), RunFolder.create(tmp_path, "rig", 1))
    assert result.kind == "worker failure"
    assert result.first.worker == "adder/0" and "no space left on device" in result.format()


@pytest.mark.parametrize("mode", ["inline", "local"])
@pytest.mark.parametrize("filled", ["at the start", "at the end"])
def test_a_disk_that_is_full_is_one_error_and_the_folder_says_how_the_run_ended(filled: str, mode: str, tmp_path: Any) -> None:
    folder = RunFolder.create(tmp_path, "rig", 1)
    left = folder.checkpoints / "best" / ".tmp-step_000000009-1"
    left.mkdir(parents=True)
    work = graph(mode=mode)
    controller = Controller(work, folder=folder, derived=derived(work))
    file = next(sink for sink in controller.log._sinks if isinstance(sink, JsonLines))._file
    if filled == "at the start":
        fill(file)
    else:
        stop = controller._stop
        controller._stop = lambda: (stop(), fill(file))
    result = controller.run()
    kept = "checkpoint step_000001000 is complete" if result.checkpoint else "no checkpoint was written"
    assert result.exit_code == 3 and bool(result.checkpoint) == (filled == "at the end")
    assert result.format().splitlines()[:4] == [
        f"error[R04]: cannot write {folder.metrics}",
        "  found: No space left on device",
        "  try: free some space there, then continue with --resume",
        f"  saved: {kept}",
    ]
    assert folder.state == "worker failure" and folder.read_status()["exit_code"] == 3
    assert not left.exists()


def fill(file: Any) -> None:
    """Let the file lie on a disk that is full."""
    full = os.open("/dev/full", os.O_WRONLY)
    os.dup2(full, file._descriptor)
    os.close(full)


def test_an_inline_graph_that_cannot_move_names_who_waits_for_what(tmp_path: Any) -> None:
    _, result = run(graph(mode="inline", add={"credits": 0}), RunFolder.create(tmp_path, "rig", 1))
    assert result.exit_code == 3
    text = result.format()
    assert "every worker waits" in text
    assert "counter/0: credit from adder/0" in text


def test_the_result_says_why_a_process_was_not_restarted(tmp_path: Any) -> None:
    work = graph(inside=True, on_failure="restart", count={"die": "exit"})
    _, result = run(with_node(work, "counter", on_failure="stop"), RunFolder.create(tmp_path, "rig", 1))
    assert "policy: workers.counter.on_failure=stop -> stopping; " in result.format()


def test_a_worker_that_exits_has_failed_inline(tmp_path: Any) -> None:
    _, result = run(graph(mode="inline", count={"die": "leave"}), RunFolder.create(tmp_path, "rig", 1))
    assert result.exit_code == 3 and result.first.worker == "counter/0"
    assert (result.first.how, result.first.cause) == ("raised SystemExit", "SystemExit: 3")


def test_an_interrupt_while_the_result_is_written_is_heard_and_changes_nothing(tmp_path: Any) -> None:
    folder = RunFolder.create(tmp_path, "rig", 1)
    folder.sweep = lambda: os.kill(os.getpid(), signal.SIGINT)
    _, result = run(graph(mode="inline"), folder)
    assert result.kind == folder.state == "done"


class Heard(Console):
    """Keeps what is said."""

    def __init__(self) -> None:
        super().__init__(quiet=True)
        self.said: list[str] = []

    def event(self, what: str, /, **facts: Any) -> None:
        if what == "note":
            self.said.append(facts["text"])


def test_a_worker_that_hangs_is_named_and_killed_and_the_one_that_learns_saves(tmp_path: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr("srl.control.controller.DRAIN", 1.0)
    monkeypatch.setattr("srl.control.controller.QUIET", 0.2)
    console = Heard()
    work = graph(counters=2, count={"die": "hang", "at": 0, "only": 1}, stop={"env_steps": 1000})
    controller, result = run(work, RunFolder.create(tmp_path, "rig", 1), sinks=[console])
    waiting = "waiting for counter/1 to drain, at most 1 s; Ctrl-C saves and ends at once"
    assert [text for text in console.said if "to drain" in text or "killed" in text] == [
        waiting,
        "did not end, killed: counter/1",
    ]
    assert result.kind == "done" and result.checkpoint
    members = controller._members
    members["counter/0"].phase = "drained"
    assert {name: controller._patience(member) for name, member in members.items()} == {
        "counter/0": GRACE,
        "counter/1": LATE,
        "adder/0": GRACE + 1.0,
    }
