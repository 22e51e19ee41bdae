"""Noise that is a function of row, tick and draw."""

from __future__ import annotations

import numpy as np
import pytest

from srl.core.seeds import Rng, row_keys

ROWS = 100_000


def _rng(first: int = 0, rows: int = ROWS, tick: int = 0, root: int = 7) -> Rng:
    return Rng(row_keys(root, np.arange(first, first + rows), tick))


def test_a_row_draws_the_same_whatever_else_is_asked() -> None:
    whole, part = _rng(), _rng(first=40, rows=3)
    for _ in range(2):
        np.testing.assert_array_equal(whole.uniform(3)[40:43], part.uniform(3))
        np.testing.assert_array_equal(whole.normal(5)[40:43], part.normal(5))


def test_uniform_numbers_are_spread_evenly_below_one() -> None:
    draws = _rng().uniform(4)
    assert draws.dtype == np.float32 and draws.shape == (ROWS, 4)
    assert draws.min() >= 0 and draws.max() < 1
    counts = np.histogram(draws, 64, (0, 1))[0]
    expected = draws.size / 64
    assert ((counts - expected) ** 2 / expected).sum() < 120  # chi-square, 63 degrees: 1 in 50,000 is above


def test_normal_numbers_have_the_moments_of_a_normal_distribution() -> None:
    draws = _rng().normal(6)
    assert draws.dtype == np.float32 and np.isfinite(draws).all()
    for power, moment in ((1, 0.0), (2, 1.0), (3, 0.0), (4, 3.0), (6, 15.0)):
        spread = np.sqrt(float(np.prod(np.arange(2 * power - 1, 0, -2))) / draws.size)
        assert abs((draws.astype(float) ** power).mean() - moment) < 5 * spread


@pytest.mark.parametrize("kind", ["uniform", "normal"])
def test_columns_draws_ticks_and_neighbours_are_independent(kind: str) -> None:
    rng = _rng()
    first = getattr(rng, kind)(4)
    others = [
        getattr(rng, kind)(4),
        getattr(_rng(tick=1), kind)(4),
        getattr(_rng(first=1), kind)(4),
        getattr(_rng(root=8), kind)(4),
    ]
    columns = np.concatenate([first, *others], 1).astype(float)
    for power in (1, 2):
        apart = np.corrcoef(columns.T**power) - np.eye(columns.shape[1])
        assert np.abs(apart).max() < 5 / np.sqrt(ROWS)


def test_the_largest_word_gives_a_finite_normal_number_and_a_product_below() -> None:
    class Ends(Rng):
        def _words(self, columns: int) -> np.ndarray:
            return np.repeat(np.array([[0], [2**64 - 1]], np.uint64), columns, 0).T.copy()

    rng = Ends(np.zeros(2, np.uint64))
    assert np.isfinite(rng.normal(2)).all()
    assert (rng.uniform(1)[1] * np.float32(1.0000001) < np.float32(1.0000001)).all()
