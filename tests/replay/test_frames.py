"""Frame stacks are kept as single frames, and are the same when they are drawn."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from srl.api.slab import Window
from srl.core.spec import zeros
from srl.replay.store import Store, batch_record, store_bytes
from tests.errors import raises
from tests.replay.slow import Episodes, slab_record

STACK = ("obs/stack",)
windows = st.sampled_from([(Window(length=1), None), (Window(2, 2, 0), None), (Window(2, 2, 2), 2), (Window(0, 3, 0), 3)])


@settings(max_examples=150, deadline=None)
@given(
    window=windows, shape=st.tuples(st.integers(1, 4), st.integers(1, 2), st.integers(1, 2)), stack=st.integers(2, 4),
    again=st.booleans(), n_step=st.integers(1, 3), slabs=st.integers(1, 30), rows=st.integers(0, 20), seed=st.integers(0, 2**32),
)  # fmt: skip
def test_a_drawn_stack_is_the_one_that_was_recorded(window, shape, stack, again, n_step, slabs, rows, seed):
    window, every = window
    steps, envs, agents = shape
    steps *= every or 1
    record = slab_record(steps, envs, agents, every=every, stack=stack)
    columns = envs * agents * 2
    size = (rows + window.rows + steps + (every or 1) + 2 * stack) * columns
    store = Store(record, columns=columns, size=size, window=window, n_step=n_step, history=STACK)
    rng = np.random.default_rng(seed)
    sources = [Episodes(record, rng, group, every, again=again) for group in range(2)]
    continues = [False, False]
    recorded = {}
    for _ in range(slabs):
        group = int(rng.integers(2))
        if rng.random() < 0.1:
            sources[group].begin()
            continues[group] = False
        slab = sources[group].slab()
        if rng.random() < 0.2:
            continues[group] = False
            continue
        store.insert(slab, group * envs * agents, continues[group])
        continues[group] = True
        recorded |= zip(slab["obs"]["a"].reshape(-1).tolist(), slab["obs"]["stack"].reshape(-1, stack, 2), strict=True)
    if not len(store):
        return
    out = zeros(batch_record(record, 40, window))
    store.sample(40, rng, out)
    for number, found in zip(out["obs"]["a"].reshape(-1).tolist(), out["obs"]["stack"].reshape(-1, stack, 2), strict=True):
        assert (found == recorded[number]).all()


def test_a_stack_of_four_takes_the_memory_of_one_frame():
    settings = {"columns": 1, "size": 10_000, "window": Window(length=1)}
    record = slab_record(4, 1, 1, stack=4)
    assert store_bytes(record, **settings) - store_bytes(record, **settings, history=STACK) >= 3 * 16 * 9_900


@pytest.mark.parametrize("path", ["obs/a", "obs/unknown", "reward"])
def test_only_a_leaf_of_frames_can_be_a_stack(path):
    with raises("E03", "history"):
        Store(slab_record(4, 1, 1, stack=4), columns=1, size=100, window=Window(length=1), history=(path,))


def broken(change, again=True):
    record = slab_record(4, 1, 1, stack=3)
    store = Store(record, columns=1, size=100, window=Window(length=1), history=STACK)
    source = Episodes(record, np.random.default_rng(0), 0, ends=0.0, again=again)
    slab = source.slab()
    change(slab["obs"]["stack"])
    return store, slab


def test_a_leaf_whose_rows_do_not_follow_each_other_is_no_stack():
    def change(stack):
        stack[...] = stack[:, :, :, ::-1].copy()

    store, slab = broken(change)
    with raises("E03", "history"):
        store.insert(slab, 0, False)


def test_a_stack_begins_with_zeros_or_with_its_first_frame():
    def change(stack):
        stack[0, :, :, 0] = 7.0
        stack[0, :, :, 1] = 7.0
        stack[1, :, :, 0] = 7.0

    store, slab = broken(change)
    with raises("E03", "history"):
        store.insert(slab, 0, False)
