"""`python -m srl.cluster.supervisor --host I`: starts, watches and ends the worker processes of its host.

The join line comes through standard input, or from a file with mode 600. The supervisor passes the messages of the
controller on to the processes, and merges their reports into one a second.
"""

from __future__ import annotations

import argparse
import math
import os
import platform
import select
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from srl.cluster.address import address_towards, check_reach
from srl.cluster.attachment import Attachment
from srl.cluster.files import KINDS, LOADED
from srl.cluster.preflight import Probe, facts, unreached
from srl.cluster.security import Join
from srl.cluster.spool import Spool
from srl.cluster.wire import LEASE
from srl.control.processes import ProcessBackend
from srl.core.errors import SrlError, UserError
from srl.graph.spec import Graph
from srl.workers.messages import Message, ProcessReport

PREEMPTED = 75
"""Exit code: schedulers start the supervisor again."""
REPORT_EVERY = 1.0
_REPORTS = 2000
"""Workers in a run that report so often; with more of them each reports less often. One report costs the controller 0.1 ms."""
PATIENCE = 1800.0
"""Seconds without a controller after which the supervisor itself gives up."""

OWN_LEASE = LEASE + 10.0
"""Seconds without a controller after which workers stop: later than the controller gives them up, which it may notice later."""

_GRACE = 15.0
_LEAVE = 25.0
"""Seconds that a host has to leave after it was told to end. Schedulers kill after 30 or more."""
_LOOK_EVERY = 1.0
"""Seconds between two looks for new files."""
_READ_EVERY = 1.0
"""Seconds between two looks into the join file while there is no controller."""
_WINDOW = 32
"""Pieces of files on the way to the controller."""


class Supervisor:
    """One host's processes, and the call to the controller."""

    def __init__(
        self,
        join: Join,
        host: int,
        *,
        lease: float = OWN_LEASE,
        patience: float = PATIENCE,
        file: str = "-",
        waits: bool = False,
    ) -> None:
        """`file`: where the join line came from. Another controller of the run writes its own there.

        `waits`: while another supervisor serves this host.
        """
        self._join, self._file = join, file
        self.successor: Join | None = None
        """For another supervisor after this one: the run has a new controller, or has given this one up."""
        self._backend = ProcessBackend()
        self._lease, self._patience = lease, patience
        name, _, port = join.address.rpartition(":")
        self._own_address = address_towards(name, int(port))
        self._reports: dict[str, ProcessReport] = {}
        self._every = REPORT_EVERY
        self._stopping = 0.0
        self._folder = ""
        """The run folder of the controller."""
        self._spool: Spool | None = None
        """Stands for the run folder, if this host does not see it."""
        self._outgoing: deque[Iterator[Message]] = deque()
        """Files, and the exits and the goodbye that come after them."""
        self._probe = Probe(self._own_address)
        self._told = ""
        """The signal by which a scheduler told this host to end."""
        self._attachment = Attachment(join, host, waits=waits)
        self._attachment.send(facts(self._probe.address))

    def run(self, lifeline: int | None = None) -> int:
        """Serve until the controller says `bye` or stays away for longer than `patience`; the exit code.

        When the descriptor `lifeline` closes, everything ends at once (ssh closes it when the connection is cut).
        """
        due = look = read = now = 0.0
        end = math.inf
        leaving = left = told = False
        watched = [
            self._attachment.fileno(),
            self._backend.fileno(),
            self._probe.fileno(),
            *([lifeline] if lifeline is not None else []),
        ]
        while True:
            ready, _, _ = select.select(watched, [], [], 0.2)
            if lifeline in ready and not os.read(lifeline, 1 << 12):
                return PREEMPTED
            self._probe.accept()
            for message in self._attachment.receive():
                if message["type"] == "leave":
                    self._stopping = time.monotonic() + _GRACE
                    self._each("stop", save=True)
                    left = True
                elif message["type"] == "bye":
                    leaving = True
                    self._backend.close()
                    self._send_behind_files({"type": "bye", "process": ""})
                else:
                    self._down(message)
            if leaving and not self._outgoing:
                return PREEMPTED if self._told else 0
            now = time.monotonic()
            if self._told and not told:
                told, end = True, now + _LEAVE
                self._attachment.send({"type": "leaving", "process": "", "signal": self._told})
            if left and not self._backend.processes and not leaving:
                leaving = True
                self._send_behind_files({"type": "bye", "process": ""})
            for message in [] if leaving else self._backend.poll(0.0):
                self._up(message)
            self._send_files()
            if now >= look:
                look = now + _LOOK_EVERY
                if self._spool is not None and not self._outgoing:
                    self._outgoing.append(self._spool.changes())
            if now >= due:
                due = now + self._every
                reports, self._reports = self._reports, {}
                self._send_reports(reports)
            if self._attachment.refused or (self._told and (now > end or not self._attachment.is_open)):
                return PREEMPTED
            if self._attachment.given_up:  # by now the run can do without what was here; what starts supervisors need not know
                self.successor = self._join if lifeline is None else None
                return PREEMPTED
            if not self._attachment.is_open and now >= read:
                read = now + _READ_EVERY
                if (found := _found(self._file)) not in (None, self._join):
                    self.successor = found
                    return PREEMPTED
            if not self._attachment.is_open and not self._within_patience(now - self._attachment.since):
                return PREEMPTED
            if self._stopping and now > self._stopping:
                self._each("kill")

    def tell(self, number: int, _: Any) -> None:
        """A handler of signals: the host is to end soon."""
        self._told = signal.Signals(number).name

    def close(self) -> None:
        """Kill all processes and close the call. Idempotent."""
        self._backend.close()
        self._attachment.close()
        self._probe.close()
        if self._spool is not None:
            self._spool.close()

    def _down(self, message: Message) -> None:
        kind = message["type"]
        if kind == "folder":
            self._folder = message["path"]
            visible = Path(self._folder).is_dir() if message["shared"] is None else message["shared"]
            self._spool = None if visible else Spool()
        elif kind in KINDS:
            if self._spool is not None:
                self._spool.take(message)
        elif kind == "reach":
            threading.Thread(target=self._reach, args=(message["addresses"],), daemon=True).start()
        elif kind != "ack":
            self._backend.send(self._here(message))

    def _reach(self, addresses: Mapping[str, str]) -> None:
        """In a thread of its own: it may wait for every address."""
        self._attachment.send({"type": "reached", "process": "", "missed": unreached(addresses)})

    def _here(self, message: Message) -> Message:
        """A message of the controller, with the paths and the address of this host."""
        if message["type"] == "start" and message["log"] is not None and self._spool is not None:
            message["log"] = str(self._spool.path / "logs" / Path(message["log"]).name)
        if message["type"] == "assign" and message["network"]:
            self._every = REPORT_EVERY * max(1.0, sum(node.count for node in message["graph"].nodes) / _REPORTS)
            message["network"] = {**message["network"], "bind": f"tcp://{self._own_address}"}
        if message["type"] == "assign" and self._spool is not None:
            for name in ("folder", "resume"):
                message[name] = str(self._spool.path) if message[name] == self._folder else message[name]
            message["graph"] = loading_from(message["graph"], self._spool.path / LOADED)
        return message

    def _up(self, message: Message) -> None:
        if message["type"] == "report":
            for name, entry in message["processes"].items():
                self._add(name, entry)
            return
        if message["type"] == "exit":
            self._send_reports({name: self._reports.pop(name) for name in [message["process"]] if name in self._reports})
            self._send_behind_files(message)
            return
        self._attachment.send(message)

    def _send_behind_files(self, message: Message) -> None:
        """When the controller reads it, it has all files."""
        if self._spool is not None:
            self._outgoing.append(self._spool.changes(final=True))
        self._outgoing.append(iter([message]))
        self._send_files()

    def _send_files(self) -> None:
        while self._outgoing and self._attachment.backlog < _WINDOW:
            if (message := next(self._outgoing[0], None)) is not None:
                self._attachment.send(message)
            else:
                self._outgoing.popleft()

    def _add(self, name: str, entry: ProcessReport) -> None:
        """Keep the newest report of a process, with the means of those before it that were not sent."""
        if (before := self._reports.get(name)) is not None:
            for worker, report in entry.workers.items():
                if worker in before.workers:
                    report.reading.follow(before.workers[worker].reading)
        self._reports[name] = entry

    def _send_reports(self, reports: dict[str, ProcessReport]) -> None:
        if reports:
            self._attachment.send({"type": "report", "processes": reports})

    def _within_patience(self, away: float) -> bool:
        """After `lease` seconds without a controller the workers stop. False after `patience` seconds: the supervisor ends."""
        if away > self._lease and self._backend.processes and not self._stopping:
            self._each("stop", save=True)
            self._stopping = time.monotonic() + _GRACE
        if not self._backend.processes:
            self._stopping = 0.0
        return away < self._patience

    def _each(self, kind: str, **fields: Any) -> None:
        for process in self._backend.processes:
            self._backend.send({"type": kind, "process": process, **fields})


