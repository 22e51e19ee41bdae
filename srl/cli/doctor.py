"""`srl doctor`: what the machine has, and the usual troubles in words, with what to do."""

from __future__ import annotations

import ctypes.util
import importlib.util
import os
import re
import resource
import shutil
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from srl.cli.parsing import Parser
from srl.core.machine import Machine, version_of
from srl.core.text import aligned, count, size
from srl.core.threads import VARIABLES

_NEEDED = ("numpy", "torch", "gymnasium", "zmq", "msgpack", "yaml", "grpc", "safetensors", "rich")
_EXTRAS = {
    "mujoco": "MuJoCo tasks",
    "imageio_ffmpeg": "videos as mp4",
    "lz4": "compressed streams",
    "pettingzoo": "PettingZoo envs",
    "cryptography": "several hosts",
    "onnxruntime": "export to ONNX",
}
GB = 10**9
_REMOTE = ("nfs", "nfs4", "cifs", "smb3", "9p", "fuse.sshfs", "lustre", "beegfs", "gpfs")


@dataclass(frozen=True, slots=True)
class Trouble:
    """Something that stops runs (`serious`), or slows them or some of them."""

    what: str
    hint: str
    serious: bool = False


def doctor(argv: list[str]) -> int:
    """Print what the machine and the installation have, then the troubles. Exit code 2 if one of them stops runs."""
    Parser(prog="srl doctor", description="look for common problems of the machine and the installation").parse_args(argv)
    from srl.store.run_folder import describe_machine

    machine = Machine.here()
    facts = dict(describe_machine())
    facts["usable cores"] = f"{machine.cores} (after CPU affinity and cgroup quota)"
    facts["GPUs"] = str(machine.gpus)
    facts["free for streams"] = size(machine.shared_free)
    facts["free on disk"] = size(shutil.disk_usage(Path.cwd()).free)
    for name, use in _EXTRAS.items():
        facts[use] = f"{name} is installed" if _has(name) else f"not available: {name} is not installed"
    print(aligned(facts.items()))
    found = list(troubles(machine))
    for trouble in found:
        print(f"{'problem' if trouble.serious else 'note'}: {trouble.what}\n  try: {trouble.hint}")
    serious = sum(trouble.serious for trouble in found)
    print(count(serious, "problem") if serious else "OK" + (f", {count(len(found), 'note')}" if found else ""))
    return 2 if serious else 0


def troubles(machine: Machine) -> Iterator[Trouble]:
    """All that are found here."""
    here = Path.cwd()
    checks: list[Callable[[], Trouble | None]] = [
        packages,
        kernel,
        lambda: memory(machine.shared_free),
        lambda: cores(machine.cores, os.cpu_count() or 1, os.getloadavg()[0]),
        lambda: threads(os.environ, machine.cores),
        lambda: files(resource.getrlimit(resource.RLIMIT_NOFILE)[0]),
        lambda: processes(resource.getrlimit(resource.RLIMIT_NPROC)[0]),
        lambda: disk(here, shutil.disk_usage(here).free),
        lambda: file_system(here, Path("/proc/mounts").read_text()),
        lambda: shared_folder(machine.gpus, shutil.disk_usage("/dev/shm").total if Path("/dev/shm").is_dir() else 0),
        ports,
        lambda: clock(time.time(), Path(__file__).stat().st_mtime),
        lambda: cuda(machine.gpus, version_of("torch"), _nvidia_packages()),
        lambda: pictures(os.environ, _has("mujoco"), ctypes.util.find_library),
    ]
    return (trouble for check in checks if (trouble := check()) is not None)


def packages() -> Trouble | None:
    """Something required is missing."""
    missing = [name for name in _NEEDED if not _has(name)]
    return Trouble(f"{', '.join(missing)} is not installed", "pip install really-scalable-rl", True) if missing else None


def kernel() -> Trouble | None:
    """Streams lie in memory without a file, which old kernels and some sandboxes do not have."""
    try:
        os.close(os.memfd_create("srl-doctor", os.MFD_CLOEXEC))
    except (AttributeError, OSError) as error:
        return Trouble(f"processes cannot share memory: {error}", "mode=inline, or Linux 3.17 or newer", True)
    version = re.match(r"(\d+)\.(\d+)", os.uname().release)
    if version is not None and (int(version[1]), int(version[2])) < (4, 18):
        return Trouble(f"the kernel is old: {os.uname().release}", "a system from 2019 or later; older ones have not been tested")
    return None


