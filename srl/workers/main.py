"""`python -m srl.workers.main PROCESS --fd N --parent PID`: a process that hosts workers, driven over a socket.

Nothing heavy is imported before the process is tied to its parent; what it hosts comes over the socket.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import faulthandler
import logging
import os
import select
import signal
import socket
import sys
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from srl.workers.channel import Channel
    from srl.workers.driver import Driver
    from srl.workers.messages import Message

REPORT_EVERY = 0.5
_PR_SET_PDEATHSIG = 1


def main() -> int:
    """The whole life of the process; its exit code."""
    options = _options()
    die_with(options.parent)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1)  # the stacks of all threads go to the log
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the controller decides what Ctrl-C means

    from srl.core.errors import SrlError
    from srl.workers.channel import Channel
    from srl.workers.driver import Driver

    channel = Channel(socket.socket(fileno=options.fd))
    driver = Driver(options.process, channel.send)
    try:
        _live(driver, channel)
    except (Exception, SystemExit) as error:  # an env that calls sys.exit is to blame as one that raises
        driver.failed(error)
        _flush(channel, 2.0)
        sys.excepthook(type(error), error, error.__traceback__)
        with contextlib.suppress(Exception):  # what is broken may break again while it closes; the first error counts
            driver.close()
        return error.exit_code if isinstance(error, SrlError) else 3
    _flush(channel, 5.0)
    return 0


def die_with(parent: int) -> None:
    """Be killed when the parent dies, however it dies."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it died before we could say so
        os._exit(1)


def _live(driver: Driver, channel: Channel) -> None:
    inbox = _first(channel)

    def read() -> None:
        inbox.extend(channel.receive())

    if inbox:
        sys.path[:] = list(dict.fromkeys([*sys.path, *inbox[0]["path"]]))
    watching = finished = False
    due = time.monotonic() + REPORT_EVERY
    while not driver.closed:
        while inbox and not driver.closed:
            driver.handle(inbox.pop(0))
        if channel.closed:
            driver.close()
            return
        host = driver.host
        if host is None:
            inbox.extend(_first(channel))
            continue
        if not watching:
            host.wakeup.watch(channel.fileno(), read)
            watching = True
            read()
        done = driver.turn()
        now = time.monotonic()
        flipped = done > 0 and not finished and driver.finished
        if flipped or now >= due:
            finished |= flipped
            due = now + REPORT_EVERY
            if driver.working:
                driver.report()
            channel.flush()
        if not done and not inbox:
            driver.rest(max(0.0, due - now))


def _first(channel: Channel) -> list[Message]:
    """Wait for messages while there is no wakeup."""
    select.select([channel], [], [])
    return channel.receive()


def _flush(channel: Channel, seconds: float) -> None:
    """The last words must arrive, unless nobody reads."""
    end = time.monotonic() + seconds
    while not channel.flush() and time.monotonic() < end:
        select.select([], [channel], [], 0.1)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="srl.workers.main", description="started by a supervisor, not by hand")
    parser.add_argument("process")
    parser.add_argument("--fd", type=int, required=True)
    parser.add_argument("--parent", type=int, required=True)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
