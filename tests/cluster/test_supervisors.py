"""A second supervisor, a real process on loopback: the same run, the same failures, over gRPC."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import grpc
import pytest

from srl.cluster.rpc import RemoteBackend
from srl.cluster.security import SERVER_NAME, new_credentials
from srl.cluster.wire import METHOD, SERVICE, TOKEN
from srl.control.controller import Controller
from srl.core.types import Component, HostGroup
from srl.launchers.backend import LaunchedBackend
from srl.launchers.loopback import Loopback, LoopbackArgs
from srl.launchers.piped import end_supervisor, start_supervisor
from srl.observe.ledger import table
from srl.store import checkpoint
from srl.store.run_folder import RunFolder
from srl.workers.messages import unpack
from tests.control.rig import derived, graph, with_node
from tests.waiting import run_while, until

ROOT = Path(__file__).parents[2]


@contextlib.contextmanager
def remote(*, lease: float = 30.0, options: Sequence[str] = ()) -> Iterator[Any]:
    """A backend of one remote host that takes everything, and its supervisor."""
    backend = RemoteBackend(1, lambda _: 0, credentials=new_credentials(), lease=lease)
    command = [*Loopback(LoopbackArgs(), (), {}, "rig").command(0), *options]
    supervisor = start_supervisor(command, backend.join)
    try:
        yield backend, supervisor
    finally:
        backend.close()
        end_supervisor(supervisor, 10.0)


def run(work: Any, backend: Any, tmp_path: Path, **more: Any) -> tuple[Controller, Any]:
    controller = Controller(
        work, folder=RunFolder.create(tmp_path, "rig", 1), derived=derived(work), backend=lambda: backend, **more
    )
    return controller, controller.run()


def test_home_and_a_remote_supervisor_run_one_graph_over_encrypted_streams(tmp_path: Path) -> None:
    work = graph(counters=2, hosts={"far": HostGroup()}, launcher=Component("loopback"), via="zmq")
    work = with_node(work, "counter", hosts="far")
    cluster = LaunchedBackend(work, tmp_path)
    assert isinstance(cluster.launcher, Loopback)
    (supervisor,) = cluster.launcher.running.values()
    controller, result = run(work, cluster, tmp_path)
    assert result.kind == "done", result.format()
    assert controller.totals.env_steps == 1000
    (ledger,) = controller.totals.ledgers()
    assert ledger.balanced, table([ledger])
    assert supervisor.returncode == 0
    assert not cluster.remote.refused


def test_a_supervisor_ends_with_its_lifeline(tmp_path: Path) -> None:
    with remote() as (_, supervisor):
        supervisor.stdin.close()
        assert supervisor.wait(10) == 75


def test_a_worker_killed_on_a_remote_host_is_restarted_there(tmp_path: Path) -> None:
    with remote() as (far, _):
        work = graph(counters=1, via="zmq", on_failure="restart", count={"die": "exit", "only": 0}, stop={"env_steps": 3000})
        controller, result = run(work, far, tmp_path)
        assert result.kind == "done", result.format()
        assert controller.totals.restarts["counter"] == 1


def test_last_words_travel_from_a_remote_host(tmp_path: Path) -> None:
    with remote() as (far, _):
        _, result = run(graph(via="zmq", count={"die": "exit"}), far, tmp_path)
        assert result.first.worker == "counter/0" and result.first.exit_code == 9
        assert result.first.tail[-1] == "last words of the counter"


def test_a_lost_supervisor_ends_the_run(tmp_path: Path) -> None:
    with remote(lease=1.0) as (far, supervisor):
        work = graph(via="zmq", stop={"seconds": 60})
        controller = Controller(work, folder=RunFolder.create(tmp_path, "rig", 1), derived=derived(work), backend=lambda: far)
        result = run_while(controller, lambda: os.kill(supervisor.pid, signal.SIGKILL))
        assert result.kind == "worker failure"
        assert "no contact with host 0 for 1 seconds" in result.format()


def test_a_supervisor_that_is_started_again_takes_the_place_of_the_old_one(tmp_path: Path) -> None:
    with remote() as (far, old):
        work = graph(via="zmq", stop={"seconds": 60}, on_failure="restart")
        controller = Controller(work, folder=RunFolder.create(tmp_path, "rig", 1), derived=derived(work), backend=lambda: far)
        new: list[Any] = []

        def replace() -> None:
            new.append(start_supervisor(old.args, far.join))
            assert old.wait(20) == 75, "it was told that it had been given up"
            before, end = controller.totals.env_steps, time.monotonic() + 30
            while controller.totals.env_steps < before + 100 and time.monotonic() < end:
                threading.Event().wait(0.01)
            controller.stop()

        result = run_while(controller, replace)
        end_supervisor(new[0], 10.0)
        assert result.kind == "done" and controller.totals.env_steps > 100, result.format()
        assert controller.totals.restarts == {"counter": 1, "adder": 1}
        assert new[0].returncode == 0


def test_a_supervisor_that_was_given_up_begins_anew(tmp_path: Path) -> None:
    far = RemoteBackend(1, lambda _: 0, credentials=new_credentials())
    far.join.write(tmp_path / "join.json")
    words = [sys.executable, "-m", "srl.cluster.supervisor", "--host", "0", "--join", str(tmp_path / "join.json")]
    supervisor = subprocess.Popen(words, cwd=ROOT)
    work = graph(via="zmq", stop={"seconds": 60}, on_failure="restart")
    controller = Controller(work, folder=RunFolder.create(tmp_path, "rig", 1), derived=derived(work), backend=lambda: far)

    def give_up() -> None:
        far.give_up(0, "it was silent")
        until(lambda: controller.totals.restarts == {"counter": 1, "adder": 1})
        until(lambda: set(controller._members.phases.values()) == {"running"}, 20)
        before = controller.totals.env_steps
        until(lambda: controller.totals.env_steps > before + 100)
        controller.stop()

    try:
        result = run_while(controller, give_up)
        assert result.kind == "done", result.format()
        assert supervisor.wait(20) == 0
    finally:
        supervisor.kill()
        supervisor.wait()


def test_a_call_that_breaks_is_dialled_again_and_nothing_is_lost(tmp_path: Path) -> None:
    with remote() as (far, _):
        work = graph(via="zmq", stop={"env_steps": 5000})
        controller = Controller(work, folder=RunFolder.create(tmp_path, "rig", 1), derived=derived(work), backend=lambda: far)

        def cut() -> None:
            for host in far._hosts:
                far._loop.call_soon_threadsafe(host.call.put_nowait, None)

        result = run_while(controller, cut)
        assert result.kind == "done", result.format()
        assert controller.totals.env_steps == 5000


def test_workers_stop_and_save_when_the_controller_stays_away(tmp_path: Path) -> None:
    with remote(lease=60.0, options=["--lease=0.5", "--patience=2"]) as (far, supervisor):
        work = graph(via="zmq", stop={"seconds": 60})
        folder = RunFolder.create(tmp_path, "rig", 1)
        controller = Controller(work, folder=folder, derived=derived(work), backend=lambda: far)
        thread = threading.Thread(target=controller.run)
        thread.start()
        until(lambda: controller.totals.env_steps)
        far._await(far._server.stop(0))
        assert supervisor.wait(20) == 75
        assert checkpoint.latest(folder.checkpoints) is not None
        controller.stop()
        controller.stop()
        thread.join()


def test_patience_has_an_end() -> None:
    credentials = new_credentials()
    backend = RemoteBackend(1, lambda _: 0, credentials=credentials)
    join = backend.join.dump().encode() + b"\n"
    backend.close()
    command = [sys.executable, "-m", "srl.cluster.supervisor", "--host", "0", "--patience", "0.5"]
    assert subprocess.run(command, cwd=ROOT, input=join, timeout=20, check=False).returncode == 75


@pytest.mark.parametrize(
    ("token", "first", "code"),
    [
        ("right", b"\xc1", grpc.StatusCode.INVALID_ARGUMENT),
        ("right", b"\x80", grpc.StatusCode.INVALID_ARGUMENT),
        ("wrong", b"\x80", grpc.StatusCode.UNAUTHENTICATED),
        ("", b"\x80", grpc.StatusCode.UNAUTHENTICATED),
        ("plain", b"\x80", grpc.StatusCode.UNAVAILABLE),
        ("other ca", b"\x80", grpc.StatusCode.UNAVAILABLE),
    ],
)
def test_strangers_are_refused(token: str, first: bytes, code: grpc.StatusCode) -> None:
    backend = RemoteBackend(1, lambda _: 0, credentials=new_credentials())
    try:
        ca = new_credentials().ca if token == "other ca" else backend.join.ca.encode()
        options = [("grpc.ssl_target_name_override", SERVER_NAME), ("grpc.enable_http_proxy", 0)]
        secure = grpc.ssl_channel_credentials(ca)
        with (
            grpc.insecure_channel(backend.address)
            if token == "plain"
            else grpc.secure_channel(backend.address, secure, options) as channel
        ):
            given = [(TOKEN, backend.join.token if token != "wrong" else "x" * 43)] if token else []
            call = channel.stream_stream(f"/{SERVICE}/{METHOD}")(iter([first]), metadata=given, timeout=10)
            with pytest.raises(grpc.RpcError) as caught:
                list(call)
            assert caught.value.code() is code
        assert sum(backend.refused.values()) == (code is not grpc.StatusCode.UNAVAILABLE)
        assert backend.poll(0.0) == []
    finally:
        backend.close()


def test_the_join_line_shows_no_secret_when_printed() -> None:
    backend = RemoteBackend(1, lambda _: 0, credentials=new_credentials())
    backend.close()
    assert backend.join.token not in repr(backend.join) and len(backend.join.token) >= 43
    with pytest.raises(Exception, match="not msgpack"):
        unpack(b"\xc1")
