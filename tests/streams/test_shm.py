"""Shared memory: refused when there is too little, mapped by anybody of this user, never torn, and gone afterwards."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from srl.core.errors import WireError
from srl.core.spec import Leaf
from srl.streams.shm import Segment
from srl.streams.transport import RETURN
from tests.contracts.rig import Rig, params
from tests.errors import raises


@pytest.fixture
def rig() -> Iterator[Rig]:
    made = Rig("shm")
    yield made
    made.close()


def test_more_memory_than_there_is_is_an_error_at_once(rig: Rig) -> None:
    with raises("E08", match="not enough memory"):
        rig.producer(record={"frames": Leaf((1 << 20, 1 << 20), "uint8")}, slots=4)


def test_memory_that_cannot_be_reserved_is_an_error_at_once() -> None:
    """The kernel says no: here by a file size limit, in life by a full /dev/shm or control group."""
    script = (
        "import resource\n"
        "from srl.core.errors import UserError\n"
        "from srl.streams.shm import Segment\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))\n"
        "try:\n    Segment.create(1 << 22, 1)\n"
        "except UserError as error:\n    print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=Path(__file__).parents[2]
    )
    assert "4.2 MB of stream buffers needed" in done.stdout


def test_memory_is_that_of_its_owner_or_refused() -> None:
    segment = Segment.create(1000, 77)
    segment.buffer[5] = 42
    pid, descriptor = os.getpid(), segment.descriptor
    again = Segment.attach(pid, descriptor, 1000, 77)
    assert again.buffer[5] == 42
    for size, owner in ((1000, 78), (999, 77)):
        with pytest.raises(WireError, match="no stream memory"):
            Segment.attach(pid, descriptor, size, owner)
    again.close()
    segment.close()
    with pytest.raises(WireError, match="no stream memory"):
        Segment.attach(pid, descriptor, 1000, 77)


def test_a_descriptor_that_is_something_else_now_is_refused() -> None:
    reader, writer = os.pipe()
    with pytest.raises(WireError, match="no stream memory"):
        Segment.attach(os.getpid(), reader, 100, 1)
    os.close(reader)
    os.close(writer)


def test_a_full_pipe_loses_no_message(rig: Rig) -> None:
    """64 kB of messages fit; the rest waits at the sender, in order, while the peer is busy."""
    producer, consumer = rig.producer(slots=4), rig.consumer()
    rig.join([producer], [consumer])
    wire = producer._by_name[consumer.name].wire  # type: ignore[attr-defined]
    for _ in range(10_000):
        wire.send(RETURN, 0, 7)  # a credit it never got
    consumer.credit(0, 0)
    assert producer.alloc() is None
    slab = rig.until(producer.alloc)
    assert slab.credit == 0
    rig.until(lambda: consumer.counts.dropped.get("hostile") == 10_000)


class Interrupted(np.ndarray[Any, Any]):
    """A copy target during whose first use the publisher comes round to the slot that is being read."""

    publisher: Any = None

    def __setitem__(self, key: Any, value: Any) -> None:
        half = len(self) // 2
        np.ndarray.__setitem__(self, slice(0, half), np.asarray(value)[:half])
        publisher, Interrupted.publisher = Interrupted.publisher, None
        if publisher is not None:
            for number in (11, 12, 13):
                publisher.publish(number, params(number))
        np.ndarray.__setitem__(self, slice(half, None), np.asarray(value)[half:])


@pytest.mark.parametrize("behind", [0, 1, 2])
def test_a_copy_that_was_overtaken_is_made_again(rig: Rig, behind: int) -> None:
    publisher, reader = rig.publisher(), rig.subscriber()
    rig.join([publisher], [reader])
    for number in range(1, 3 + behind):
        publisher.publish(number, params(number))
    assert reader.latest(-1) is not None
    publisher.publish(10, params(10))
    shared = reader._readers[0]  # type: ignore[attr-defined]
    shared._copy = [array.view(Interrupted) for array in shared._copy]
    Interrupted.publisher = publisher
    found = reader.latest(-1)
    assert Interrupted.publisher is None
    assert found is not None
    assert (found[1]["w"] == found[0]).all(), "torn"
    assert (found[1]["head"]["b"] == -found[0]).all()


def test_open_ends_cost_few_descriptors(rig: Rig) -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    for index in range(20):
        rig.producer(f"actor/{index}")
    assert len(list(Path("/proc/self/fd").iterdir())) - before <= 20 * 4
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] >= 1024