def memory(free: int) -> Trouble | None:
    """RAM within the limit of the container."""
    if free < GB:
        hint = "end other programs, give the container more memory, or make runs smaller: sampling.envs, replay.size"
        return Trouble(f"only {size(free)} of memory is free", hint, free < GB // 4)
    return None


def cores(usable: int, there: int, load: float) -> Trouble | None:
    """Fewer cores than the machine has, or cores that others use."""
    if load > 1.5 * usable:
        return Trouble(f"other programs keep the cores busy: load {load:.1f} on {usable}", "wait for them; rates will be low")
    if usable < there:
        hint = "taskset, the container's cpu limit, or cpus-per-task of the scheduler, if this is not on purpose"
        return Trouble(f"only {usable} of {there} cores may be used: affinity or quota", hint)
    return None


def threads(variables: Mapping[str, str], usable: int) -> Trouble | None:
    """Variables that give numeric libraries more threads than there are cores."""
    high = [
        f"{name}={variables[name]}" for name in VARIABLES if variables.get(name, "").isdigit() and int(variables[name]) > usable
    ]
    if high:
        return Trouble(f"{', '.join(high)}: more threads than cores ({usable})", f"unset {high[0].partition('=')[0]}")
    return None


def files(limit: int) -> Trouble | None:
    """Each worker takes about ten open files in the process that starts it, and each stream some more."""
    if 0 <= limit < 1024:
        return Trouble(f"a process may open only {limit} files", "ulimit -n 4096, in the shell that starts the run", limit < 256)
    return None


def processes(limit: int) -> Trouble | None:
    """Threads count too."""
    if 0 <= limit < 512:
        return Trouble(f"this user may have only {limit} processes and threads", "ulimit -u 4096, or fewer sampling.workers")
    return None


def disk(folder: Path, free: int) -> Trouble | None:
    """Checkpoints and logs need room."""
    if not os.access(folder, os.W_OK):
        return Trouble(f"{folder} cannot be written to, so no run can start here", "--runs DIR, or another folder", True)
    if free < GB:
        return Trouble(f"only {size(free)} is free on the disk of {folder}", "free some space, or --runs DIR", free < GB // 20)
    return None


def file_system(folder: Path, mounts: str) -> Trouble | None:
    """Locks and small writes over a network are slow, and not everywhere reliable."""
    rows = [line.split() for line in mounts.splitlines()]
    above = [(len(row[1]), row[2]) for row in rows if len(row) > 2 and folder.is_relative_to(row[1])]
    kind = max(above, default=(0, ""))[1]
    if kind in _REMOTE:
        return Trouble(f"{folder} is on a network file system ({kind})", "--runs DIR on a disk of this machine")
    return None


def shared_folder(gpus: int, room: int) -> Trouble | None:
    """Streams do not use it, but NCCL does, which several GPUs talk through; containers give it 64 MB."""
    if gpus > 1 and room < GB:
        return Trouble(f"/dev/shm has {size(room)}, too little for {gpus} GPUs", "docker run --shm-size=2g, or --ipc=host")
    return None


def ports() -> Trouble | None:
    """Sockets between processes of this machine."""
    try:
        with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname(), timeout=5):
            return None
    except OSError as error:
        hint = "ip link set lo up, or the rules of the firewall for 127.0.0.1"
        return Trouble(f"this machine cannot connect to itself: {error}", hint, True)


def clock(now: float, written: float) -> Trouble | None:
    """Certificates between hosts are valid from the present on."""
    if now < written - 60:
        days = (written - now) / 86400
        return Trouble(
            f"the clock is behind: this package was installed {days:.1f} days in the future", "timedatectl set-ntp true"
        )
    return None


def cuda(gpus: int, torch: str, packages: list[str]) -> Trouble | None:
    """A build of torch without CUDA where there are GPUs, or libraries of two versions of CUDA."""
    if gpus and "+cpu" in torch:
        return Trouble(
            f"torch {torch} cannot use the {count(gpus, 'GPU')}", "install the CUDA build: pip install --force-reinstall torch"
        )
    majors = sorted({found[1] for name in packages if (found := re.search(r"-cu(\d+)$", name))})
    if len(majors) > 1:
        return Trouble(
            f"libraries of CUDA {' and '.join(majors)} are installed together", "a new virtual environment with one torch"
        )
    return None


def pictures(variables: Mapping[str, str], mujoco: bool, library: Callable[[str], str | None]) -> Trouble | None:
    """MuJoCo draws films and camera observations by a GL library."""
    display = bool(variables.get("DISPLAY") or variables.get("WAYLAND_DISPLAY"))
    wanted = variables.get("MUJOCO_GL", "")
    if not mujoco or (display and wanted in ("", "glfw")):
        return None
    if wanted == "glfw":
        return Trouble("MUJOCO_GL=glfw needs a display, and there is none", "unset MUJOCO_GL, or MUJOCO_GL=egl")
    libraries = {"egl": "EGL", "osmesa": "OSMesa"}
    tried = [libraries[wanted]] if wanted in libraries else list(libraries.values())
    if not any(library(name) for name in tried):
        hint = "apt install libegl1 libgl1, or libosmesa6"
        return Trouble(f"MuJoCo cannot render: no {' or '.join(tried)} library is found", hint)
    return None


def _nvidia_packages() -> list[str]:
    from importlib import metadata  # slow to import

    return [name for one in metadata.distributions() if (name := one.metadata["Name"] or "").startswith("nvidia-")]


def _has(name: str) -> bool:
    return importlib.util.find_spec(name) is not None
