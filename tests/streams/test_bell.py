"""The bell: nothing is lost in its pipe, foreign bytes are skipped, and whatever comes ends a wait."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator

import pytest

from srl.streams.bell import MESSAGE, ProcessBell


@pytest.fixture
def bell() -> Iterator[ProcessBell]:
    made = ProcessBell()
    yield made
    made.close()


def heard(bell: ProcessBell) -> list[tuple[int, int]]:
    """Register an end; (source, number) of what reaches it."""
    messages: list[tuple[int, int]] = []
    bell.receiver(lambda source, kind, slot, number, value, body: messages.append((source, number)))
    return messages


def writer(bell: ProcessBell) -> int:
    return os.open(f"/proc/self/fd/{bell.pipe()}", os.O_WRONLY | os.O_NONBLOCK)


def test_messages_reach_their_ends_in_order(bell: ProcessBell) -> None:
    one, two = heard(bell), heard(bell)
    pipe = writer(bell)
    for number in range(500):
        os.write(pipe, MESSAGE.pack(number % 2, 1, 0, 9, number, 0))
    assert bell.deliver() == 500
    assert [number for _, number in one] == list(range(0, 500, 2))
    assert [number for _, number in two] == list(range(1, 500, 2))
    os.close(pipe)


@pytest.mark.parametrize("junk", [b"x", b"seven b", os.urandom(31), b"\xff" * 50])
def test_foreign_bytes_are_counted_and_the_messages_around_them_are_found(bell: ProcessBell, junk: bytes) -> None:
    messages = heard(bell)
    pipe = writer(bell)
    for number in range(3):
        os.write(pipe, MESSAGE.pack(0, 1, 0, 9, number, 0))
    os.write(pipe, junk)
    for number in range(3, 6):
        os.write(pipe, MESSAGE.pack(0, 1, 0, 9, number, 0))
    bell.deliver()
    assert [number for _, number in messages if _ == 9] == list(range(6))
    assert bell.refused >= 1
    os.write(pipe, MESSAGE.pack(0, 1, 0, 9, 6, 0))
    bell.deliver()
    assert messages[-1] == (9, 6)
    os.close(pipe)


def test_messages_for_nobody_are_counted(bell: ProcessBell) -> None:
    heard(bell)
    pipe = writer(bell)
    os.write(pipe, MESSAGE.pack(7, 1, 0, 9, 0, 0))
    bell.forget(0)
    os.write(pipe, MESSAGE.pack(0, 1, 0, 9, 0, 0))
    bell.deliver()
    assert bell.refused == 2
    os.close(pipe)


def test_a_ring_from_another_thread_ends_the_wait(bell: ProcessBell) -> None:
    bell.pipe()
    thread = threading.Timer(0.05, bell.ring)
    thread.start()
    start = time.monotonic()
    bell.wait(10.0)
    thread.join()
    assert time.monotonic() - start < 5
    assert bell.deliver() == 1


def test_a_full_pipe_still_rings(bell: ProcessBell) -> None:
    for _ in range(5000):
        bell.ring()
    bell.wait(10.0)
    assert bell.deliver() > 100


@pytest.mark.parametrize("rest", [10.0, 0.01])  # the short one is not rounded up to whole milliseconds
def test_a_watched_descriptor_calls_back(bell: ProcessBell, rest: float) -> None:
    reader, pipe = os.pipe()
    seen: list[bytes] = []
    bell.watch(reader, lambda: seen.append(os.read(reader, 10)))
    bell.wait(0.0001)
    assert not seen
    os.write(pipe, b"a")
    bell.wait(rest)
    os.write(pipe, b"b")
    bell.deliver()
    assert seen == [b"a", b"b"]
    assert not bell.outside
    bell.unwatch(reader)
    os.close(reader)
    os.close(pipe)


def test_timers_end_a_wait_and_fire_in_order(bell: ProcessBell) -> None:
    bell.pipe()
    fired: list[int] = []
    now = time.monotonic()
    bell.at(now + 0.02, lambda: fired.append(2))
    bell.at(now + 0.01, lambda: fired.append(1))
    while len(fired) < 2:
        bell.wait(10.0)
        bell.deliver()
    assert fired == [1, 2]
    assert time.monotonic() - now < 5


def test_a_wait_that_nothing_could_end_is_refused(bell: ProcessBell) -> None:
    with pytest.raises(RuntimeError, match="for ever"):
        bell.wait(None)
