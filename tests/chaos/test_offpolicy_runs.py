"""Kill -9 of each worker kind of an off-policy run: a result, or a restart after which rows, batches and updates add up."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path
from typing import Any

import pytest

from srl.control.controller import Controller
from srl.plan.prepare import prepare
from srl.store.run_folder import RunFolder
from tests.runs.test_offpolicy import FAKE, SMALL
from tests.waiting import until

WARMUP, RATE = 100, 0.5
SETTINGS: dict[str, Any] = {
    **FAKE,
    "replay": {**SMALL, "warmup": WARMUP, "updates_per_step": RATE},
    "sampling": {"envs": 2, "workers": 2, "steps": 4},
    "checkpoint": {"every": 200},
    "evaluation": {"every": 2000, "episodes": 2},
}


@pytest.mark.long
@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize(
    ("kind", "apart"),
    [
        *((kind, True) for kind in ("actor", "replay", "trainer", "evaluator")),
        *((kind, False) for kind in ("actor", "trainer", "evaluator")),
    ],
)  # inside, the replay dies with its trainer
def test_a_kill_of_each_kind(kind: str, apart: bool, restart: bool, tmp_path: Path) -> None:
    workers: dict[str, dict[str, Any]] = {"replay": {"inside": None} if apart else {}}
    workers[kind] = {**workers.get(kind, {}), "on_failure": "restart" if restart else "stop"}
    found = prepare(settings={**SETTINGS, "stop": {"seconds": 100}, "workers": workers})
    folder = RunFolder.create(tmp_path, "run", 1)
    controller = Controller(found.graph, folder=folder, derived=found.derived)
    totals = controller.totals

    def disturb() -> None:
        until(lambda: totals.total("updates") >= 400)
        os.kill(controller._backend.processes[f"{kind}/0"], signal.SIGKILL)
        if restart:
            until(lambda: totals.restarts[kind] > 0)
            before = totals.total("replay/batches")
            until(lambda: totals.total("replay/batches") > before + 400)
            controller.stop()

    thread = threading.Thread(target=disturb)
    thread.start()
    result = controller.run()
    thread.join()
    assert result.kind == ("done" if restart else "worker failure"), result.format()
    assert all(ledger.balanced for ledger in totals.ledgers()), result.format()
    inserted, drawn = totals.total("replay/env_steps"), totals.total("replay/batches")
    replays = 2 if restart and (kind == "replay" or (kind == "trainer" and not apart)) else 1
    assert drawn <= RATE * (inserted - WARMUP), "never more updates than are owed"
    if not restart or kind == "evaluator":
        assert drawn >= RATE * (inserted - WARMUP - 64) - 1
    else:  # each new replay fills up first; the last counts of a process that was killed may be missing
        assert drawn >= RATE * (inserted - replays * (WARMUP + 64)) - 1000
    assert not Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split()
