"""The resources of this machine: usable cores, GPUs, free memory. Nothing heavy is imported."""

from __future__ import annotations

import ctypes
import os
import signal
import socket
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

BELOW_ALL = 20
"""A niceness beyond the lowest: see `leave_cores`."""
_PR_SET_PDEATHSIG = 1
_CGROUP = Path("/sys/fs/cgroup")


@dataclass(frozen=True, slots=True)
class Machine:
    """The resources that a run may use."""

    cores: int
    gpus: int
    shared_free: int
    """Bytes that shared memory may still take: all of RAM, as it has no file."""

    @classmethod
    def here(cls) -> Machine:
        return cls(usable_cores(), _gpus(), memory_free())


def in_half(setting: bool | str) -> bool:
    """What `half: auto` means here: True if the processor has instructions for products in bfloat16."""
    return _has_bfloat16() if setting == "auto" else bool(setting)


@lru_cache
def _has_bfloat16() -> bool:
    about = Path("/proc/cpuinfo")
    flags = about.read_text(errors="replace").split() if about.exists() else []
    return "avx512_bf16" in flags or "amx_bf16" in flags


def leave_cores() -> None:
    """Let this process run only when no other process wants the core."""
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))


def die_with(parent: int) -> None:
    """Ask the kernel to kill this process when the parent dies."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it died before prctl
        os._exit(1)


class TwoCores:
    """Two cores for one pair of processes, which share no arithmetic unit if there are such. `cores` is None if too few are free.

    A pair holds sockets by the names of its cores, in no file system: no other pair of this user takes them before it ends.
    """

    def __init__(self) -> None:
        self.cores: tuple[int, int] | None = None
        self._held: list[socket.socket] = []
        usable = sorted(os.sched_getaffinity(0))
        for first in usable:
            near = _siblings(first)
            for second in sorted((core for core in usable if core != first), key=lambda core: (core in near, core)):
                if self._take(first) and self._take(second):
                    self.cores = first, second
                    return
                self.close()

    def close(self) -> None:
        """Others may have them. Idempotent."""
        for one in self._held:
            one.close()
        self._held, self.cores = [], None

    def _take(self, core: int) -> bool:
        held = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        try:
            held.bind(f"\0srl-core-{os.getuid()}-{core}")
        except OSError:
            held.close()
            return False
        self._held.append(held)
        return True


def version_of(package: str) -> str:
    """The installed version; empty without one."""
    from importlib import metadata  # slow to import

    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


def usable_cores() -> int:
    """Cores that affinity and the cgroup quota leave us; `os.cpu_count` knows neither."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = _quota()
    return max(1, cores if quota is None else min(cores, int(quota + 0.5)))


def memory_free() -> int:
    """Bytes of RAM that are available, within the cgroup's limit."""
    lines = Path("/proc/meminfo").read_text().splitlines()
    free = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
    limits = [("memory.max", "memory.current"), ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes")]
    for limit, used in limits:
        most, now = _number(_CGROUP / limit), _number(_CGROUP / used)
        if most is not None and now is not None and most < 1 << 60:
            free = min(free, max(0, int(most - now)))
    return free


def memory_limit() -> int:
    """Bytes of RAM of this machine, within the cgroup's limit."""
    whole = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limits = [_number(_CGROUP / file) for file in ("memory.max", "memory/memory.limit_in_bytes")]
    return min([whole, *(int(limit) for limit in limits if limit is not None)])


def _siblings(core: int) -> set[int]:
    """The numbers under which one core with several threads is known."""
    try:
        text = Path(f"/sys/devices/system/cpu/cpu{core}/topology/thread_siblings_list").read_text()
    except OSError:
        return {core}
    spans = [part.split("-") for part in text.strip().split(",")]
    return {number for span in spans for number in range(int(span[0]), int(span[-1]) + 1)}


def _quota() -> float | None:
    """Cores by cgroup: version 2, then 1."""
    try:
        most, period = (_CGROUP / "cpu.max").read_text().split()
        return None if most == "max" else float(most) / float(period)
    except (OSError, ValueError):
        pass
    most_us, period_us = _number(_CGROUP / "cpu/cpu.cfs_quota_us"), _number(_CGROUP / "cpu/cpu.cfs_period_us")
    return most_us / period_us if most_us and period_us and most_us > 0 else None


def _number(file: Path) -> float | None:
    try:
        return float(file.read_text())
    except (OSError, ValueError):
        return None


def _gpus() -> int:
    """GPUs that CUDA may see, without asking torch."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    try:
        found = len(list(Path("/proc/driver/nvidia/gpus").iterdir()))
    except OSError:
        return 0
    if visible is None:
        return found
    return min(found, len([one for one in visible.split(",") if one.strip() not in ("", "-1")]))
