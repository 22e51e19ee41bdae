"""Kill -9 of each worker kind of a run that learns: a result or a completed restart within ten seconds."""

from __future__ import annotations

import os
import signal
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from srl.control.controller import Controller
from srl.plan.prepare import prepare
from srl.store.lines import read_lines
from srl.store.run_folder import RunFolder
from tests.waiting import until

LIMIT = 10.0


@pytest.mark.long
@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("kind", ["actor", "policy", "trainer", "evaluator"])
def test_a_kill_of_each_kind(kind: str, restart: bool, tmp_path: Path) -> None:
    found = prepare("cartpole", ["layout=decoupled", "stop=null", "stop.seconds=100"])
    work, folder = found.graph, RunFolder.create(tmp_path, "cartpole", 1)
    says: Any = "restart" if restart else "stop"
    work = replace(work, nodes=tuple(replace(node, on_failure=says) for node in work.nodes))
    controller = Controller(work, folder=folder, derived=found.derived)
    took: dict[str, Any] = {}

    def disturb() -> None:
        until(lambda: controller.totals.total("updates") >= 3)
        os.kill(controller._backend.processes[f"{kind}/0"], signal.SIGKILL)
        took["killed"] = time.monotonic()
        if restart:
            until(lambda: any(event["event"] == "going" for event in read_lines(folder.events)))
            took["back"] = time.monotonic()
            before = controller.totals.total("updates")
            until(lambda: controller.totals.total("updates") > before + 3)
            controller.stop()

    thread = threading.Thread(target=disturb)
    thread.start()
    result = controller.run()
    ended = time.monotonic()
    thread.join()
    assert result.kind == ("done" if restart else "worker failure"), result.format()
    assert (took["back"] if restart else ended) - took["killed"] < LIMIT
    assert all(ledger.balanced for ledger in controller.totals.ledgers())
    assert not Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split()
