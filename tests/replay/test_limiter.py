"""The limiter keeps its bounds whatever happens in which order, and always something can go on."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from srl.replay.limiter import Limiter

rates = st.sampled_from([0.01, 0.1, 0.25, 1.0, 3.5, 20.0])


@settings(max_examples=200, deadline=None)
@given(
    rate=rates, slab=st.integers(1, 64), warmup=st.integers(0, 200), room=st.integers(0, 100),
    moves=st.lists(st.integers(0, 4), max_size=300), data=st.data(),
)  # fmt: skip
def test_it_never_stops_for_ever_nor_leaves_its_bounds(rate, slab, warmup, room, moves, data):
    ahead = slab + room
    limiter = Limiter(updates_per_step=rate, warmup=warmup, ahead=ahead)
    flying = 0
    for move in moves:
        may_start = limiter.may_insert((flying + 1) * slab)
        assert flying or may_start or limiter.may_draw
        if move <= 1 and may_start:
            flying += 1
        elif move == 2 and flying:
            limiter.inserted += data.draw(st.integers(0, slab))  # rows that are no transitions do not count
            flying -= 1
        elif move == 3 and flying:
            flying -= 1  # an actor is gone
        elif limiter.may_draw:
            assert limiter.inserted > warmup
            limiter.drawn += 1
            assert limiter.owed > -1e-6
        assert limiter.owed < rate * ahead + 1


@settings(max_examples=100, deadline=None)
@given(rate=rates, slab=st.integers(1, 64), warmup=st.integers(0, 300))
def test_the_narrowest_bounds_hold_the_rate_over_a_long_run(rate, slab, warmup):
    limiter = Limiter(updates_per_step=rate, warmup=warmup, ahead=slab)
    for _ in range(200):
        while limiter.may_draw:
            limiter.drawn += 1
        assert limiter.may_insert(slab)
        limiter.inserted += slab
    asked = rate * (limiter.inserted - warmup)
    assert asked < 0 or limiter.drawn <= asked + 1e-6 <= limiter.drawn + rate * slab + 1.1


def test_inline_a_slab_is_followed_by_exactly_its_updates():
    limiter = Limiter(updates_per_step=1, warmup=10, ahead=4)
    updates = []
    for _ in range(6):
        limiter.inserted += 4
        drawn = limiter.drawn
        while limiter.may_draw:
            limiter.drawn += 1
        updates.append(limiter.drawn - drawn)
    assert updates == [0, 0, 2, 4, 4, 4]


def test_bounds_below_one_slab_would_stop_it():
    limiter = Limiter(updates_per_step=1, warmup=0, ahead=3)
    assert not limiter.may_insert(4) and not limiter.may_draw
