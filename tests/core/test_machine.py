"""What a machine has: affinity and quotas counted."""

import os

import pytest

from srl.core import machine
from srl.core.machine import TwoCores


def test_affinity_counts():
    before = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(before)})
        assert machine.usable_cores() == 1
    finally:
        os.sched_setaffinity(0, before)


@pytest.mark.parametrize(
    ("files", "cores"),
    [
        ({"cpu.max": "max 100000"}, 8),
        ({"cpu.max": "150000 100000"}, 2),
        ({"cpu.max": "20000 100000"}, 1),
        ({"cpu/cpu.cfs_quota_us": "300000", "cpu/cpu.cfs_period_us": "100000"}, 3),
        ({"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, 8),
        ({}, 8),
    ],
)
def test_the_cgroup_quota_counts(tmp_path, monkeypatch, files, cores):
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text + "\n")
    monkeypatch.setattr(machine, "_CGROUP", tmp_path)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))
    assert machine.usable_cores() == cores


def test_gpus_that_cuda_may_not_see_do_not_count(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert machine.Machine.here().gpus == 0


def test_two_pairs_of_processes_never_have_the_same_core() -> None:
    usable = os.sched_getaffinity(0)
    one, other = TwoCores(), TwoCores()
    assert one.cores is None or (len(set(one.cores)) == 2 and set(one.cores) <= usable)
    assert one.cores is None or other.cores is None or not set(one.cores) & set(other.cores)
    for pair in (one, one, other):
        pair.close()
        assert pair.cores is None
