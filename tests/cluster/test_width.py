"""A run with relays in a chain over two hosts and two buffers that gather its samples, on this machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from srl.control.controller import Controller
from srl.launchers.backend import LaunchedBackend
from srl.observe.ledger import table
from srl.plan.prepare import prepare
from srl.store.run_folder import RunFolder

WIDE = [
    *("launcher=loopback", "hosts.cpu.count=2", "hosts.cpu.cores=2", "workers.actor.hosts=cpu", "layout=impala"),
    *("sampling.workers=4", "sampling.envs=8", "sampling.steps=32", "evaluation=null", "stop.return=null"),
    *("relays.above=1", "relays.fan_out=1"),
    "workers.gather={use: buffer, count: 2, size: 8, ports: {source: samples.main, sink: gathered}}",
    "workers.trainer.ports={samples: gathered}",
]


@pytest.mark.long
def test_parameters_by_relays_and_samples_by_buffers_keep_the_staleness_bound_and_lose_nothing(tmp_path: Path) -> None:
    prepared = prepare("cartpole", [*WIDE, "stop.env_steps=4096", "algorithm.epochs=2"])
    assert prepared.derived is not None
    work = prepared.graph
    folder = RunFolder.create(tmp_path, "wide", 1)
    cluster = LaunchedBackend(work, folder.path)
    controller = Controller(work, folder=folder, derived=prepared.derived, backend=lambda: cluster)
    result = controller.run()
    assert result.kind == "done", result.format()
    totals = controller.totals
    assert totals.env_steps >= 4096
    ledgers = totals.ledgers()
    assert [ledger.stream for ledger in ledgers] == ["samples.main", "gathered"]
    assert all(ledger.balanced and set(ledger.dropped) <= {"stop"} for ledger in ledgers), table(ledgers)
    assert totals.total("versions") > 8, "both relays have passed versions on"
    (staleness,) = [row.staleness for row in totals.report().streams if row.name == "gathered"]
    assert staleness is not None and staleness[2] <= 1
    assert not totals.refused
