"""A host driven by messages: the same in a process of its own and inline."""

from __future__ import annotations

import contextlib
import importlib
import os
import resource
import time
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

from srl.core.errors import SrlError
from srl.core.load import load
from srl.core.registry import REGISTRIES, load_plugins
from srl.graph.derive import Derived
from srl.graph.spec import Graph
from srl.streams.peers import Network
from srl.workers.host import Host
from srl.workers.messages import Message, peers_from_data, seat_from_data
from srl.workers.reports import counts_to_data, report_to_data

Phase = Literal["empty", "open", "running", "draining", "closed"]

REST = 0.05
"""Seconds between two looks while others come to rest."""


class Driver:
    """Messages in, calls of the host; what the host says, messages out."""

    def __init__(self, process: str, send: Callable[[Message], object], *, inline: bool = False) -> None:
        self.process = process
        self.phase: Phase = "empty"
        self.host: Host | None = None
        self._send = send
        self._inline = inline
        self._drained = False

    def handle(self, message: Message) -> None:
        """Do what the controller asks."""
        getattr(self, f"_{message['type']}")(message)

    def turn(self) -> int:
        """One sweep; how much was done."""
        if self.host is None:
            return 0
        if self.phase == "running":
            return self.host.sweep()
        if self.phase == "draining":
            drained = self.host.drain()
            if drained and not self._drained:
                self._drained = True
                self.report()
                self._say("drained")
        return 0

    def rest(self, longest: float) -> None:
        """Wait on the wakeup after a turn in which nothing was done."""
        assert self.host is not None
        if self.phase == "running":
            self.host.wait(longest)
        elif not self._inline:
            self.host.wakeup.wait(min(longest, REST) if self.phase == "draining" else longest)

    @property
    def working(self) -> bool:
        return self.phase in ("running", "draining")

    @property
    def closed(self) -> bool:
        return self.phase == "closed"

    @property
    def finished(self) -> bool:
        return self.host is not None and self.host.finished

    def report(self) -> None:
        """Send what every worker has to say."""
        if self.host is None:
            return
        workers = {name: report_to_data(report) for name, report in self.host.reports().items()}
        used = resource.getrusage(resource.RUSAGE_SELF)
        entry = {
            "time": time.monotonic(),
            "cpu": used.ru_utime + used.ru_stime,
            "rss": _resident(),
            "workers": workers,
        }
        self._send({"type": "report", "processes": {self.process: entry}})

    def failed(self, error: BaseException) -> None:
        """Tell who raised what. The process ends after it."""
        data = error.to_data() if isinstance(error, SrlError) else None
        text = "".join(traceback.format_exception(error))
        blamed = (self.host.blamed if self.host is not None else "") or self.process
        self._send(
            {
                "type": "failed",
                "process": self.process,
                "worker": blamed,
                "error": data,
                "trace": text[-20_000:],
                "counted": self._reported(),
            }
        )

    def close(self) -> None:
        """Give everything back. Idempotent."""
        if self.host is not None and self.phase != "closed":
            self.host.close()
        self.phase = "closed"

    def _reported(self) -> bool:
        """The last counts of a process that has failed; what is broken may break again, and the first error counts."""
        with contextlib.suppress(Exception):
            self.report()
            return True
        return False

    def _say(self, kind: str) -> None:
        self._send({"type": kind, "process": self.process})

    # messages -----------------------------------------------------------------------------------------------------

    def _start(self, message: Message) -> None:
        """Import while the specs are still being derived elsewhere."""
        load_plugins(message["plugins"])
        for name in message["kinds"]:
            kind = REGISTRIES["worker"].resolve(name)
            for module in kind.preload:
                importlib.import_module(module)

    def _assign(self, message: Message) -> None:
        self.host = Host(
            load(Graph, message["graph"]),
            Derived.from_data(message["derived"]),
            [seat_from_data(seat) for seat in message["seats"]],
            folder=Path(message["folder"]) if message["folder"] else None,
            resume=Path(message["resume"]) if message["resume"] else None,
            inline=self._inline,
            network=_network(message["network"]),
        )
        self.phase = "open"
        if not self._inline:
            os.nice(self.host.nice)
        self._send({"type": "bound", "process": self.process, "pid": os.getpid(), "ends": self.host.bound()})

    def _peers(self, message: Message) -> None:
        assert self.host is not None
        self.host.attach(peers_from_data(message["peers"]))

    def _detach(self, message: Message) -> None:
        assert self.host is not None
        known = self.host.detach(message["gone"], message["reason"])
        ends = {name: counts_to_data(counts) for name, counts in known.items()}
        self._send({"type": "detached", "process": self.process, "ends": ends})

    def _make(self, message: Message) -> None:
        assert self.host is not None
        self.host.make()
        self._say("ready")

    def _go(self, message: Message) -> None:
        self.phase = "running"

    def _drain(self, message: Message) -> None:
        if self.phase == "running":
            assert self.host is not None
            if message["last"]:
                self.host.conclude()
            self.phase = "draining"
        elif self.phase != "draining":
            self._say("drained")

    def _stop(self, message: Message) -> None:
        if self.host is not None and self.host.workers and message["save"]:
            self.host.save()
        self.report()
        self.close()
        self._say("bye")


def _network(data: Mapping[str, Any]) -> Network | None:
    """With keys of this process's own, where streams leave the host."""
    if not data:
        return None
    from srl.streams.zmq import new_curve_keys

    return Network(bind=data["bind"], curve=new_curve_keys() if data["encrypt"] else None)


def _resident() -> int:
    """Bytes resident now."""
    with open("/proc/self/statm", "rb") as file:
        return int(file.read().split()[1]) * resource.getpagesize()
