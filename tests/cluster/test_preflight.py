"""Hosts are checked as they join: what they have, and whom they reach."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from srl.cluster.preflight import Preflight, Probe, check_facts, unreached
from srl.control.controller import Controller
from srl.core.types import HOME, Component, HostGroup
from srl.graph.hosts import Host, dials
from srl.launchers.backend import LaunchedBackend
from srl.launchers.loopback import Loopback
from srl.store.run_folder import RunFolder
from tests.control.rig import derived, graph, with_node
from tests.errors import raises


class Separate(Loopback):
    """As if each host were a machine of its own."""

    own_hosts = True


FOUND = {"cores": 4, "gpus": 1, "memory": 16_000_000_000, "name": "node7"}


@pytest.mark.parametrize(
    ("group", "words"),
    [
        (
            HostGroup(cores=8),
            ["must have 8 cores, as 'hosts.cpu' says", "4 cores that may be used on node7", "hosts.cpu.cores=4"],
        ),
        (HostGroup(gpus=2), ["must have 2 GPUs", "1 GPU that", "hosts.cpu.gpus=1"]),
        (HostGroup(memory=32), ["must have 32 GB of memory", "16.0 GB", "hosts.cpu.memory=16"]),
    ],
)
def test_a_host_with_less_than_the_file_says_is_named(group: HostGroup, words: list[str]) -> None:
    with raises("E08", "hosts.cpu") as caught:
        check_facts(Host("cpu", 0, "10.0.0.1"), group, FOUND)
    text = caught.value.format()
    assert "host cpu/0 (10.0.0.1)" in text and all(one in text for one in words), text
    check_facts(Host("cpu", 0, ""), HostGroup(cores=4, gpus=1, memory=16), FOUND)


def test_who_connects_to_whom() -> None:
    groups = {"far": HostGroup(count=2), "gpu": HostGroup()}
    work = graph(counters=2, via="zmq", hosts=groups, launcher=Component("loopback"))
    assert dials(with_node(work, "counter", hosts="far")) == {"far/0": {HOME}, "far/1": {HOME}}
    both = with_node(with_node(work, "counter", hosts="far"), "adder", hosts="gpu")
    assert dials(both) == {"far/0": {"gpu/0"}, "far/1": {"gpu/0"}}


def test_an_address_where_nobody_listens_is_found() -> None:
    probe, gone = Probe("127.0.0.1"), Probe("127.0.0.1")
    gone.close()
    missed = unreached({"a": probe.address, "b": gone.address})
    assert missed == {"b": f"{gone.address}: Connection refused"}
    probe.close()


@pytest.mark.parametrize("wrong", ["cores", "reach"])
def test_a_run_ends_before_it_begins_if_a_host_does_not_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wrong: str) -> None:
    group = HostGroup(cores=10_000) if wrong == "cores" else HostGroup()
    work: Any = graph(hosts={"far": group}, launcher=Component(f"{__name__}:Separate"), via="zmq", stop={"seconds": 60})
    work = with_node(work, "counter", hosts="far")
    backend = LaunchedBackend(work, tmp_path)
    if wrong == "reach":
        backend._preflight.close()  # home listens no longer
        monkeypatch.setattr(Probe, "accept", lambda self: None)
    folder = RunFolder.create(tmp_path, "rig", 1)
    result = Controller(work, folder=folder, derived=derived(work), backend=lambda: backend).run()
    assert result.kind == "user error" and result.exit_code == 2, result.format()
    text = str(result.problem())
    expected = "host far/0 must have 10000 cores" if wrong == "cores" else "host far/0 cannot reach home at 127.0.0.1:"
    assert expected in text and "try: " in text, text
    assert "killed" not in (folder.path / "events.jsonl").read_text(), "nothing had begun"


def test_all_is_well_on_this_machine(tmp_path: Path) -> None:
    work = graph(
        hosts={"far": HostGroup(cores=1)}, launcher=Component(f"{__name__}:Separate"), via="zmq", stop={"env_steps": 500}
    )
    work = with_node(work, "counter", hosts="far")
    backend = LaunchedBackend(work, tmp_path)
    folder = RunFolder.create(tmp_path, "rig", 1)
    result = Controller(work, folder=folder, derived=derived(work), backend=lambda: backend).run()
    assert result.kind == "done", result.format()
    assert isinstance(backend._preflight, Preflight) and not backend._preflight._due, "all hosts were asked"
