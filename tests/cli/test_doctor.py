"""What `srl doctor` says about machines with troubles, and about this one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from srl.__main__ import main as verbs
from srl.cli import doctor
from srl.cli.doctor import GB, Trouble

HERE = Path("/home/me/project")
MOUNTS = "/dev/sda1 / ext4 rw 0 0\nserver:/home /home nfs4 rw 0 0\ntmpfs /tmp tmpfs rw 0 0\n"


def without(name: str) -> str | None:
    return None


@pytest.mark.parametrize(
    ("found", "words", "serious"),
    [
        (doctor.memory(GB // 2), "500 MB of memory", False),
        (doctor.memory(GB // 10), "100 MB of memory", True),
        (doctor.cores(4, 64, 0.5), "only 4 of 64 cores", False),
        (doctor.cores(4, 4, 9.0), "load 9.0 on 4", False),
        (doctor.threads({"OMP_NUM_THREADS": "64"}, 8), "OMP_NUM_THREADS=64", False),
        (doctor.files(512), "512 files", False),
        (doctor.files(64), "64 files", True),
        (doctor.processes(100), "100 processes", False),
        (doctor.file_system(HERE, MOUNTS), "network file system (nfs4)", False),
        (doctor.shared_folder(2, 64_000_000), "/dev/shm has 64.0 MB", False),
        (doctor.clock(1_000_000.0, 1_000_000.0 + 86400 * 3), "3.0 days in the future", False),
        (doctor.cuda(2, "2.13.0+cpu", []), "cannot use the 2 GPUs", False),
        (doctor.cuda(1, "2.13.0", ["nvidia-cublas-cu12", "nvidia-cudnn-cu13"]), "CUDA 12 and 13", False),
        (doctor.pictures({"MUJOCO_GL": "glfw"}, True, str), "needs a display", False),
        (doctor.pictures({}, True, without), "no EGL or OSMesa library", False),
        (doctor.disk(Path("/"), GB // 100), "10.0 MB is free", True),
    ],
)
def test_a_trouble_is_named_with_what_to_do(found: Trouble | None, words: str, serious: bool) -> None:
    assert found is not None and words in found.what and found.serious is serious
    assert len(found.hint) > 10


@pytest.mark.parametrize(
    "found",
    [
        doctor.memory(8 * GB), doctor.cores(8, 8, 7.0), doctor.threads({"OMP_NUM_THREADS": "1"}, 8), doctor.files(1024),
        doctor.files(-1), doctor.processes(-1), doctor.file_system(Path("/work"), MOUNTS), doctor.shared_folder(0, 64_000_000),
        doctor.clock(2e9, 1e9), doctor.cuda(0, "2.13.0+cpu", ["nvidia-cublas-cu12"]), doctor.pictures({}, True, str),
        doctor.pictures({"DISPLAY": ":0"}, True, without), doctor.pictures({}, False, without), doctor.kernel(), doctor.ports(),
        doctor.packages(),
    ],
)  # fmt: skip
def test_what_is_well_is_not_named(found: Trouble | None) -> None:
    assert found is None


def test_a_serious_trouble_gives_an_exit_code(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setattr(doctor, "memory", lambda free: Trouble("no memory is free", "more of it", True))
    assert verbs(["doctor"]) == 2
    said = capsys.readouterr().out
    assert "problem: no memory is free\n  try: more of it\n" in said and said.endswith("1 problem\n")
