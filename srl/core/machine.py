"""What this machine has for us: usable cores, GPUs, free memory. Nothing heavy is imported."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

_CGROUP = Path("/sys/fs/cgroup")


@dataclass(frozen=True, slots=True)
class Machine:
    """The resources that a run may use."""

    cores: int
    gpus: int
    shared_free: int
    """Bytes that shared memory may still take: all of RAM, as it has no file."""
    cpu: str = ""

    @classmethod
    def here(cls) -> Machine:
        """This machine, now."""
        return cls(usable_cores(), _gpus(), memory_free(), _cpu_name())


def usable_cores() -> int:
    """Cores that affinity and the cgroup quota leave us; `os.cpu_count` knows neither."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = _quota()
    return max(1, cores if quota is None else min(cores, int(quota + 0.5)))


def memory_free() -> int:
    """Bytes of RAM that are available, within the cgroup's limit."""
    free = _meminfo("MemAvailable") or os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES")
    limits = [(_CGROUP / "memory.max", _CGROUP / "memory.current"), _CGROUP_V1_MEMORY]
    for limit, used in limits:
        most, now = _number(limit), _number(used)
        if most is not None and now is not None and most < 1 << 60:
            free = min(free, max(0, int(most - now)))
    return free


_CGROUP_V1_MEMORY = (_CGROUP / "memory/memory.limit_in_bytes", _CGROUP / "memory/memory.usage_in_bytes")


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


def _meminfo(name: str) -> int | None:
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith(f"{name}:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
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


def _cpu_name() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return "cpu"
