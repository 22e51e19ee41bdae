"""Results against past versions: which episodes count, and which version is met next."""

from __future__ import annotations

import numpy as np
import pytest

from srl.workers.outcomes import NOBODY, Outcomes, WinRates


def test_chances_are_those_of_the_formula() -> None:
    rates = WinRates(power=2.0)
    rates.add(1, 9, 9)  # 9 / 10
    rates.add(2, 2, 3)  # 2 / 4
    rates.add(3, 0, 50)
    assert [rates.rate(version) for version in (1, 2, 3, 4)] == [0.9, 0.5, 0.0, 0.0]
    assert rates.chances([1, 2, 3, 4]) == pytest.approx(np.array([0.01, 0.25, 1.0, 1.0]) / 2.26)


def test_draws_follow_the_chances() -> None:
    versions = [10, 20, 30]
    draws = (np.arange(2000) + 0.5) / 2000
    met = []
    for draw in draws:
        rates = WinRates(power=1.0)
        rates.add(10, 3, 4)
        rates.add(20, 1, 4)
        met.append(rates.choose(versions, float(draw)))
    shares = [met.count(version) / 2000 for version in versions]
    assert shares == pytest.approx(np.array([0.4, 0.8, 1.0]) / 2.2, abs=1e-3)


@pytest.mark.parametrize(("power", "harder"), [(0.0, 1.0), (1.0, 5.0), (2.0, 25.0)])
def test_a_higher_power_prefers_the_harder_ones(power: float, harder: float) -> None:
    rates = WinRates(power=power)
    rates.add(1, 4, 4)  # 4 / 5
    rates.add(2, 0, 4)
    easy, hard = rates.chances([1, 2])
    assert hard / easy == pytest.approx(harder)


def test_even_the_last_draw_finds_a_version() -> None:
    assert WinRates(power=2.0).choose([1, 2, 3], 1.0 - 2.0**-53) == 3


def test_what_is_not_met_for_long_becomes_unknown_again_and_what_is_gone_is_forgotten() -> None:
    rates = WinRates(power=2.0)
    rates.add(1, 50, 50)
    rates.add(2, 50, 50)
    for _ in range(300):
        rates.choose([2, 3], 0.0)
    assert rates.rate(2) < 0.2
    assert rates.rate(1) == 0.0


def test_recent_episodes_count_most() -> None:
    rates = WinRates(power=2.0)
    for _ in range(50):
        rates.add(1, 0, 20)
    for _ in range(50):
        rates.add(1, 20, 20)
    assert rates.rate(1) > 0.98


def test_an_episode_counts_for_the_version_that_played_all_of_it() -> None:
    outcomes = Outcomes(3)
    outcomes.answered(7)
    outcomes.ended(np.array([True, False, False]), np.array([1.0, 0.0, 0.0]))
    assert outcomes.leaves["faced"].tolist() == [7, NOBODY, NOBODY] and outcomes.leaves["won"][0] == 1.0
    outcomes.told()
    outcomes.answered(8)  # env 0 begins anew, the others change opponents amid an episode
    outcomes.ended(np.array([True, True, False]), np.array([0.5, 1.0, 0.0]))
    assert outcomes.leaves["faced"].tolist() == [8, NOBODY, NOBODY]
    outcomes.told()
    outcomes.answered(8)
    outcomes.ended(np.array([False, True, True]), np.array([0.0, 1.0, 0.0]))
    assert outcomes.leaves["faced"].tolist() == [NOBODY, 8, NOBODY]
