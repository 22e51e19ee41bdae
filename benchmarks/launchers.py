"""CartPole by each launcher on real hosts of this machine: seconds to the first update, and to recover from failures.

    python benchmarks/launchers.py [--only start,recovery] [--launchers local,loopback,ssh,slurm,ray] [--rounds 3]

As root, with sshd, iproute2 and Slurm; Ray by RAY_PYTHON. The hosts are those of the tests: network namespaces with sshd, and
the nodes of a Slurm, all on this machine, so that nothing waits for a queue or a slow network.

- start: from the command to the end of the first update, with one actor on each of two hosts.
- recovery: one host with the only actor fails. Seconds from the failure (from the repair, where the host comes back) until the
  run has trained on new env steps.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from srl.store.lines import read_lines
from tests.cluster.slurm_cluster import SlurmCluster
from tests.cluster.two_hosts import ADDRESSES, TwoHosts
from tests.waiting import until

WORDS = ["experiment=cartpole", "layout=impala", "evaluation=null", "stop={seconds: 300, return: null, env_steps: null}"]
LEASE = 90.0
"""Seconds that a case may take."""
AHEAD = 20_000
"""More env steps than what an actor has sent before it failed."""


class Run:
    """A run in a process of its own."""

    def __init__(self, place: Path, words: list[str]) -> None:
        self.began = time.time()
        command = [sys.executable, "-m", "srl.launch", *WORDS, *words, f"--runs={place}", "--quiet"]
        self.place = place
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    @property
    def folder(self) -> Path:
        return next(self.place.glob("*/*"))

    def trained(self) -> list[tuple[float, int]]:
        """(time, env steps trained) of every report."""
        for metrics in self.place.glob("*/*/metrics.jsonl"):
            return [(row["time"], row["env_steps"]) for row in read_lines(metrics) if row.get("update")]
        return []

    def first_update(self) -> float:
        """Seconds from the command to the first report of an update."""
        self.until(self.trained)
        return self.trained()[0][0] - self.began

    def continues(self, since: float) -> float:
        """Seconds from then until env steps that came later have been trained."""
        known = AHEAD + max((steps for when, steps in self.trained() if when <= since), default=0)
        self.until(lambda: any(when > since and steps > known for when, steps in self.trained()))
        return next(when for when, steps in self.trained() if when > since and steps > known) - since

    def until(self, true: Callable[[], Any]) -> None:
        until(lambda: true() or self._process.poll() is not None, LEASE)
        if self._process.poll() is not None:
            raise SystemExit(self._process.stdout.read() if self._process.stdout else "the run has ended")

    def end(self) -> None:
        self._process.send_signal(signal.SIGINT)
        try:
            self._process.communicate(timeout=60)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()


@contextlib.contextmanager
def running(words: list[str]) -> Iterator[Run]:
    with tempfile.TemporaryDirectory() as place:
        run = Run(Path(place), words)
        try:
            yield run
        finally:
            run.end()


def words_of(launcher: str, hosts: TwoHosts | None, count: int) -> list[str]:
    """What places an actor on each of so many hosts."""
    if launcher == "local":
        return [f"sampling.workers={count}"]
    group: dict[str, Any] = {"count": count, "cores": 1}
    more: list[str] = []
    if launcher == "ssh":
        assert hosts is not None
        group = {"addresses": list(ADDRESSES[-count:])}
        more = [f"launcher.options={hosts.options}"]
    elif launcher == "ray":
        more = [f"launcher.ray_python={os.environ['RAY_PYTHON']}", "launcher.strategy=PACK"]
    return [f"launcher={launcher}", *more, f"hosts.cpu={group}", "workers.actor.hosts=cpu", f"sampling.workers={count}"]


def starts(launcher: str, hosts: TwoHosts | None, rounds: int) -> None:
    found = []
    for _ in range(rounds):
        with running(words_of(launcher, hosts, 2)) as run:
            found.append(run.first_update())
    print(f"{launcher:9s} first update after {text(found)}", flush=True)


def recovers(launcher: str, what: str, fail: Callable[[Run], float], hosts: TwoHosts | None, rounds: int) -> None:
    found = []
    for _ in range(rounds):
        with running([*words_of(launcher, hosts, 1), "workers.actor.on_failure=restart", "checkpoint.every=10"]) as run:
            run.first_update()
            found.append(run.continues(fail(run)))
    print(f"{launcher:9s} {what}: {text(found)}", flush=True)


def text(found: list[float]) -> str:
    return f"{statistics.median(found):5.1f} s   ({', '.join(f'{one:.1f}' for one in found)})"


def kill_actor(run: Run) -> float:
    """kill -9 of the actor's process, wherever it is."""
    pid = next(event["pid"] for event in read_lines(run.folder / "events.jsonl") if event.get("process") == "actor/0")
    found = [entry for entry in Path("/proc").glob("[0-9]*") if is_actor(entry, run)]
    began = time.time()
    os.kill(int(found[0].name) if found else pid, signal.SIGKILL)
    run.until(lambda: any(event["event"] == "died" for event in read_lines(run.folder / "events.jsonl")))
    return began


def is_actor(entry: Path, run: Run) -> bool:
    with contextlib.suppress(OSError):
        words = (entry / "cmdline").read_bytes().split(b"\0")
        return b"srl.workers.process" in words and b"actor/0" in words and float((entry / "stat").stat().st_mtime) >= run.began
    return False


def cut(hosts: TwoHosts, seconds: float) -> Callable[[Run], float]:
    def fail(_: Run) -> float:
        hosts.cut(2)
        time.sleep(seconds)
        hosts.plug(2)
        return time.time()

    return fail


def lose_power(hosts: TwoHosts) -> Callable[[Run], float]:
    def fail(_: Run) -> float:
        hosts.power_off(2)
        time.sleep(2.0)
        hosts.power_on(2)
        return time.time()

    return fail


def cancel_job(slurm: SlurmCluster) -> Callable[[Run], float]:
    def fail(_: Run) -> float:
        slurm.ask("scancel", "--me")
        return time.time()

    return fail


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="start,recovery")
    parser.add_argument("--launchers", default="local,loopback,ssh,slurm")
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    for launcher in given.launchers.split(","):
        with contextlib.ExitStack() as stack:
            place = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            hosts = slurm = None
            if launcher == "ssh":
                hosts = TwoHosts(place)
                stack.callback(hosts.close)
            elif launcher == "slurm":
                slurm = SlurmCluster(place)
                stack.callback(slurm.close)
                os.environ.update(slurm.environment)
            if "start" in given.only:
                starts(launcher, hosts, given.rounds)
            if "recovery" not in given.only:
                continue
            recovers(launcher, "kill -9 of the actor", kill_actor, hosts, given.rounds)
            if hosts is not None:
                recovers(launcher, "link cut for 5 s, after the repair", cut(hosts, 5.0), hosts, given.rounds)
                recovers(launcher, "link cut for 25 s, after the repair", cut(hosts, 25.0), hosts, 1)
                recovers(launcher, "host without power for 2 s, after it is back", lose_power(hosts), hosts, given.rounds)
            if slurm is not None:
                recovers(launcher, "the job of the host is cancelled, and submitted again", cancel_job(slurm), None, given.rounds)


if __name__ == "__main__":
    main()