def loading_from(graph: Graph, folder: Path) -> Graph:
    """The graph whose policies load the weights that the controller has sent."""
    sent = {name: replace(entry, load=str(folder / name)) for name, entry in graph.policies.items() if (folder / name).is_dir()}
    return replace(graph, policies={**graph.policies, **sent}) if sent else graph


def _found(name: str) -> Join | None:
    """What is in the join file now."""
    try:
        return Join.read_file(Path(name)) if name != "-" else None
    except (OSError, UserError):
        return None


def _join(name: str) -> Join:
    if name == "-":
        return Join.read(sys.stdin)
    try:
        return Join.read_file(Path(name))
    except OSError as error:
        shared = ("try", "a run folder (--runs) on a file system that all hosts share")
        raise UserError(f"cannot read the join file on host {platform.node()}", ("from", name), shared) from error


def main() -> int:
    parser = argparse.ArgumentParser(prog="srl.cluster.supervisor", description=__doc__)
    parser.add_argument("--host", type=int, required=True, help="which host of the run this is")
    parser.add_argument("--join", default="-", help="file with the join line; -: standard input")
    parser.add_argument("--lifeline", action="store_true", help="end when standard input does")
    parser.add_argument("--wait", type=float, default=0.0, help="seconds to wait for the controller to start")
    parser.add_argument("--lease", type=float, default=OWN_LEASE)
    parser.add_argument("--patience", type=float, default=PATIENCE)
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(PREEMPTED))  # also as process 1 of a container
    try:
        join = _join(given.join)
        join.check_version()
        if given.lifeline or given.join != "-":  # a launcher that runs has a controller
            check_reach(join.address, given.wait)
        waits = False
        while True:
            supervisor = Supervisor(join, given.host, lease=given.lease, patience=given.patience, file=given.join, waits=waits)
            for number in (signal.SIGTERM, signal.SIGUSR1):
                signal.signal(number, supervisor.tell)
            try:
                code = supervisor.run(sys.stdin.fileno() if given.lifeline else None)
            finally:
                supervisor.close()
            if supervisor.successor is None:
                return code
            join, waits = supervisor.successor, True
            join.check_version()
    except SrlError as error:
        print(error, file=sys.stderr)
        return error.exit_code


if __name__ == "__main__":
    sys.exit(main())
