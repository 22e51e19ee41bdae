"""A store that is saved and restored goes on as if nothing had happened."""

from __future__ import annotations

import numpy as np
import pytest

from srl.api.slab import Window
from srl.core.spec import zeros
from srl.core.tree import leaves
from srl.replay import saved
from srl.replay.store import Store, batch_record
from tests.errors import raises
from tests.replay.slow import Episodes, slab_record

KINDS = {
    "uniform": (Window(length=1), None, {"n_step": 3}),
    "prioritised": (Window(length=1), None, {"alpha": 0.6}),
    "windows": (Window(2, 2, 2), 2, {"alpha": 0.6}),
    "frames": (Window(length=1), None, {"history": ("obs/stack",)}),
}


def made(kind, size=150):
    window, every, settings = KINDS[kind]
    record = slab_record(4, 2, 2, every=every, stack=3, full=True)
    return record, every, lambda size=size: Store(record, columns=4, size=size, window=window, **settings)


def draw(store, record, window, rng):
    out = zeros(batch_record(record, 32, window))
    store.sample(32, rng, out)
    if "prioritised" in str(type(store.selector)):
        store.give_back(out["ids"], {"priority": out["reward"][0, :, 0] ** 2})
    return dict(leaves(out))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("slabs", [0, 3, 8, 40])
def test_a_restored_store_draws_and_takes_in_the_same(kind, slabs, tmp_path):
    record, every, make = made(kind)
    window = KINDS[kind][0]
    first, source, rng = make(), Episodes(record, np.random.default_rng(0), 0, every=every), np.random.default_rng(1)
    for index in range(slabs):
        first.insert(source.slab(), 0, index % 5 > 0)
        if len(first):
            draw(first, record, window, rng)
    saved.write(tmp_path / "replay", first.state())
    second = make()
    for _ in range(12):  # what was in it before is gone
        second.insert(Episodes(record, np.random.default_rng(5), 3, every=every).slab(), 0, False)
    second.restore(saved.read(tmp_path / "replay"))
    assert (len(second), second.inserted, second.env_steps) == (len(first), first.inserted, first.env_steps)
    twin = np.random.default_rng(0)
    twin.bit_generator.state = rng.bit_generator.state
    for index in range(6):
        slab = source.slab()
        for store in (first, second):
            store.insert(slab, 0, index > 0 or slabs > 0)
        assert len(first) == len(second)
        if not len(first):
            continue
        one, other = draw(first, record, window, rng), draw(second, record, window, twin)
        for name, leaf in one.items():
            assert (leaf == other[name]).all(), name


def test_a_restored_store_knows_how_stacks_begin():
    record, _, make = made("frames")
    first, source = make(), Episodes(record, np.random.default_rng(0), 0, again=False)
    for index in range(8):
        first.insert(source.slab(), 0, index > 0)
    second = make()
    second.restore(first.state())
    drawn = [draw(store, record, KINDS["frames"][0], np.random.default_rng(2))["obs/stack"] for store in (first, second)]
    assert (drawn[0] == drawn[1]).all() and (drawn[0][..., 0, :] == 0).any()


def test_a_state_is_views_of_the_places_in_use():
    record, _, make = made("uniform", 10_000)
    store = make()
    store.insert(Episodes(record, np.random.default_rng(0), 0).slab(), 0, False)
    state = store.state()
    assert np.shares_memory(state["rings/action"], store._rings.arrays["action"])
    assert state["rings/action"].shape == (4, 5, 2)


def test_a_replay_of_other_sizes_is_refused():
    _, _, make = made("uniform")
    store = make()
    with raises("E15", match="other sizes"):
        make(300).restore(store.state())
    other = Store(slab_record(4, 2, 2), columns=4, size=150, window=Window(length=1))
    with raises("E15", match="other sizes"):
        other.restore(store.state())
