from __future__ import annotations

from typing import Any

import pytest
from rig import derived, graph, with_node

from srl.control.controller import Controller
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
    controller, verdict = run(graph(counters=1 if inside else 2, mode=mode, via=via, inside=inside), folder)
    assert verdict.kind == "done" and verdict.exit_code == 0
    assert controller.watch.env_steps == 1000
    assert verdict.checkpoint == "step_000001000"
    (ledger,) = controller.watch.ledgers()
    assert ledger.taken >= 1000 and ledger.balanced
    assert [event["event"] for event in folder.read_events()][-2:] == ["draining", "ended"]


@pytest.mark.parametrize("mode", ["inline", "local"])
def test_a_run_that_cannot_save_did_not_end_well(mode: str, tmp_path: Any) -> None:
    _, verdict = run(graph(mode=mode, add={"full": True}), RunFolder.create(tmp_path, "rig", 1))
    assert verdict.kind == "worker failure"
    assert verdict.first.worker == "adder/0" and "no space left on device" in verdict.format()


def test_an_inline_graph_that_cannot_move_names_who_waits_for_what(tmp_path: Any) -> None:
    _, verdict = run(graph(mode="inline", add={"grants": 0}), RunFolder.create(tmp_path, "rig", 1))
    assert verdict.exit_code == 3
    text = verdict.format()
    assert "every worker waits and nobody can wake them" in text
    assert "counter/0: numbers:counter/0 waits for" in text


def test_the_verdict_says_why_a_process_was_not_restarted(tmp_path: Any) -> None:
    work = graph(inside=True, on_failure="restart", count={"die": "exit"})
    _, verdict = run(with_node(work, "counter", on_failure="stop"), RunFolder.create(tmp_path, "rig", 1))
    assert "policy: counter.on_failure=stop -> stopping; " in verdict.format()
