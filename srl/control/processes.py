"""Worker processes on this host, as children. They are killed when the thread that started them ends."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from srl.control.backend import Backend
from srl.core.errors import HostileFrame
from srl.core.files import last_lines
from srl.core.machine import memory_free
from srl.core.threads import plan
from srl.observe.result import TAIL
from srl.workers.messages import Channel, Message


@dataclass(slots=True)
class _Child:
    process: str
    popen: subprocess.Popen[bytes]
    channel: Channel
    pidfd: int
    log: IO[bytes]


class ProcessBackend(Backend):
    """Child processes, each with a socket pair for messages."""

    def __init__(self) -> None:
        self._children: dict[str, _Child] = {}
        self._by_descriptor: dict[int, _Child] = {}
        self._epoll = select.epoll()
        self._oom_kills = _oom_kills()

    def fileno(self) -> int:
        return self._epoll.fileno()

    @property
    def processes(self) -> dict[str, int]:
        """Process -> pid."""
        return {name: child.popen.pid for name, child in dict(self._children).items()}  # a copy: other threads call this

    def send(self, message: Message) -> None:
        if message["type"] == "start":
            self._start(message)
        child = self._children.get(message["process"])
        if child is None:
            return
        if message["type"] == "kill":
            self._kill(child)
        elif message["type"] == "stacks":
            os.kill(child.popen.pid, signal.SIGUSR1)  # safe: it is not reaped yet, so the pid is still its own
        elif not child.channel.send(message):
            self._epoll.modify(child.channel.fileno(), select.EPOLLIN | select.EPOLLOUT)

    def poll(self, timeout: float) -> list[Message]:
        received: list[Message] = []
        for descriptor, _ in self._epoll.poll(timeout):
            child = self._by_descriptor.get(descriptor)
            if child is None:
                continue
            if descriptor == child.pidfd:
                received += [*self._receive(child), self._reap(child)]
            elif child.channel.flush():
                self._epoll.modify(descriptor, select.EPOLLIN)
                received += self._receive(child)
        return received

    def close(self) -> None:
        for child in list(self._children.values()):
            self._kill(child)
        for child in list(self._children.values()):
            self._reap(child)
        if not self._epoll.closed:
            self._epoll.close()

    def _start(self, message: Message) -> None:
        ours, theirs = socket.socketpair()
        log = _open_log(message["log"])
        with theirs:
            command = [sys.executable, "-u", "-m", "srl.workers.process", message["process"]]
            popen = subprocess.Popen(
                [*command, "--fd", str(theirs.fileno()), "--parent", str(os.getpid())],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                # the number of threads must be set before numpy or torch are imported
                env={**environment(), **plan(message["threads"]), "PYTHONUNBUFFERED": "1"},
                pass_fds=[theirs.fileno()],
                process_group=0,
            )
        child = _Child(message["process"], popen, Channel(ours), os.pidfd_open(popen.pid), log)
        self._children[child.process] = child
        for descriptor in (child.channel.fileno(), child.pidfd):
            self._by_descriptor[descriptor] = child
            self._epoll.register(descriptor, select.EPOLLIN)

    def _receive(self, child: _Child) -> list[Message]:
        try:
            messages = child.channel.receive()
        except HostileFrame as error:
            os.write(child.log.fileno(), f"{error}\n".encode())
            self._kill(child)
            messages = []
        if child.channel.closed and child.channel.fileno() >= 0:  # its exit follows
            self._forget_channel(child)
        return messages

    def _kill(self, child: _Child) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.popen.pid, signal.SIGKILL)

    def _reap(self, child: _Child) -> Message:
        """Collect a child that has ended, and kill whatever it started."""
        self._kill(child)  # the group, while the zombie still holds its number
        _, status, used = os.wait4(child.popen.pid, 0)
        code = child.popen.returncode = os.waitstatus_to_exitcode(status)
        self._forget_channel(child)
        self._epoll.unregister(child.pidfd)
        del self._by_descriptor[child.pidfd], self._children[child.process]
        os.close(child.pidfd)
        before, self._oom_kills = self._oom_kills, _oom_kills()
        message: Message = {
            "type": "exit",
            "process": child.process,
            "code": code,
            "log": last_lines(child.log, TAIL),
            "rss": used.ru_maxrss * 1024,
            "free": memory_free(),
            "out_of_memory": code == -signal.SIGKILL and self._oom_kills > before,
        }
        child.log.close()
        return message

    def _forget_channel(self, child: _Child) -> None:
        descriptor = child.channel.fileno()
        if descriptor >= 0:
            self._epoll.unregister(descriptor)
            del self._by_descriptor[descriptor]
            child.channel.close()


def environment() -> dict[str, str]:
    """The environment of this process, extended so that `srl` can be imported."""
    root = str(Path(__file__).resolve().parents[2])
    return {**os.environ, "PYTHONPATH": os.pathsep.join([root, *filter(None, [os.environ.get("PYTHONPATH")])])}


def _open_log(path: str | None) -> IO[bytes]:
    if path is None:
        return tempfile.TemporaryFile()
    return open(os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600), "r+b", buffering=0)


def _oom_kills() -> int:
    """How many processes the kernel has killed so far because memory was short."""
    with open("/proc/vmstat") as file:
        return next((int(line.split()[1]) for line in file if line.startswith("oom_kill ")), 0)
