"""Backends start the processes of a run and pass messages: here the base, the one without processes, and several as one."""

from __future__ import annotations

import select
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

from srl.core.errors import SrlError
from srl.workers.messages import Message
from srl.workers.process import ProcessAgent

UNMEASURED: Message = {"rss": 0, "free": None, "out_of_memory": False}
"""Fields of the `exit` message of a process that was not measured."""

_SWEEPS = 256
"""Sweeps of the inline backend before it gives the controller its turn."""

_WORKING_SWEEPS = 1000
"""Sweeps with work between two reports where no worker counts updates."""


class Backend(ABC):
    """Starts and ends processes, and passes messages to and from them."""

    @abstractmethod
    def send(self, message: Message) -> None:
        """Pass a message on to its process; `start` and `kill` are carried out here.

        A message to a process that is gone is dropped.
        """

    @abstractmethod
    def poll(self, timeout: float) -> list[Message]:
        """Messages of the processes, and their exits; waits at most `timeout` seconds."""

    @abstractmethod
    def close(self) -> None:
        """Kill whatever still runs. Idempotent."""

    @property
    def network(self) -> dict[str, Any]:
        """Where sockets of streams bind, and whether they encrypt; empty: on this host, unencrypted."""
        return {}

    @property
    def refused(self) -> Mapping[str, int]:
        """Callers of the control plane that were sent away, by reason."""
        return {}

    @property
    def waiting(self) -> bool:
        """Whether hosts have not joined yet: a run that waits for them has not stalled."""
        return False

    def absent(self, process: str) -> bool:
        """Whether its host may come later, and is not there yet."""
        return False

    @property
    def receiving(self) -> bool:
        """Whether another host is sending files: its processes end when they have arrived."""
        return False

    def fileno(self) -> int:
        """A descriptor that is readable when `poll` has something."""
        raise NotImplementedError(f"{type(self).__name__} cannot be waited for together with others")


class InlineBackend(Backend):
    """All workers in this process and thread, stepped by `poll`. It reports by number of updates, never by time.

    `raises`: errors of workers are raised as they are, not sent as messages.
    """

    def __init__(self, *, raises: bool = False) -> None:
        self._raises = raises
        self.agent: ProcessAgent | None = None
        self._sent: list[Message] = []
        self._mark = 0.0
        self._sweeps = 0

    def send(self, message: Message) -> None:
        if message["type"] == "start":
            self.agent = ProcessAgent(message["process"], self._sent.append, inline=True)
        if self.agent is not None and self.agent.phase != "closed" and message["type"] not in ("kill", "stacks"):
            agent = self.agent
            self._guarded(lambda: agent.handle(message))
            if agent.phase == "closed":
                self._exit(0)

    def poll(self, timeout: float) -> list[Message]:
        for _ in range(_SWEEPS):
            if self._sent or self.agent is None:
                break
            self._guarded(self._reported_sweep)
        sent, self._sent[:] = list(self._sent), []
        return sent

    def close(self) -> None:
        if self.agent is not None:
            self.agent.close()

    def sweep(self) -> int:
        """Poll every worker once and return how much was done; wait a moment if nothing was."""
        assert self.agent is not None
        done = self.agent.turn()
        if not done:
            self.agent.rest(0.1)
        return done

    def _reported_sweep(self) -> None:
        """Report when an update was made, or the task is finished."""
        agent = self.agent
        assert agent is not None
        if not self.sweep():
            return
        assert agent.loop is not None
        self._sweeps += 1
        counts = [worker.reading["updates"] for worker in agent.loop.workers.values() if "updates" in worker.reading.metrics]
        mark = (sum(counts) if counts else self._sweeps // _WORKING_SWEEPS) + 0.5 * agent.finished
        if mark != self._mark:
            self._mark = mark
            agent.report()

    def _guarded(self, action: Callable[[], object]) -> None:
        agent = self.agent
        assert agent is not None
        try:
            action()
        except (Exception, SystemExit) as error:  # an env that calls sys.exit has failed like one that raises
            if self._raises:
                raise
            agent.failed(error)
            self._exit(error.exit_code if isinstance(error, SrlError) else 3)
            agent.close()

    def _exit(self, code: int) -> None:
        assert self.agent is not None
        self._sent.append({"type": "exit", "process": self.agent.process, "code": code, "log": [], **UNMEASURED})


class CompositeBackend(Backend):
    """Several backends as one: `backend_of` says to which of them a process belongs."""

    def __init__(self, backends: list[Backend], backend_of: Callable[[str], int]) -> None:
        self._backends = backends
        self._backend_of = backend_of
        self._ready = select.poll()
        for backend in backends:
            self._ready.register(backend.fileno(), select.POLLIN)

    @property
    def network(self) -> dict[str, Any]:
        return next((network for backend in self._backends if (network := backend.network)), {})

    def absent(self, process: str) -> bool:
        return self._backends[self._backend_of(process)].absent(process)

    @property
    def receiving(self) -> bool:
        return any(backend.receiving for backend in self._backends)

    @property
    def refused(self) -> Mapping[str, int]:
        return {reason: number for backend in self._backends for reason, number in backend.refused.items()}

    def send(self, message: Message) -> None:
        self._backends[self._backend_of(message["process"])].send(message)

    def poll(self, timeout: float) -> list[Message]:
        end = time.monotonic() + timeout
        while True:
            sent = [message for backend in self._backends for message in backend.poll(0.0)]
            rest = end - time.monotonic()
            if sent or rest <= 0:
                return sent
            self._ready.poll(1000 * rest)

    def close(self) -> None:
        for backend in self._backends:
            backend.close()
