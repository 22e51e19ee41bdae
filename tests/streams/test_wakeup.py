"""The wakeup: nothing is lost in its pipe, foreign bytes are an error, and whatever comes ends a wait."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

import pytest

from srl.streams.wakeup import MESSAGE, Wakeup
from tests.errors import raises


@pytest.fixture
def wakeup() -> Iterator[Wakeup]:
    made = Wakeup()
    yield made
    made.close()


def heard(wakeup: Wakeup) -> list[tuple[int, int]]:
    """Register an end; (source, number) of what reaches it."""
    messages: list[tuple[int, int]] = []
    wakeup.receiver(lambda source, kind, slot, number, value, body: messages.append((source, number)))
    return messages


def writer(wakeup: Wakeup) -> int:
    return os.open(f"/proc/self/fd/{wakeup.pipe()}", os.O_WRONLY | os.O_NONBLOCK)


def test_messages_reach_their_ends_in_order(wakeup: Wakeup) -> None:
    one, two = heard(wakeup), heard(wakeup)
    pipe = writer(wakeup)
    for number in range(500):
        os.write(pipe, MESSAGE.pack(number % 2, 1, 0, 9, number, 0))
    assert wakeup.deliver() == 500
    assert [number for _, number in one] == list(range(0, 500, 2))
    assert [number for _, number in two] == list(range(1, 500, 2))
    os.close(pipe)


@pytest.mark.parametrize("junk", [b"x", b"seven b", bytes(range(31)), b"\xff" * 50], ids=len)
def test_bytes_that_are_not_a_message_are_an_error(wakeup: Wakeup, junk: bytes) -> None:
    heard(wakeup)
    pipe = writer(wakeup)
    os.write(pipe, MESSAGE.pack(0, 1, 0, 9, 0, 0) + junk)
    with raises("W02", match="pipe"):
        wakeup.deliver()
    os.close(pipe)


def test_messages_for_nobody_are_counted(wakeup: Wakeup) -> None:
    heard(wakeup)
    pipe = writer(wakeup)
    os.write(pipe, MESSAGE.pack(7, 1, 0, 9, 0, 0))
    wakeup.forget(0)
    os.write(pipe, MESSAGE.pack(0, 1, 0, 9, 0, 0))
    wakeup.deliver()
    assert wakeup.refused == 2
    os.close(pipe)


@pytest.mark.parametrize("rest", [10.0, 0.01])  # the short one is not rounded up to whole milliseconds
def test_a_watched_descriptor_calls_back(wakeup: Wakeup, rest: float) -> None:
    reader, pipe = os.pipe()
    seen: list[bytes] = []
    wakeup.watch(reader, lambda: seen.append(os.read(reader, 10)))
    wakeup.wait(0.0001)
    assert not seen
    os.write(pipe, b"a")
    wakeup.wait(rest)
    os.write(pipe, b"b")
    wakeup.deliver()
    assert seen == [b"a", b"b"]
    assert not wakeup.outside
    wakeup.add_socket("a peer", lambda: 0)
    wakeup.remove_socket("a peer")
    assert wakeup.outside, "its next incarnation may come"
    os.close(reader)
    os.close(pipe)


def test_timers_end_a_wait_and_fire_in_order(wakeup: Wakeup) -> None:
    wakeup.pipe()
    fired: list[int] = []
    now = time.monotonic()
    wakeup.at(now + 0.02, lambda: fired.append(2))
    wakeup.at(now + 0.01, lambda: fired.append(1))
    while len(fired) < 2:
        wakeup.wait(10.0)
        wakeup.deliver()
    assert fired == [1, 2]
    assert time.monotonic() - now < 5


def test_a_wait_that_nothing_could_end_is_refused(wakeup: Wakeup) -> None:
    with pytest.raises(RuntimeError, match="nothing can end this wait"):
        wakeup.wait(None)
