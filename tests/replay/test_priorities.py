"""Priorities find their windows by id, and decide how often these are drawn and how much they weigh."""

from __future__ import annotations

import numpy as np
import pytest

from srl.api.slab import Window
from srl.core.spec import zeros
from srl.replay.store import Store, batch_record
from tests.errors import raises
from tests.replay.slow import Episodes, slab_record

SINGLE = Window(length=1)
RNG = np.random.default_rng


class Filled:
    """A store of a few envs, and the episodes that fill it."""

    def __init__(self, *, size, slabs, envs=3, window=SINGLE, every=None, alpha=1.0, beta=1.0):
        record = slab_record(4, envs, 1, every=every)
        self.source = Episodes(record, RNG(0), 0, every=every, ends=0.1)
        self.store = Store(record, columns=envs, size=size, window=window, alpha=alpha)
        self.record, self.window, self.beta = record, window, beta
        self.insert(slabs)

    def insert(self, slabs):
        for _ in range(slabs):
            self.store.insert(self.source.slab(), 0, len(self.store) > 0)

    def draw(self, count, rng):
        out = zeros(batch_record(self.record, count, self.window))
        self.store.sample(count, rng, out, self.beta)
        return out

    def all(self):
        """Id -> observation of every window: while all weigh the same, as many draws as windows find each once."""
        rng = RNG(1)
        found = {}
        for _ in range(200):
            out = self.draw(64, rng)
            found.update(zip(out["ids"].tolist(), out["obs"]["a"][0, :, 0, 0].tolist(), strict=True))
        assert len(found) == len(self.store)
        return found


@pytest.mark.parametrize(("window", "every"), [(SINGLE, None), (Window(2, 2, 0), 2)])
def test_windows_are_drawn_in_proportion_to_priority_to_the_alpha(window, every):
    filled = Filled(size=200, slabs=30, window=window, every=every, alpha=0.5, beta=0.4)
    ids = np.array(list(filled.all()))
    priority = RNG(2).random(len(ids)) + 0.01
    assert filled.store.give_back(ids, {"priority": priority.astype(np.float32)}) == 0
    share = np.sqrt(priority) / np.sqrt(priority).sum()
    expected = dict(zip(ids.tolist(), 64 * 1000 * share, strict=True))
    weight = dict(zip(ids.tolist(), share**-0.4, strict=True))
    counts = dict.fromkeys(ids.tolist(), 0)
    rng = RNG(3)
    for _ in range(1000):
        out = filled.draw(64, rng)
        drawn = out["ids"].tolist()
        for one in drawn:
            counts[one] += 1
        of_batch = np.array([weight[one] for one in drawn])
        assert np.allclose(out["weight"], of_batch / of_batch.max(), rtol=1e-4)
    for one, count in counts.items():
        assert abs(count - expected[one]) < 6 * np.sqrt(expected[one])


def test_new_rows_have_the_highest_priority_so_far():
    filled = Filled(size=400, slabs=10)
    old = np.array(list(filled.all()))
    filled.store.give_back(old, {"priority": np.full(len(old), 1e-3)})
    filled.store.give_back(old[:1], {"priority": np.array([5.0])})
    filled.insert(1)
    out = filled.draw(64, RNG(4))
    assert np.mean(np.isin(out["ids"], old[1:])) < 0.1
    assert not np.isin(old[1:], out["ids"]).all()


@pytest.mark.parametrize("slabs", [1, 3, 8, 40])
@pytest.mark.parametrize("envs", [1, 3])
def test_what_is_given_back_for_overwritten_rows_is_left_out_and_counted(slabs, envs):
    filled = Filled(size=20 * envs, slabs=20, envs=envs)
    before = filled.all()
    filled.insert(slabs)
    after = filled.all()
    assert not (set(before) & set(after)) or all(before[one] == after[one] for one in set(before) & set(after))
    ids = np.array(list(before))
    gone = filled.store.give_back(ids, {"priority": np.full(len(ids), 1e-6)})
    assert gone == len(set(before) - set(after)) > 0
    drawn = filled.draw(64, RNG(5))["ids"]
    if set(after) - set(before):
        assert np.isin(drawn, list(before)).mean() < 0.1


@pytest.mark.parametrize("window", [Window(2, 2, 0), Window(0, 2, 0)])
def test_a_memory_is_given_back_to_the_first_trained_row_of_a_window(window):
    filled = Filled(size=200, slabs=10, window=window, every=2)
    out = filled.draw(16, RNG(6))
    rows = out["obs"]["a"][:, :, 0, 0]
    fresh = out["obs"]["a"][0, :, 0] + np.array([100.0, 200.0])
    assert filled.store.give_back(out["ids"], {"memory": {"h": fresh}, "priority": np.ones(16)}) == 0
    known = dict(zip(rows[window.burn_in].tolist(), fresh.tolist(), strict=True))  # no two rows have the same observation
    again = filled.draw(200, RNG(7))
    numbers = again["obs"]["a"][0, :, 0, 0].tolist()
    assert any(one in known for one in numbers) and not all(one in known for one in numbers)
    for obs, memory in zip(numbers, again["memory"]["h"][0, :, 0].tolist(), strict=True):
        assert memory == known.get(obs, [obs + 0.25, obs + 0.5])


@pytest.mark.parametrize("bad", [-1.0, np.nan, np.inf])
def test_a_priority_that_means_nothing_is_an_error(bad):
    filled = Filled(size=100, slabs=3)
    with raises("R05"):
        filled.store.give_back(filled.draw(1, RNG(0))["ids"], {"priority": np.array([bad])})


def test_a_replay_says_what_it_cannot_take_back():
    record = slab_record(4, 3, 1)
    store = Store(record, columns=3, size=100, window=SINGLE)
    store.insert(Episodes(record, RNG(0), 0).slab(), 0, False)
    with pytest.raises(ValueError, match="cannot take back `priority`"):
        store.give_back(np.array([0]), {"priority": np.ones(1)})


@pytest.mark.parametrize(("window", "every"), [(SINGLE, None), (Window(2, 4, 2), 2), (Window(0, 3, 1), None)])
@pytest.mark.parametrize("size", [60, 150, 5000])
def test_what_has_a_weight_is_what_can_be_drawn(window, every, size):
    """After any slabs, gaps and priorities."""
    filled = Filled(size=size, slabs=1, envs=2, window=window, every=every)
    store, rng = filled.store, RNG(8)
    for _ in range(60):
        store.insert(filled.source.slab(), 0, rng.random() < 0.8)
        if len(store):
            ids = filled.draw(16, rng)["ids"]
            store.give_back(ids, {"priority": rng.random(16)})
        state = store.state()
        weights = state["drawn/weights"][:, : state["rings/start"].shape[1]]
        assert ((weights > 0) == state["rings/start"]).all()
        assert len(store) == state["rings/start"].sum()
