"""A worker process: it translates messages of the controller into calls of the worker loop. The agent also serves inline runs.

`python -m srl.workers.process PROCESS --fd N --parent PID` is started by a backend, never by hand.
"""

from __future__ import annotations

import argparse
import contextlib
import faulthandler
import gc
import logging
import os
import resource
import select
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

from srl.core.errors import SrlError
from srl.core.machine import BELOW_ALL, die_with, leave_cores
from srl.core.registry import load_plugins
from srl.streams.transport import Network
from srl.workers.loop import WorkerLoop
from srl.workers.messages import Channel, Message, ProcessReport

Phase = Literal["empty", "open", "running", "draining", "closed"]

REPORT_EVERY = 0.5
"""Seconds between two reports."""
DRAIN_EVERY = 0.05
"""Seconds between two calls of `drain` while the workers finish what is open."""


class ProcessAgent:
    """One worker loop, controlled by messages."""

    def __init__(self, process: str, send: Callable[[Message], object], *, inline: bool = False) -> None:
        self.process = process
        self.phase: Phase = "empty"
        self.loop: WorkerLoop | None = None
        self._send = send
        self._inline = inline
        self._drained = False

    def handle(self, message: Message) -> None:
        """Carry out one message of the controller."""
        getattr(self, f"_{message['type']}")(message)

    def turn(self) -> int:
        """One sweep; how much was done."""
        if self.loop is None:
            return 0
        if self.phase == "open":
            return self.loop.wakeup.deliver()  # a trainer of another host may wait for what is sent again
        if self.phase == "running":
            return self.loop.sweep()
        if self.phase == "draining":
            drained = self.loop.drain()
            if drained and not self._drained:
                self._drained = True
                self.report()
                self._say("drained")
        return 0

    def rest(self, longest: float) -> None:
        """Wait after a turn in which nothing was done."""
        assert self.loop is not None
        if self.phase == "running":
            self.loop.wait(longest)
        elif not self._inline:
            self.loop.wakeup.wait(min(longest, DRAIN_EVERY) if self.phase == "draining" else longest)

    @property
    def closed(self) -> bool:
        return self.phase == "closed"

    @property
    def finished(self) -> bool:
        return self.loop is not None and self.loop.finished

    def report(self) -> None:
        """Send the readings of every worker."""
        if self.loop is None:
            return
        used = resource.getrusage(resource.RUSAGE_SELF)
        cpu = used.ru_utime + used.ru_stime
        entry = ProcessReport(time.monotonic(), cpu, _resident(), self.loop.reports())
        self._send({"type": "report", "processes": {self.process: entry}})

    def failed(self, error: BaseException) -> None:
        """Send which worker raised what. The process ends after it."""
        data = error.to_data() if isinstance(error, SrlError) else None
        text = "".join(traceback.format_exception(error))
        worker = (self.loop.at_fault if self.loop is not None else "") or self.process
        counted = False
        with contextlib.suppress(Exception):  # a second error is ignored, the first one counts
            self.report()
            counted = True
        what = {"worker": worker, "error": data, "trace": text[-20_000:], "counted": counted}
        self._send({"type": "failed", "process": self.process, **what})

    def close(self) -> None:
        """Close workers and streams. Idempotent."""
        if self.loop is not None and self.phase != "closed":
            self.loop.close()
        self.phase = "closed"

    def _say(self, kind: str) -> None:
        self._send({"type": kind, "process": self.process})

    # messages -----------------------------------------------------------------------------------------------------

    def _start(self, message: Message) -> None:
        load_plugins(message["plugins"])

    def _assign(self, message: Message) -> None:
        self.loop = WorkerLoop(
            message["graph"],
            message["derived"],
            message["workers"],
            folder=Path(message["folder"]) if message["folder"] else None,
            resume=Path(message["resume"]) if message["resume"] else None,
            inline=self._inline,
            network=_network(message["network"]),
        )
        self.phase = "open"
        if not self._inline:
            os.nice(min(self.loop.nice, 19))
        self._send({"type": "bound", "process": self.process, "pid": os.getpid(), "ends": self.loop.bound()})

    def _peers(self, message: Message) -> None:
        assert self.loop is not None
        self.loop.attach(message["peers"])

    def _detach(self, message: Message) -> None:
        assert self.loop is not None
        known = self.loop.detach(message["gone"], message["reason"])
        self._send({"type": "detached", "process": self.process, "ends": known})

    def _make(self, message: Message) -> None:
        assert self.loop is not None
        self.loop.make()
        found = {name: worker.address for name, worker in self.loop.workers.items() if worker.address}
        self._send({"type": "ready", "process": self.process, "addresses": found})

    def _go(self, message: Message) -> None:
        gc.freeze()  # what is there by now stays: looking through it again and again costs a trainer 5 %
        if not self._inline and self.loop is not None and self.loop.nice >= BELOW_ALL:
            leave_cores()  # not before: the others wait until it is made
        self.phase = "running"

    def _drain(self, message: Message) -> None:
        if self.phase == "running":
            assert self.loop is not None
            if message["last"]:
                self.loop.conclude(message["last"])
            self.phase = "draining"
        elif self.phase != "draining":
            self._say("drained")

    def _stop(self, message: Message) -> None:
        if self.loop is not None and self.loop.workers and message["save"]:
            self.loop.save()
        self.report()
        self.close()
        self._say("bye")


