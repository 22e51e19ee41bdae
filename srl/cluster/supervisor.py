"""`python -m srl.cluster.supervisor --join - --host I`: starts, watches and ends the worker processes of its host.

It passes the messages of the controller on to the processes, and merges their reports into one a second.
"""

from __future__ import annotations

import argparse
import os
import select
import socket
import sys
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from srl.cluster.rpc import LEASE, Attachment
from srl.cluster.security import Join
from srl.control.processes import ProcessBackend
from srl.core.errors import SrlError
from srl.core.readings import Reading
from srl.workers.messages import Message

REPORT_EVERY = 1.0
PATIENCE = 1800.0
"""Seconds without a controller after which the supervisor itself gives up."""

_GRACE = 15.0


class Supervisor:
    """One host's processes, and the call to the controller."""

    def __init__(self, join: Join, host: int, *, lease: float = LEASE, patience: float = PATIENCE) -> None:
        self._backend = ProcessBackend()
        self._lease, self._patience = lease, patience
        self._join, self._host = join, host
        self._own_address = _address_towards(join.addresses[0])
        self._reports: dict[str, Any] = {}
        self._phases: dict[str, str] = {}
        self._stopping = 0.0
        self._attachment = Attachment(join, self._hello)

    def run(self, lifeline: int | None = None) -> int:
        """Serve until the controller says `bye` or stays away for longer than `patience`; the exit code.

        When the descriptor `lifeline` closes, everything ends at once (ssh closes it when the connection is cut).
        """
        due = 0.0
        watched = [self._attachment.fileno(), self._backend.fileno(), *([lifeline] if lifeline is not None else [])]
        while True:
            ready, _, _ = select.select(watched, [], [], 0.2)
            if lifeline in ready and not os.read(lifeline, 1 << 12):
                return 75
            for message in self._attachment.receive():
                if message["type"] == "bye":
                    return self._leave()
                self._down(message)
            for message in self._backend.poll(0.0):
                self._up(message)
            now = time.monotonic()
            if self._reports and now >= due:
                due = now + REPORT_EVERY
                self._attachment.send({"type": "report", "processes": self._reports})
                self._reports = {}
            if not self._attachment.is_open and not self._within_patience(now - self._attachment.since):
                return 75
            if self._stopping and now > self._stopping:
                self._each("kill")

    def close(self) -> None:
        """End everything at once. Idempotent."""
        self._backend.close()
        self._attachment.close()

    def _down(self, message: Message) -> None:
        if message["type"] == "start" and message["log"] is not None and not Path(message["log"]).parent.is_dir():
            message["log"] = None  # the run folder is on another file system: the tail travels with the exit
        if message["type"] == "assign" and message["network"]:
            message["network"] = {**message["network"], "bind": f"tcp://{self._own_address}"}
        self._phases[message["process"]] = message["type"]
        self._backend.send(message)

    def _up(self, message: Message) -> None:
        if message["type"] == "report":
            for name, entry in message["processes"].items():
                self._add(name, entry)
            return
        if message["type"] == "exit":
            self._flush(message["process"])
            self._phases.pop(message["process"], None)
        self._attachment.send(message)

    def _add(self, name: str, entry: dict[str, Any]) -> None:
        """Keep the newest report of a process, with the means of those before it that were not sent."""
        before = self._reports.get(name, {"workers": {}})["workers"]
        for worker, report in entry["workers"].items():
            if worker in before:
                reading = Reading.from_data(report["reading"])
                reading.follow(Reading.from_data(before[worker]["reading"]))
                report["reading"] = reading.to_data()
        self._reports[name] = entry

    def _flush(self, process: str) -> None:
        if process in self._reports:
            self._attachment.send({"type": "report", "processes": {process: self._reports.pop(process)}})

    def _within_patience(self, away: float) -> bool:
        """The controller is away: after `lease` seconds the workers stop, after `patience` seconds the supervisor ends."""
        if away > self._lease and self._backend.processes and not self._stopping:
            self._each("stop", save=True)
            self._stopping = time.monotonic() + _GRACE
        if not self._backend.processes:
            self._stopping = 0.0
        return away < self._patience

    def _each(self, kind: str, **fields: Any) -> None:
        for process in self._backend.processes:
            self._backend.send({"type": kind, "process": process, **fields})

    def _leave(self) -> int:
        self._backend.close()
        self._attachment.send({"type": "bye", "process": ""})
        return 0

    def _hello(self) -> Message:
        """Which host this is and what runs here: the whole state, for a controller that reconnects."""
        return {
            "type": "hello",
            "run": self._join.run,
            "host": self._host,
            "incarnation": os.getpid(),
            "cores": len(os.sched_getaffinity(0)),
            "memory": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES"),
            "versions": _versions(),
            "taken": 0,
            "processes": {
                name: {"pid": pid, "phase": self._phases.get(name, "")} for name, pid in self._backend.processes.items()
            },
        }


def _address_towards(address: str) -> str:
    """The address of this host towards the controller, where the other hosts can reach it too."""
    name, _, port = address.rpartition(":")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((name, int(port)))  # sends nothing
        return str(probe.getsockname()[0])


def _versions() -> dict[str, str]:
    found = {"python": sys.version.split()[0]}
    for package in ("really-scalable-rl", "numpy", "pyzmq", "msgpack", "torch"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def main() -> int:
    parser = argparse.ArgumentParser(prog="srl.cluster.supervisor", description=__doc__)
    parser.add_argument("--join", help="`-`: from standard input; otherwise from the file $SRL_JOIN_FILE", choices=["-"])
    parser.add_argument("--host", type=int, required=True, help="which host of the run this is")
    parser.add_argument("--lifeline", action="store_true", help="end when standard input does")
    parser.add_argument("--lease", type=float, default=LEASE)
    parser.add_argument("--patience", type=float, default=PATIENCE)
    given = parser.parse_args()
    try:
        supervisor = Supervisor(Join.read(given.join), given.host, lease=given.lease, patience=given.patience)
    except SrlError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    try:
        return supervisor.run(sys.stdin.fileno() if given.lifeline else None)
    finally:
        supervisor.close()


if __name__ == "__main__":
    sys.exit(main())
