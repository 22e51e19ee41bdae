"""The limiter keeps its bounds whatever happens in which order, and always something can go on."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from srl.replay.limiter import Limiter
from tests.errors import raises

ratios = st.sampled_from([0.01, 0.25, 1.0, 3.5, 256.0])


@settings(max_examples=200, deadline=None)
@given(
    ratio=ratios, slab=st.integers(1, 64), batch=st.integers(1, 512), warmup=st.integers(0, 200), low=st.floats(-1000, 1000),
    room=st.floats(0, 500), late=st.integers(0, 100), moves=st.lists(st.integers(0, 5), max_size=200), data=st.data(),
)  # fmt: skip
def test_it_never_stops_for_ever_nor_leaves_its_bounds(ratio, slab, batch, warmup, low, room, late, moves, data):
    high = max(low + ratio * slab + batch + room, ratio * slab)
    limiter = Limiter(ratio=ratio, slab=slab, batch=batch, warmup=warmup, low=low, high=high)
    flying = 0
    """`late`: rows before the first window is complete."""
    for move in moves:
        assert flying or limiter.may_grant() or limiter.may_draw()
        if move <= 1 and limiter.may_grant():
            limiter.grant()
            flying += 1
        elif move == 2 and flying:
            rows = data.draw(st.integers(0, slab))
            limiter.insert(rows, int(limiter.inserted + rows > late))
            flying -= 1
        elif move == 3 and flying:
            limiter.lose()
            flying -= 1
        elif limiter.may_draw():
            limiter.draw()
            assert limiter.inserted >= max(warmup, late)
            assert limiter.debt >= low
        assert limiter.debt <= high
        assert limiter.granted == flying * slab
        assert limiter.warmup <= max(warmup, late)


@settings(max_examples=100, deadline=None)
@given(ratio=ratios, slab=st.integers(1, 64), batch=st.integers(1, 512), warmup=st.integers(0, 300))
def test_the_narrowest_bounds_hold_the_ratio_over_a_long_run(ratio, slab, batch, warmup):
    limiter = Limiter(ratio=ratio, slab=slab, batch=batch, warmup=warmup)
    for _ in range(400):
        while limiter.may_draw():
            limiter.draw()
        assert limiter.may_grant()
        limiter.grant()
        limiter.insert(slab, 1)
    asked = ratio * (limiter.inserted - warmup)
    assert asked < 0 or limiter.sampled <= asked <= limiter.sampled + limiter.high


def test_inline_a_slab_is_followed_by_exactly_its_updates():
    limiter = Limiter(ratio=256.0, slab=4, batch=256, warmup=10)
    updates = []
    for _ in range(6):
        limiter.grant()
        limiter.insert(4, 1)
        drawn = 0
        while limiter.may_draw():
            limiter.draw()
            drawn += 1
        updates.append(drawn)
    assert updates == [0, 0, 2, 4, 4, 4]


@pytest.mark.parametrize(("low", "high"), [(0.0, 300.0), (-5000.0, 100.0)])
def test_bounds_in_which_it_would_stop_are_refused(low, high):
    with raises("E03", "high"):
        Limiter(ratio=256.0, slab=1, batch=256, warmup=0, low=low, high=high)
