"""Versions of parameters that one side writes while the other one reads."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import torch
from torch import nn

from srl.api.flat import flatten
from srl.learners.shared import Memory
from srl.learners.slots import Slots, joined

SIZE = 4_096
WRITER = """
import sys, os, torch
from srl.learners.shared import Memory
from srl.learners.slots import Slots
torch.set_num_threads(1)
descriptor, size, count = map(int, sys.argv[1:])
memory = Memory(descriptor, size)
vector = torch.zeros({size})
slots = Slots(memory.words[:2], [memory.like([vector]) for _ in range(2)])
version = 1
while not memory.words[8]:
    slots.write(version, [vector.fill_(version)])
    version += 1
"""


def torn(reads: int) -> tuple[int, int]:
    """(reads that were a mixture, versions that were seen) while another process writes as fast as it can."""
    vector = torch.zeros(SIZE)
    memory = Memory.create([4 * SIZE] * 2)
    slots = Slots(memory.words[:2], [memory.like([vector]) for _ in range(2)])
    os.set_inheritable(memory.descriptor, True)
    command = [sys.executable, "-c", WRITER.format(size=SIZE), str(memory.descriptor), str(memory.size), "0"]
    with subprocess.Popen(command, pass_fds=(memory.descriptor,)) as writer:
        while slots.version < 100 and writer.poll() is None:
            os.sched_yield()
        mixed, seen, last = 0, 0, 0
        for _ in range(reads):
            version = slots.read(2**62, [vector])
            low, high = torch.aminmax(vector)
            mixed += not (float(low) == float(high) == version % 2**24 or version >= 2**24)
            seen += version != last
            assert version >= last
            last = version
        memory.words[8] = 1
    assert writer.returncode == 0
    return mixed, seen


def test_no_read_is_a_mixture_of_two_versions() -> None:
    mixed, seen = torn(20_000)
    assert mixed == 0 and seen > 10


@pytest.mark.long
def test_no_read_of_a_million_is_a_mixture() -> None:
    mixed, seen = torn(1_000_000)
    assert mixed == 0 and seen > 1_000


def test_an_earlier_version_stays_until_the_next_but_one() -> None:
    vector = torch.zeros(3)
    words = [-1, -1]
    slots = Slots(words, [[torch.zeros(3)], [torch.zeros(3)]])
    for version in range(4):
        slots.write(version, [torch.full((3,), float(version))])
    assert slots.version == 3
    assert slots.read(2, [vector]) == 2 and vector.tolist() == [2.0] * 3
    assert slots.read(9, [vector]) == 3 and vector.tolist() == [3.0] * 3


def test_parameters_that_lie_side_by_side_cross_as_one() -> None:
    net, other = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2)), nn.Parameter(torch.ones(()))
    assert len(joined([net, other])) == 5
    flatten(list(net.parameters()))
    whole, alone = joined([net, other])
    assert (whole.shape, alone.shape) == ((3 * 4 + 4 + 4 * 2 + 2,), (1,))
    whole.fill_(7.0)
    assert all((one == 7.0).all() for one in net.parameters())


def test_there_is_no_version_before_the_first_is_written() -> None:
    memory = Memory.create([4 * SIZE] * 2)
    slots = Slots(memory.words[:2], [memory.like([torch.zeros(SIZE)]) for _ in range(2)])
    assert slots.version == -1
    slots.write(0, [torch.ones(SIZE)])
    assert slots.version == slots.read(5, [torch.zeros(SIZE)]) == 0
