"""Crews: where the processes of a run live. The controller sends all of them the same messages."""

from __future__ import annotations

import select
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from srl.control.messages import Message
from srl.core.errors import SrlError
from srl.workers.driver import Driver

_SWEEPS = 256
"""Sweeps before an inline crew looks up."""

_WORKING_SWEEPS = 1000
"""Sweeps with work between two reports where nobody counts updates."""


class Crew(ABC):
    """Processes that can be started, talked to and ended."""

    @abstractmethod
    def send(self, message: Message) -> None:
        """Pass a message on to its process; `start` and `kill` are obeyed here. One to a process that is gone is dropped."""

    @abstractmethod
    def poll(self, timeout: float) -> list[Message]:
        """What the processes said, and their exits; waits at most `timeout` seconds."""

    @abstractmethod
    def close(self) -> None:
        """End whatever still runs, at once. Idempotent."""

    @property
    def place(self) -> dict[str, Any]:
        """Where sockets of streams bind, and whether they encrypt; empty: on this host, in the clear."""
        return {}

    def fileno(self) -> int:
        """A descriptor that is readable when `poll` has something."""
        raise NotImplementedError(f"{type(self).__name__} cannot be waited for together with others")


class InlineCrew(Crew):
    """Everything in this process and thread, stepped by `poll`. Reports are counted in updates: no clock decides anything."""

    def __init__(self) -> None:
        self.driver: Driver | None = None
        self._said: list[Message] = []
        self._mark = 0.0
        self._sweeps = 0

    def send(self, message: Message) -> None:
        if message["type"] == "start":
            self.driver = Driver(message["process"], self._said.append, inline=True)
        if self.driver is not None and self.driver.phase != "closed" and message["type"] not in ("kill", "stacks"):
            driver = self.driver
            self._guarded(lambda: driver.handle(message))
            if driver.phase == "closed":
                self._exit(0)

    def poll(self, timeout: float) -> list[Message]:
        for _ in range(_SWEEPS):
            if self._said or self.driver is None:
                break
            self._guarded(self._sweep)
        said, self._said[:] = list(self._said), []
        return said

    def close(self) -> None:
        if self.driver is not None:
            self.driver.close()

    def _sweep(self) -> None:
        driver = self.driver
        assert driver is not None
        done = driver.turn()
        if done and self._progressed(driver):
            driver.report()
        elif not done:
            driver.rest(0.1)

    def _progressed(self, driver: Driver) -> bool:
        """Whether it is time for a report: an update was made, or the task is finished."""
        assert driver.host is not None
        self._sweeps += 1
        counts = [
            worker.reading.totals["updates"] for worker in driver.host.workers.values() if "updates" in worker.reading.totals
        ]
        mark = sum(counts) if counts else self._sweeps // _WORKING_SWEEPS
        mark += 0.5 * driver.finished
        changed, self._mark = mark != self._mark, mark
        return changed

    def _guarded(self, action: Callable[[], object]) -> None:
        driver = self.driver
        assert driver is not None
        try:
            action()
        except (Exception, SystemExit) as error:  # an env that calls sys.exit is to blame as one that raises
            driver.failed(error)
            self._exit(error.exit_code if isinstance(error, SrlError) else 3)
            driver.close()

    def _exit(self, code: int) -> None:
        assert self.driver is not None
        self._said.append(
            {
                "type": "exit",
                "process": self.driver.process,
                "code": code,
                "log": [],
                "rss": 0,
                "free": None,
                "out_of_memory": False,
            }
        )


class JointCrew(Crew):
    """Several crews as one: each process belongs to the crew that `place` names."""

    def __init__(self, crews: list[Crew], place: Callable[[str], int]) -> None:
        self._crews = crews
        self._place = place
        self._ready = select.poll()
        for crew in crews:
            self._ready.register(crew.fileno(), select.POLLIN)

    @property
    def place(self) -> dict[str, Any]:
        return next((place for crew in self._crews if (place := crew.place)), {})

    def send(self, message: Message) -> None:
        self._crews[self._place(message["process"])].send(message)

    def poll(self, timeout: float) -> list[Message]:
        end = time.monotonic() + timeout
        while True:
            said = [message for crew in self._crews for message in crew.poll(0.0)]
            rest = end - time.monotonic()
            if said or rest <= 0:
                return said
            self._ready.poll(1000 * rest)

    def close(self) -> None:
        for crew in self._crews:
            crew.close()
