"""Param streams on every transport: the newest version wins, kept ones can be fetched."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from srl.core.errors import UserError
from srl.streams.base import version
from srl.streams.param import HISTORY
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


@pytest.mark.parametrize(
    ("selector", "expected"),
    [("latest-0", 20), ("latest-3", 14), ("latest-99", 2), ("uniform:0.0", 2), ("uniform:0.999", 20), ("=8", 8)],
)
def test_kept_versions_can_be_fetched(rig: Rig, selector: str, expected: int) -> None:
    publisher, reader = rig.publisher(), rig.subscriber()
    rig.join([publisher], [reader])
    for number in range(1, 21):
        publisher.publish(number, params(number), keep=number % 2 == 0)
    found, tree = rig.until(lambda: reader.fetch(selector))
    assert found == expected
    assert (tree["w"] == expected).all()
    publisher.publish(21, params(21))
    assert (tree["w"] == expected).all()
    assert rig.until(lambda: reader.fetch(selector))[0] == expected, "it can be fetched again"


def test_a_fetch_waits_until_something_was_kept_and_history_is_bounded(rig: Rig) -> None:
    publisher, reader = rig.publisher(), rig.subscriber()
    rig.join([publisher], [reader])
    publisher.publish(1, params(1))
    assert reader.fetch("latest-1") is None
    rig.settle()
    assert reader.fetch("latest-1") is None
    for number in range(2, 102):
        publisher.publish(number, params(number), keep=True)
    assert rig.until(lambda: reader.fetch("latest-1"))[0] >= 2
    assert rig.until(lambda: reader.fetch("uniform:0.0"))[0] == 2, "the oldest stays"
    assert rig.until(lambda: len(reader.kept) == HISTORY and reader.kept[-1] == 101)
    assert reader.fetch("=3") is None
    rig.settle()
    assert reader.fetch("=3") is None


def test_a_subscriber_hears_which_versions_are_kept_however_late_it_comes(rig: Rig) -> None:
    publisher, early = rig.publisher(), rig.subscriber("policy/0")
    rig.join([publisher], [early])
    assert early.kept == ()
    for number in range(1, 7):
        publisher.publish(number, params(number), keep=number % 2 == 0)
    late = rig.subscriber("policy/1")
    rig.join([publisher], [late])
    for reader in (early, late):
        assert rig.until(lambda reader=reader: reader.kept == (2, 4, 6))
    for number in range(7, 7 + 63):
        publisher.publish(number, params(number), keep=True)
    for reader in (early, late):
        # 7 and 9 stood closest to their neighbours when there was no room
        assert rig.until(lambda reader=reader: reader.kept == (2, 4, 6, 8, *range(10, 70))), (
            "what the publisher forgets is forgotten"
        )
        assert rig.until(lambda reader=reader: reader.fetch("=6"))[0] == 6
    early.detach(publisher.name, "died")
    assert early.kept == ()


@pytest.mark.parametrize("selector", ["latest", "uniform:1.5", "=x", "best"])
def test_an_unknown_selector_is_refused(rig: Rig, selector: str) -> None:
    publisher, reader = rig.publisher(), rig.subscriber()
    rig.join([publisher], [reader])
    with pytest.raises(UserError, match="latest-<n>"):
        reader.fetch(selector)
