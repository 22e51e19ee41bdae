"""A modest worker takes what nobody wants, and of what others want a small part."""

from __future__ import annotations

import pytest

from srl.workers import modest as module
from srl.workers.modest import Modest


class Core:
    """A core on which this worker gets a part of the time while others want it too."""

    def __init__(self, part: float) -> None:
        self.part = part
        self.now = self.used = 0.0

    def monotonic(self) -> float:
        return self.now

    def process_time(self) -> float:
        return self.used

    def work(self, seconds: float) -> None:
        self.used += seconds
        self.now += seconds / self.part


def part_used(core: Core, modest: Modest, seconds: float, piece: float = 0.003) -> float:
    begun, used = core.now, core.used
    while core.now < begun + seconds:
        if modest.begin():
            core.work(piece)
            modest.end()
        else:
            core.now = modest.rests_until
    return (core.used - used) / (core.now - begun)


@pytest.mark.parametrize("share", [0.02, 0.1])
@pytest.mark.parametrize("part", [0.05, 0.3, 0.5])
def test_of_a_core_that_others_want_it_takes_its_share(part: float, share: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "time", core := Core(part))
    assert part_used(core, Modest(share), 60.0) == pytest.approx(min(part, share), rel=0.1)


def test_of_a_core_that_nobody_wants_it_takes_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "time", core := Core(0.98))
    assert part_used(core, Modest(0.02), 10.0) == pytest.approx(0.98)


def test_it_notices_when_others_come_and_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "time", core := Core(1.0))
    modest = Modest(0.05)
    assert part_used(core, modest, 5.0) > 0.95
    core.part = 0.4
    assert part_used(core, modest, 60.0) < 0.06 and not modest.alone
    core.part = 1.0
    assert part_used(core, modest, 20.0) > 0.9 and modest.alone
