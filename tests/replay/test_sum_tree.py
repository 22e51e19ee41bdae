"""A sum tree draws in proportion, and never what has no weight."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from srl.replay import sum_tree
from srl.replay.sum_tree import SumTree


@pytest.fixture(autouse=True)
def small_top(monkeypatch):
    """Trees of several levels with few leaves."""
    monkeypatch.setattr(sum_tree, "_TOP", 4)


def check(tree, expected):
    places = np.arange(expected.size)
    assert (tree.weights(places) == expected.reshape(-1)).all()
    for below, above in zip(tree.levels, tree.levels[1:], strict=False):
        assert np.allclose(below.reshape(-1, 16).sum(1), above.reshape(-1), rtol=1e-6)


@settings(max_examples=100, deadline=None)
@given(columns=st.integers(1, 3), width=st.integers(1, 600), seed=st.integers(0, 2**32), writes=st.integers(1, 6))
def test_nodes_are_sums_of_their_leaves_after_any_writes(columns, width, seed, writes):
    tree, rng = SumTree(columns, width), np.random.default_rng(seed)
    expected = np.zeros((columns, width), np.float32)
    for _ in range(writes):
        low, high = sorted(rng.integers(0, width + 1, 2))
        first, last = sorted(rng.integers(0, columns + 1, 2))
        if low < high and first < last:
            block = rng.random((last - first, high - low), dtype=np.float32)
            tree.put_range(slice(first, last), slice(low, high), block)
            expected[first:last, low:high] = block
        places = rng.permutation(columns * width)[:20]
        weights = rng.random(len(places), dtype=np.float32) * (rng.random(len(places)) < 0.7)
        tree.put(places, weights)
        expected.reshape(-1)[places] = weights
    check(tree, expected)
    if expected.any():
        places, weights = tree.draw(50, rng)
        assert (weights == expected.reshape(-1)[places]).all() and weights.all()


@pytest.mark.parametrize(("columns", "width"), [(1, 500), (3, 70), (1, 7)])
def test_places_are_drawn_in_proportion_to_their_weights(columns, width):
    tree, rng = SumTree(columns, width), np.random.default_rng(5)
    weights = (rng.random(columns * width) * (rng.random(columns * width) < 0.6)).astype(np.float32)
    tree.put(np.arange(columns * width), weights)
    counts = np.zeros(columns * width)
    for _ in range(400):
        counts += np.bincount(tree.draw(100, rng)[0], minlength=columns * width)
    expected = weights / weights.sum(dtype=np.float64) * 40_000
    assert not counts[weights == 0].any()
    assert np.abs(counts - expected).max() < 6 * np.sqrt(expected.max())


def test_its_memory_is_known_before_it_is_made():
    for columns, width in ((1, 10), (3, 500), (16, 10_000)):
        assert SumTree.bytes_of(columns, width) == sum(level.nbytes for level in SumTree(columns, width).levels)