def _network(data: Mapping[str, Any]) -> Network | None:
    """The network of streams that leave the host, with new keys for this process; None if none do."""
    if not data:
        return None
    from srl.streams.zmq import new_curve_keys

    return Network(bind=data["bind"], curve=new_curve_keys() if data["encrypt"] else None)


def _resident() -> int:
    """Bytes resident now."""
    with open("/proc/self/statm", "rb") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


# the process -------------------------------------------------------------------------------------------------------


def main() -> int:
    """Run the process. Returns its exit code."""
    parser = argparse.ArgumentParser(prog="srl.workers.process", description="started by srl, not by hand")
    parser.add_argument("process")
    parser.add_argument("--fd", type=int, required=True)
    parser.add_argument("--parent", type=int, required=True)
    options = parser.parse_args()
    die_with(options.parent)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1)  # the stacks of all threads go to the log
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the controller decides what Ctrl-C means
    # schedulers send SIGTERM to every process of a job: the controller drains and saves
    signal.signal(signal.SIGTERM, lambda *_: None)

    channel = Channel(socket.socket(fileno=options.fd))
    agent = ProcessAgent(options.process, channel.send)
    try:
        _run(agent, channel)
    except (Exception, SystemExit) as error:  # sys.exit in an env counts as a failure
        agent.failed(error)
        _flush(channel, 2.0)
        sys.excepthook(type(error), error, error.__traceback__)
        with contextlib.suppress(Exception):  # a second error while closing is ignored
            agent.close()
        return error.exit_code if isinstance(error, SrlError) else 3
    _flush(channel, 5.0)
    return 0


def _run(agent: ProcessAgent, channel: Channel) -> None:
    inbox = _first(channel)

    def read() -> None:
        for message in channel.receive():
            if message["type"] == "detach" and agent.loop is not None:
                agent.loop.lose(message["gone"])
            inbox.append(message)

    if inbox:
        sys.path[:] = list(dict.fromkeys([*sys.path, *inbox[0]["path"]]))
    watching = finished = False
    due = time.monotonic() + REPORT_EVERY
    while not agent.closed:
        while inbox and not agent.closed:
            agent.handle(inbox.pop(0))
        if channel.closed:
            agent.close()
            return
        loop = agent.loop
        if loop is None:
            inbox.extend(_first(channel))
            continue
        if not watching:
            loop.wakeup.watch(channel.fileno(), read)
            watching = True
            read()
        done = agent.turn()
        now = time.monotonic()
        flipped = done > 0 and not finished and agent.finished
        if flipped or now >= due:
            finished |= flipped
            due = now + REPORT_EVERY
            if agent.phase in ("running", "draining"):
                agent.report()
            channel.flush()
        if not done and not inbox:
            agent.rest(max(0.0, due - now))


def _first(channel: Channel) -> list[Message]:
    """Wait for messages while there is no loop to deliver them."""
    select.select([channel], [], [])
    return channel.receive()


def _flush(channel: Channel, seconds: float) -> None:
    """Send what is queued, unless the controller has stopped reading."""
    end = time.monotonic() + seconds
    while not channel.flush() and time.monotonic() < end:
        select.select([], [channel], [], 0.1)


if __name__ == "__main__":
    sys.exit(main())
