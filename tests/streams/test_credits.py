"""The credit rule against a model that is slow and obvious."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from srl.streams.credits import Credits


class Model:
    """All credits there ever were, in a list; nothing is optimised."""

    def __init__(self, batch: int, staleness: int) -> None:
        self.batch, self.staleness, self.updates = batch, staleness, 0
        self.issued: list[int] = []
        self.arrived: set[int] = set()

    def issue(self) -> list[tuple[int, int]]:
        new = []
        number = len(self.issued)
        while number // self.batch - self.staleness <= self.updates:
            self.issued.append(number)
            new.append((number, max(0, number // self.batch - self.staleness)))
            number += 1
        return new

    def ready(self) -> bool:
        return all(self.updates * self.batch + i in self.arrived for i in range(self.batch))


@settings(max_examples=150, deadline=None)
@given(st.integers(1, 6), st.integers(0, 4), st.data())
def test_any_order_of_arrival_trains_and_never_exceeds_the_staleness(batch: int, staleness: int, data: st.DataObject) -> None:
    credits, model = Credits(batch, staleness), Model(batch, staleness)
    flying: dict[int, int] = {}
    cells: dict[int, int] = {}
    while model.updates < 12:
        issued = credits.issue(model.updates)
        assert [tuple(credit) for credit in issued] == model.issue()
        for number, min_updates in issued:
            assert min_updates <= model.updates, "a credit asks for a version that nobody has yet"
            flying[number] = model.updates
        while not model.ready():
            assert flying, "a deadlock: the batch is not full and nothing is on its way"
            number = data.draw(st.sampled_from(sorted(flying)))
            assert number // batch - flying.pop(number) <= staleness
            assert credits.arrived(number)
            assert not credits.arrived(number), "the same slab twice"
            assert cells.setdefault(credits.cell(number), number) == number, "a cell that is still needed was given again"
            model.arrived.add(number)
        assert credits.ready(model.updates)
        assert not credits.ready(model.updates + staleness + 1)
        cells = {cell: number for cell, number in cells.items() if number // batch != model.updates}
        model.updates += 1


def test_a_restart_voids_what_was_on_its_way_and_asks_for_versions_of_the_new_epoch_only() -> None:
    credits = Credits(2, 1)
    old = credits.issue(0)
    credits.restart(7)
    assert not any(credits.arrived(credit.number) for credit in old)
    assert [tuple(credit) for credit in credits.issue(7)] == [(14, 7), (15, 7), (16, 7), (17, 7)]
    assert [tuple(credit) for credit in credits.issue(8)] == [(18, 8), (19, 8)]


def test_a_barrier_gives_back_exactly_the_credits_whose_slabs_had_arrived() -> None:
    credits = Credits(2, 1)
    credits.issue(0)
    assert credits.arrived(0) and credits.arrived(3)
    assert [credit.number for credit in credits.forget()] == [0, 3]
    assert credits.arrived(0)


def test_updates_cannot_go_back_without_a_restart() -> None:
    credits = Credits(1, 0)
    credits.issue(3)
    with pytest.raises(ValueError, match="restart"):
        credits.issue(2)


@pytest.mark.parametrize(("batch", "staleness"), [(0, 0), (1, -1)])
def test_impossible_sizes_are_refused(batch: int, staleness: int) -> None:
    with pytest.raises(ValueError, match="at least"):
        Credits(batch, staleness)
