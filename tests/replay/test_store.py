"""What is drawn from a store is what a slow reference makes of the same slabs."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from srl.api.slab import Window
from srl.core.spec import spec_of, zeros
from srl.replay.store import Store, batch_record, store_bytes
from tests.replay.slow import Episodes, SlowStore, slab_record

SINGLE = Window(length=1)


def filled(record, groups, *, size, slabs, seed, window=SINGLE, every=None, lost=0.2, restart=0.1, **settings):
    """A store and its slow twin after the same slabs; some are lost on the way, some groups begin again."""
    _, envs, agents = record["reward"].shape
    columns = groups * envs * agents
    store = Store(record, columns=columns, size=size, window=window, **settings)
    shape = store.shape
    slow = SlowStore(columns, shape.rows, shape.every, window, settings.get("n_step", 1), settings.get("gamma", 0.99))
    rng = np.random.default_rng(seed)
    sources = [Episodes(record, rng, group, every) for group in range(groups)]
    continues = [False] * groups
    for _ in range(slabs):
        group = int(rng.integers(groups))
        if rng.random() < restart:
            sources[group].begin()
            continues[group] = False
        slab = sources[group].slab()
        if rng.random() < lost:
            continues[group] = False
            continue
        store.insert(slab, group * envs * agents, continues[group])
        slow.insert(slab, group * envs * agents, continues[group])
        continues[group] = True
    return store, slow


shapes = st.tuples(st.integers(1, 5), st.integers(1, 3), st.integers(1, 2), st.integers(1, 3))


@settings(max_examples=150, deadline=None)
@given(shape=shapes, n_step=st.integers(1, 4), slabs=st.integers(0, 30), rows=st.integers(8, 40), seed=st.integers(0, 2**32))
def test_single_transitions_are_those_of_the_slow_store(shape, n_step, slabs, rows, seed):
    steps, envs, agents, groups = shape
    record = slab_record(steps, envs, agents)
    size = (rows + steps) * envs * agents * groups
    store, slow = filled(record, groups, size=size, slabs=slabs, seed=seed, n_step=n_step, gamma=0.9)
    starts = slow.starts()
    assert len(store) == len(starts)
    if not starts:
        return
    out = zeros(batch_record(record, 64, SINGLE))
    store.sample(64, np.random.default_rng(seed), out)
    for b in range(64):
        column, index = starts[out["obs"]["a"][0, b, 0, 0]]
        expected, row = slow.single(column, index), slow.rings[column][index]
        assert row.valid and out["valid"][0, b, 0]
        assert tuple(out["obs"]["a"][:, b, 0, 0]) == expected["obs"]
        assert tuple(out["first"][:, b, 0]) == expected["first"]
        assert (out["obs"]["picture"][:, b, 0] == (out["obs"]["a"][:, b, 0] % 251)[..., None]).all()
        assert out["reward"][0, b, 0] == pytest.approx(expected["reward"], abs=1e-5)
        assert out["discount"][0, b, 0] == pytest.approx(expected["discount"], abs=1e-6)
        assert out["terminated"][0, b, 0] == expected["terminated"]
        assert out["truncated"][0, b, 0] == expected["truncated"]
        assert out["action"][0, b, 0, 0] == row.action
        assert out["version"][b] == row.version
    assert (out["weight"] == 1).all()


windows = st.sampled_from([Window(1, 2, 0), Window(2, 4, 2), Window(0, 3, 0), Window(4, 2, 0), Window(length=2), Window(1, 3, 1)])


@settings(max_examples=150, deadline=None)
@given(
    shape=shapes, window=windows, memory=st.booleans(), short=st.booleans(), slabs=st.integers(0, 30), rows=st.integers(8, 40),
    seed=st.integers(0, 2**32),
)  # fmt: skip
def test_windows_are_rows_in_order_without_a_gap(shape, window, memory, short, slabs, rows, seed):
    every = window.memory_every if memory else None
    steps, envs, agents, groups = shape
    steps = math.gcd(steps, every or 1) if short else steps * (every or 1)
    record = slab_record(steps, envs, agents, every=every)
    size = (rows + 2 * steps + window.rows) * envs * agents * groups
    store, slow = filled(record, groups, size=size, slabs=slabs, seed=seed, window=window, every=every)
    starts = slow.starts()
    assert len(store) == len(starts)
    if not starts:
        return
    out = zeros(batch_record(record, 32, window))
    store.sample(32, np.random.default_rng(seed), out)
    for b in range(32):
        column, index = starts[out["obs"]["a"][0, b, 0, 0]]
        found = slow.rings[column][index : index + window.rows + 1]
        assert [row.obs for row in found] == out["obs"]["a"][:, b, 0, 0].tolist()
        assert [row.first for row in found] == out["first"][:, b, 0].tolist()
        for name in ("reward", "terminated", "truncated", "valid"):
            assert [getattr(row, name) for row in found[:-1]] == out[name][:, b, 0].tolist(), name
        assert out["version"][b] == found[0].version
        if memory:
            assert out["memory"]["h"][0, b, 0, 0] == found[0].memory == found[0].obs + 0.25


@settings(max_examples=40, deadline=None)
@given(shape=shapes, n_step=st.integers(1, 3), seed=st.integers(0, 2**32))
def test_every_leaf_is_of_the_row_it_belongs_to(shape, n_step, seed):
    """Masks, states, extras and signals, several agents: against the slabs themselves, found by their observations."""
    steps, envs, agents, _ = shape
    record = slab_record(steps, envs, agents, full=True)
    store = Store(record, columns=envs * agents, size=200 * envs * agents, window=SINGLE, n_step=n_step)
    source = Episodes(record, np.random.default_rng(seed), 0)
    asked, acted = {}, {}
    for index in range(8):
        slab = source.slab()
        store.insert(slab, 0, index > 0)
        for step, env, agent in np.ndindex(steps + 1, envs, agents):
            number = slab["obs"]["a"][step, env, agent, 0]
            asked[number] = {
                "mask": slab["mask"][step, env, agent],
                "state": slab["state"][step, env],
                "extra": slab["extra"]["value"][step, env, agent],
            }
            if step < steps:
                cost, choice = slab["signals"]["cost"][step, env, agent], slab["choice"][step, env, agent]
                acted[number] = (cost, choice, slab["action"][step, env, agent].tolist())
    if not len(store):
        return
    out = zeros(batch_record(record, 50, SINGLE))
    store.sample(50, np.random.default_rng(seed), out)
    for b in range(50):
        for row in range(2):
            expected = asked[out["obs"]["a"][row, b, 0, 0]]
            assert (out["mask"][row, b, 0] == expected["mask"]).all()
            assert (out["state"][row, b] == expected["state"]).all()
            assert out["extra"]["value"][row, b, 0] == expected["extra"]
        cost, choice, action = acted[out["obs"]["a"][0, b, 0, 0]]
        assert (out["signals"]["cost"][0, b, 0], out["choice"][0, b, 0], out["action"][0, b, 0].tolist()) == (
            cost,
            choice,
            action,
        )


def test_transitions_and_env_steps_are_counted_as_they_come():
    record = slab_record(6, 2, 2)
    store = Store(record, columns=4, size=100, window=SINGLE)
    source = Episodes(record, np.random.default_rng(0), 0, ends=0.5)
    slabs = [source.slab() for _ in range(5)]
    for index, slab in enumerate(slabs):
        store.insert(slab, 0, index > 0)
    assert store.inserted == sum(int(slab["valid"].sum()) for slab in slabs)
    assert store.env_steps == sum(int(slab["valid"].any(axis=2).sum()) for slab in slabs) < store.inserted


def test_a_batch_record_is_what_sample_fills():
    record = slab_record(4, 2, 2, full=True)
    spec = batch_record(record, 8, SINGLE)
    out = zeros(spec)
    store, _ = filled(record, 1, size=100, slabs=5, seed=1, lost=0.0)
    store.sample(8, np.random.default_rng(0), out)
    assert spec_of(out) == spec
    assert out["env_steps"][0] == store.env_steps > 0
    assert spec["discount"].shape == (1, 8, 1)


@pytest.mark.parametrize(("size", "slabs"), [(120, 30), (2000, 7), (60, 4)], ids=["full", "unequal", "one full"])
def test_every_transition_is_drawn_about_equally_often(size, slabs):
    record = slab_record(5, 2, 1)
    store, slow = filled(record, 2, size=size, slabs=slabs, seed=3)
    starts = slow.starts()
    out = zeros(batch_record(record, 1000, SINGLE))
    counts: dict[float, int] = dict.fromkeys(starts, 0)
    rng = np.random.default_rng(4)
    draws = 40 * len(starts)
    for _ in range(draws // 1000 + 1):
        store.sample(1000, rng, out)
        for number in out["obs"]["a"][0, :, 0, 0]:
            counts[number] += 1
    mean = np.mean(list(counts.values()))
    assert np.abs(np.array(list(counts.values())) - mean).max() < 6 * np.sqrt(mean)


def test_the_memory_of_a_row_is_that_of_its_leaves():
    record = slab_record(8, 4, 1)
    row = 8 + 6 + 8 + 4 + 4 + 8
    settings = {"columns": 4, "size": 100_000, "window": SINGLE}
    assert store_bytes(record, **settings) <= 1.05 * row * 100_000
    assert store_bytes(record, **settings, prioritised=True) <= 1.05 * (row + 4) * 100_000
    assert Store(record, **settings).size >= 100_000
