"""Memory that any process of the same user and host can map, and that is gone when its last holder is, however that dies."""

from __future__ import annotations

import fcntl
import mmap
import os
import secrets
import stat
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from srl.core.errors import UserError, WireError

_HEAD = 64
"""Bytes before the arena: whose memory this is, so that a reused process id or descriptor is noticed."""


class Segment:
    """One mapping. The maker keeps it alive; those who open it keep only the mapping."""

    def __init__(self, memory: mmap.mmap, size: int, descriptor: int = -1, path: Path | None = None) -> None:
        self.buffer = memoryview(memory)[_HEAD : _HEAD + size]
        self.path = path
        self.descriptor = descriptor

    @classmethod
    def create(cls, size: int, owner: int, folder: Path | None = None) -> Segment:
        """New memory, reserved at once: too little is an error now, not a crash later. Files only if a folder is given."""
        _refuse_if_too_large(size)
        if folder is None and hasattr(os, "memfd_create"):
            descriptor, path = os.memfd_create("srl-stream", os.MFD_CLOEXEC), None
        else:
            descriptor, path = _locked_file(folder or _default_folder())
        try:
            os.posix_fallocate(descriptor, 0, _HEAD + size)
        except OSError as error:
            os.close(descriptor)
            if path is not None:
                path.unlink()
            raise UserError(
                f"no room for {size / 1e6:.1f} MB of stream memory",
                ("found", str(error)),
                ("try", "fewer or smaller slabs (sampling.envs, sampling.steps), or a larger /dev/shm"),
                code="E08",
            ) from error
        memory = mmap.mmap(descriptor, _HEAD + size)
        memory[:8] = owner.to_bytes(8, "little")
        return cls(memory, size, descriptor, path)

    @classmethod
    def attach(cls, address: Mapping[str, Any], size: int, owner: int) -> Segment:
        """Map the memory at this address; anything else that lies there now is refused."""
        try:
            descriptor = os.open(_where(address), os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            raise _unreachable(address, str(error)) from error
        try:
            found = os.fstat(descriptor)
            if not stat.S_ISREG(found.st_mode) or found.st_size != _HEAD + size:
                raise _unreachable(address, f"{found.st_size} bytes where {_HEAD + size} were expected")
            memory = mmap.mmap(descriptor, _HEAD + size)
        finally:
            os.close(descriptor)
        if memory[:8] != owner.to_bytes(8, "little"):
            raise _unreachable(address, "the memory of another end")
        return cls(memory, size)

    def address(self) -> dict[str, Any]:
        """Plain data for `attach`."""
        if self.path is not None:
            return {"path": str(self.path)}
        return {"pid": os.getpid(), "fd": self.descriptor}

    def close(self) -> None:
        """Let go. Views that are still held keep their own hold on the memory."""
        if self.path is not None:
            self.path.unlink(missing_ok=True)
            self.path = None
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1
        self.buffer = memoryview(b"")


def sweep(folder: Path) -> None:
    """Remove what killed processes left in a folder of files; memory without files needs no such thing."""
    for path in folder.glob("*.memory"):
        with suppress(OSError):
            descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                path.unlink(missing_ok=True)
                path.with_suffix(".wakeup").unlink(missing_ok=True)
            finally:
                os.close(descriptor)


def _locked_file(folder: Path) -> tuple[int, Path]:
    """A new file that its living owner holds locked: a sweep may have been quicker, then another one."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    while True:
        path = folder / f"{secrets.token_hex(8)}.memory"
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with suppress(BlockingIOError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.fstat(descriptor).st_nlink:
                return descriptor, path
        os.close(descriptor)


def _default_folder() -> Path:
    return Path(os.environ.get("XDG_RUNTIME_DIR") or "/tmp") / f"srl-{os.getuid()}"


def _where(address: Mapping[str, Any]) -> str:
    return str(address["path"]) if "path" in address else f"/proc/{int(address['pid'])}/fd/{int(address['fd'])}"


def _unreachable(address: Mapping[str, Any], found: str) -> WireError:
    return WireError(
        f"no stream memory at {_where(address)}",
        ("found", found),
        ("why", "its process has ended, or /proc is not shared with it"),
        ("try", "give both processes one folder for stream files, or via: zmq between them"),
    )


def _refuse_if_too_large(size: int) -> None:
    available = _available()
    if available is not None and size > available:
        raise UserError(
            f"{size / 1e6:.0f} MB of stream memory do not fit",
            ("found", f"{available / 1e6:.0f} MB of memory available"),
            ("try", "fewer or smaller slabs: sampling.envs, sampling.steps, staleness.max"),
            code="E08",
        )


def _available() -> int | None:
    """Bytes that could be had now: of the machine, and of this control group."""
    limits: list[int] = []
    with suppress(OSError, ValueError, StopIteration):
        line = next(line for line in Path("/proc/meminfo").read_text().splitlines() if line.startswith("MemAvailable:"))
        limits.append(int(line.split()[1]) * 1024)
    with suppress(OSError, ValueError):
        group = Path("/sys/fs/cgroup")
        limits.append(int((group / "memory.max").read_text()) - int((group / "memory.current").read_text()))
    return min(limits, default=None)
