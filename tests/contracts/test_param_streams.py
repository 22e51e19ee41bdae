"""Param streams on every transport: the newest version wins."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from srl.streams.base import version
from tests.contracts.rig import Rig, params
from tests.errors import raises


def test_the_newest_version_wins_and_old_ones_never_come_back(rig: Rig) -> None:
    publisher, readers = rig.publisher(), [rig.subscriber(f"policy/{i}") for i in range(2)]
    rig.join([publisher], readers)
    assert all(reader.latest(-1) is None for reader in readers)
    for number in range(1, 40):
        publisher.publish(version(1, number), params(number))
    for reader in readers:
        seen = -1

        def newest(reader: Any = reader) -> bool:
            nonlocal seen
            found = reader.latest(seen)
            if found is not None:
                assert found[0] > seen
                seen, tree = found
                assert (tree["w"] == seen % (1 << 40)).all()
                assert (tree["head"]["b"] == -(seen % (1 << 40))).all()
            return seen == version(1, 39)

        rig.until(newest)
        assert reader.latest(seen) is None


def test_what_a_subscriber_holds_does_not_change_under_it(rig: Rig) -> None:
    publisher, reader = rig.publisher(), rig.subscriber()
    rig.join([publisher], [reader])
    publisher.publish(1, params(1))
    held = rig.until(lambda: reader.latest(0))[1]
    for number in range(2, 9):
        publisher.publish(number, params(number))
    rig.settle()
    assert (held["w"] == 1).all()


def test_a_late_subscriber_gets_the_newest_and_a_new_epoch_wins(rig: Rig) -> None:
    publisher = rig.publisher()
    publisher.publish(version(1, 50), params(50))
    reader = rig.subscriber()
    rig.join([publisher], [reader])
    assert rig.until(lambda: reader.latest(-1))[0] == version(1, 50)
    publisher.publish(version(1, 51), params(51))
    rig.settle()
    reader.detach(publisher.name, "died")
    restarted = rig.publisher()
    rig.join([restarted], [reader])
    restarted.publish(version(2, 40), params(40))
    assert rig.until(lambda: (found := reader.latest(version(1, 51))) and found[0] == version(2, 40))


def test_versions_only_grow(rig: Rig) -> None:
    publisher = rig.publisher()
    publisher.publish(5, params(5))
    with pytest.raises(ValueError, match="grow"):
        publisher.publish(5, params(5))
    with raises("W01", match="w"):
        publisher.publish(6, {"w": np.zeros(3, np.float32), "head": {"b": np.zeros(3, np.float32)}})


def test_a_quiet_subscriber_is_not_woken_and_finds_the_newest_when_it_looks(rig: Rig) -> None:
    publisher = rig.publisher()
    reader, loud = rig.open(rig.spec("param"), "subscriber", "viewer/0", quiet=1), rig.subscriber()
    rig.join([publisher], [reader, loud])
    rig.settle()
    for number in range(1, 20):
        publisher.publish(number, params(number))
    if rig.via == "shm":
        assert rig.wakeups[1].deliver() == 0 < rig.wakeups[2].deliver()
    assert rig.until(lambda: (found := reader.latest(-1)) and (found[1]["w"] == 19).all())


def test_a_quiet_subscriber_is_woken_once_by_the_version_that_it_asked_for(rig: Rig) -> None:
    publisher = rig.publisher()
    reader = rig.open(rig.spec("param"), "subscriber", "policy/0", quiet=1)
    rig.join([publisher], [reader])
    publisher.publish(1, params(1))
    assert rig.until(lambda: reader.latest(-1))
    reader.wake_for(1)
    rig.settle()
    publisher.publish(2, params(2))
    assert rig.until(lambda: (found := reader.latest(1)) and found[0] == 2)
    if rig.via != "shm":
        return
    rig.settle()
    publisher.publish(3, params(3))
    assert rig.wakeups[1].deliver() == 0, "it has not asked again"
    reader.wake_for(2)
    rig.wakeups[0].deliver()
    assert rig.wakeups[1].deliver() == 1, "what is there already wakes it at once"
    reader.wake_for(3)
    reader.wake_for(3)
    assert rig.wakeups[0].deliver() == 1, "one question"
    reader.detach(publisher.name, "died")
    restarted = rig.publisher()
    rig.join([restarted], [reader])
    reader.wake_for(3)
    rig.settle()
    restarted.publish(4, params(4))
    assert rig.wakeups[1].deliver() == 1, "a new publisher was asked again"
