"""Launchers from the command line: one of one's own, a controller that is killed, and a host with another version."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from srl.cluster.rpc import RemoteBackend
from srl.cluster.security import Join, new_credentials
from srl.core.load import load
from srl.store.lines import read_numbers
from tests.waiting import until

ROOT = Path(__file__).parents[2]
OWN = '''
from dataclasses import dataclass
from srl import register_launcher
from srl.launchers.loopback import Loopback

@dataclass(frozen=True, kw_only=True)
class Args:
    mark: str

@register_launcher("marked")
class Marked(Loopback):
    """Loopback with a mark on every command line."""
    Args = Args
    def command(self, host):
        return ["env", f"MARK={self.args.mark}", *super().command(host)]
'''
WORDS = [
    "experiment=cartpole", "hosts.far.count=2", "workers.actor.hosts=far", "sampling.workers=2", "evaluation=null", "--quiet",
]  # fmt: skip


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "srl.launch", *WORDS, *words]


def test_a_launcher_of_ones_own_is_found_by_its_name(tmp_path: Path) -> None:
    (file := tmp_path / "own.py").write_text(OWN)
    words = command(f"import={file}", "launcher=marked", "launcher.mark=here", "--dry-run")
    shown = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=60, check=True)
    assert "--- far/1\nenv MARK=here " in shown.stdout


def test_a_launcher_of_ones_own_runs_by_path(tmp_path: Path) -> None:
    (file := tmp_path / "own.py").write_text(OWN)
    words = [f"launcher={file}:Marked", "launcher.mark=here", "stop.env_steps=4000", f"--runs={tmp_path / 'runs'}"]
    done = subprocess.run(command(*words), cwd=ROOT, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (folder,) = (tmp_path / "runs" / "cartpole").iterdir()
    assert list(read_numbers(folder / "metrics.jsonl"))[-1]["env_steps"] >= 4000


def test_nothing_is_left_of_a_run_whose_controller_is_killed(tmp_path: Path) -> None:
    mark = f"SRL_TEST_MARK={tmp_path.name}-{os.getpid()}"
    name, _, value = mark.partition("=")
    runs = tmp_path / "runs"
    words = command("launcher=loopback", "stop.env_steps=100_000_000", "stop.return=null", f"--runs={runs}")
    with subprocess.Popen(words, cwd=ROOT, env={**os.environ, name: value}, stdout=subprocess.DEVNULL) as run:
        try:
            until(lambda: run.poll() is not None or any(one.stat().st_size for one in runs.glob("*/*/metrics.jsonl")))
            assert run.poll() is None
            assert len(marked(mark)) >= 6, "the controller, two supervisors, two actors, the trainer"
        finally:
            run.send_signal(signal.SIGKILL)
    until(lambda: not marked(mark), 20)


def test_an_address_that_is_not_of_this_machine_is_refused_before_the_start(tmp_path: Path) -> None:
    words = command(
        "launcher=ssh", "launcher.address=192.0.2.1", "~hosts.far.count", "hosts.far.addresses=[a]", f"--runs={tmp_path}"
    )
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2 and "this machine cannot listen at 192.0.2.1:0" in done.stderr, done.stderr
    assert not list(tmp_path.iterdir()), "no folder is left behind"


def test_a_host_without_an_address_is_named_before_the_start(tmp_path: Path) -> None:
    words = command("launcher=ssh", "~hosts.far.count", "hosts.far.addresses=[none.invalid]", f"--runs={tmp_path}")
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2 and "host 'none.invalid' has no address" in done.stderr, done.stderr
    assert "launcher.address=" in done.stderr and not list(tmp_path.iterdir())


def test_a_host_with_another_version_says_so() -> None:
    backend = RemoteBackend(1, lambda _: 0, credentials=new_credentials())
    try:
        join = load(Join, {**{name: getattr(backend.join, name) for name in Join.__dataclass_fields__}, "version": "0.0.7"})
        words = [sys.executable, "-m", "srl.cluster.supervisor", "--lifeline", "--host", "0"]
        done = subprocess.run(words, cwd=ROOT, input=f"{join.dump()}\n", capture_output=True, text=True, timeout=20, check=False)
        assert done.returncode == 2
        said = done.stderr
        assert "must have the version of srl that the controller has" in said and "0.0.7" in said
    finally:
        backend.close()


def marked(mark: str) -> list[str]:
    """Command lines of the processes with this in their environment."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and mark.encode() in (entry / "environ").read_bytes():
                found.append((entry / "cmdline").read_bytes().replace(b"\0", b" ").decode())
        except OSError:
            continue
    return found
