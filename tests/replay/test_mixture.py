"""A batch of two sources."""

from __future__ import annotations

import numpy as np
import pytest

from srl.api.slab import Window
from srl.core.spec import zeros
from srl.replay.mixture import Mixture
from srl.replay.store import Store, batch_record
from tests.errors import raises
from tests.replay.slow import Episodes, slab_record


def store_of(group, slabs, window, every=None):
    record = slab_record(4, 2, 1, every=every, full=True)
    source = Episodes(record, np.random.default_rng(group), group, every=every)
    store = Store(record, columns=2, size=200, window=window, alpha=1.0)
    for index in range(slabs):
        store.insert(source.slab(), 0, index > 0)
    return store


@pytest.mark.parametrize(("window", "every"), [(Window(length=1), None), (Window(2, 2, 0), 2)])
@pytest.mark.parametrize("share", [0.01, 0.25, 0.5, 1.0])
def test_a_share_of_every_batch_is_from_the_fixed_rows(window, every, share):
    online, fixed = store_of(0, 10, window, every), store_of(1, 20, window, every)
    mixture = Mixture(online, fixed, share)
    out = zeros(batch_record(slab_record(4, 2, 1, every=every, full=True), 64, window))
    mixture.sample(64, np.random.default_rng(0), out)
    of_fixed = out["obs"]["a"][0, :, 0, 0] >= 2_000_000
    assert of_fixed.sum() == round(64 * share)
    assert (out["ids"] % 2 == of_fixed).all()
    assert (out["weight"] == 1).all()
    assert (out["obs"]["a"] // 1_000_000 == np.where(of_fixed, 2, 1)[:, None, None]).all()
    assert (out["obs"]["picture"][..., 0, 0] == out["obs"]["a"][..., 0] % 251).all()
    assert out["env_steps"][0] == online.env_steps
    assert share == 1 or (out["version"][of_fixed] == out["version"][~of_fixed].max()).all()


def test_what_is_given_back_finds_its_source():
    window = Window(length=1)
    online, fixed = store_of(0, 10, window), store_of(1, 10, window)
    mixture = Mixture(online, fixed, 0.5)
    out = zeros(batch_record(slab_record(4, 2, 1, full=True), 64, window))
    rng = np.random.default_rng(0)
    mixture.sample(64, rng, out)
    chosen = [int(out["ids"][0]), int(out["ids"][63])]
    assert mixture.give_back(np.array(chosen), {"priority": np.array([1e9, 1e9])}) == 0
    mixture.sample(64, rng, out)
    assert np.isin(out["ids"], chosen).mean() > 0.9 and set(chosen) <= set(out["ids"].tolist())


def test_a_restored_mixture_draws_the_same():
    window = Window(length=1)
    mixtures = [Mixture(store_of(0, slabs, window), store_of(1, 10, window), 0.5) for slabs in (10, 2)]
    record = batch_record(slab_record(4, 2, 1, full=True), 64, window)
    first, second = zeros(record), zeros(record)
    mixtures[0].sample(64, np.random.default_rng(0), first)
    mixtures[0].give_back(first["ids"], {"priority": np.arange(64.0)})
    mixtures[1].restore(mixtures[0].state())
    for mixture, out in zip(mixtures, (first, second), strict=True):
        mixture.sample(64, np.random.default_rng(1), out)
    assert (first["ids"] == second["ids"]).all() and (first["weight"] == second["weight"]).all()
    assert len(set(first["weight"].tolist())) > 2
    with raises("E15"):
        Mixture(store_of(0, 10, window), store_of(1, 9, window, None), 0.5).restore(
            {**mixtures[0].state(), "fixed/weights": np.zeros((2, 3), np.float32)}
        )


@pytest.mark.parametrize("share", [0.0, 1.1, -1.0])
def test_a_share_is_between_nothing_and_all(share):
    window = Window(length=1)
    with raises("E03", "share"):
        Mixture(store_of(0, 1, window), store_of(1, 1, window), share)
