"""Hosts that come late, leave and come back, over loopback."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from srl.control.controller import Controller
from srl.core.types import Component, HostGroup
from srl.launchers.backend import LaunchedBackend
from srl.launchers.loopback import Loopback
from srl.observe.ledger import table
from srl.store.run_folder import RunFolder
from tests.control.rig import derived, graph, with_node
from tests.errors import raises
from tests.waiting import run_while, until


class Late(Loopback):
    """Host 1 can be started only once the file exists."""

    def command(self, host: int) -> list[str]:
        gate = os.environ["SRL_TEST_GATE"]
        return super().command(host) if host == 0 or Path(gate).exists() else [sys.executable, "-c", "raise SystemExit(1)"]


def placed(**stop: Any) -> Any:
    hosts = {"far": HostGroup(count=2, elastic=True)}
    return with_node(
        graph(counters=2, via="zmq", hosts=hosts, launcher=Component(f"{__name__}:Late"), stop=stop), "counter", hosts="far"
    )


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_elastic_hosts_come_late_leave_and_come_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: int) -> None:
    gate = tmp_path / "gate"
    monkeypatch.setenv("SRL_TEST_GATE", str(gate))
    work = placed(seconds=90)
    backend = LaunchedBackend(work, tmp_path)
    assert isinstance(backend.launcher, Late)
    running = backend.launcher.running
    folder = RunFolder.create(tmp_path, "rig", 1)
    controller = Controller(work, folder=folder, derived=derived(work), backend=lambda: backend)
    seen: list[Any] = []

    def come_and_go() -> None:
        phases = lambda: controller._members.phases  # noqa: E731
        seen.append(phases()["counter/1"])
        gate.touch()
        until(lambda: phases()["counter/1"] == "running", 30)
        (first,) = [one for host, one in running.items() if host == 0]
        os.kill(first.pid, how)
        until(lambda: phases()["counter/0"] == "absent", 30)
        before = controller.totals.env_steps
        until(lambda: controller.totals.env_steps > before + 100, 30)  # the other one goes on
        until(lambda: phases()["counter/0"] == "running", 30)
        controller.stop()

    result = run_while(controller, come_and_go)
    assert seen == ["absent"], "the run began without it"
    assert result.kind == "done", result.format()
    assert not controller.totals.restarts, "nothing has failed"
    (ledger,) = controller.totals.ledgers()
    assert ledger.balanced, table([ledger])
    assert ledger.unknown == 0 or how == signal.SIGKILL, "a host that is told to leave says what it has counted"


def test_a_host_that_the_run_needs_ends_it_when_it_is_told_to_end(tmp_path: Path) -> None:
    work = graph(counters=1, hosts={"far": HostGroup()}, launcher=Component("loopback"), via="zmq", stop={"seconds": 60})
    work = with_node(work, "counter", hosts="far")
    backend = LaunchedBackend(work, tmp_path)
    (supervisor,) = backend.launcher.running.values()
    controller = Controller(work, folder=RunFolder.create(tmp_path, "rig", 1), derived=derived(work), backend=lambda: backend)
    result = run_while(controller, lambda: os.kill(supervisor.pid, signal.SIGTERM))
    assert result.kind == "preempted" and result.exit_code == 75, result.format()
    assert "a host was told to end by SIGTERM" in result.format()
    (ledger,) = controller.totals.ledgers()
    assert ledger.balanced, table([ledger])
    assert supervisor.returncode == 75


def test_a_lost_host_counts_as_one_restart_however_many_workers_it_has(tmp_path: Path) -> None:
    launcher = Component("loopback")
    work = graph(counters=5, hosts={"far": HostGroup()}, launcher=launcher, via="zmq", stop={"seconds": 60})
    work = with_node(work, "counter", hosts="far", on_failure="restart", restarts=1)
    backend = LaunchedBackend(work, tmp_path)
    (supervisor,) = backend.launcher.running.values()
    controller = Controller(work, folder=RunFolder.create(tmp_path, "rig", 1), derived=derived(work), backend=lambda: backend)

    def lose() -> None:
        os.kill(supervisor.pid, signal.SIGKILL)
        until(lambda: controller.totals.restarts["counter"] == 5)
        until(lambda: set(controller._members.phases.values()) == {"running"})
        controller.stop()

    result = run_while(controller, lose)
    assert result.kind == "done", result.format()
    (ledger,) = controller.totals.ledgers()
    assert ledger.balanced, table([ledger])


def test_only_workers_that_the_others_can_do_without_are_placed_on_elastic_hosts() -> None:
    from srl.graph.hosts import check_hosts

    with raises("E10", "graph.nodes.adder.hosts"):
        check_hosts(with_node(placed(), "adder", hosts="far"))
    check_hosts(placed())
