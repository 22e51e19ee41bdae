"""Rules of a league: which version is met next, and which episodes count."""

from __future__ import annotations

import numpy as np
import pytest

from srl.core.spec import zeros
from srl.workers.episodes import SEVERAL, EpisodeLog, episodes_spec
from srl.workers.rules import WinRate, find_rule


def test_chances_are_those_of_the_formula() -> None:
    rates = WinRate(power=2.0)
    rates.result(1, 9, 9)  # 9 / 10
    rates.result(2, 2, 3)  # 2 / 4
    rates.result(3, 0, 50)
    assert [rates.rate(version) for version in (1, 2, 3, 4)] == [0.9, 0.5, 0.0, 0.0]
    assert rates.chances([1, 2, 3, 4]) == pytest.approx(np.array([0.01, 0.25, 1.0, 1.0]) / 2.26)


def test_draws_follow_the_chances() -> None:
    versions = [10, 20, 30]
    draws = (np.arange(2000) + 0.5) / 2000
    met = []
    for draw in draws:
        rates = WinRate(power=1.0)
        rates.result(10, 3, 4)
        rates.result(20, 1, 4)
        met.append(rates.choose(versions, float(draw)))
    shares = [met.count(version) / 2000 for version in versions]
    assert shares == pytest.approx(np.array([0.4, 0.8, 1.0]) / 2.2, abs=1e-3)


@pytest.mark.parametrize(("power", "harder"), [(0.0, 1.0), (1.0, 5.0), (2.0, 25.0)])
def test_a_higher_power_prefers_the_harder_ones(power: float, harder: float) -> None:
    rates = WinRate(power=power)
    rates.result(1, 4, 4)  # 4 / 5
    rates.result(2, 0, 4)
    easy, hard = rates.chances([1, 2])
    assert hard / easy == pytest.approx(harder)


def test_even_the_last_draw_finds_a_version() -> None:
    assert WinRate(power=2.0).choose([1, 2, 3], 1.0 - 2.0**-53) == 3


def test_what_is_not_met_for_long_becomes_unknown_again_and_what_is_gone_is_forgotten() -> None:
    rates = WinRate(power=2.0)
    rates.result(1, 50, 50)
    rates.result(2, 50, 50)
    for _ in range(300):
        rates.choose([2, 3], 0.0)
    assert rates.rate(2) < 0.2
    assert rates.rate(1) == 0.0


def test_recent_episodes_count_most() -> None:
    rates = WinRate(power=2.0)
    for _ in range(50):
        rates.result(1, 0, 20)
    for _ in range(50):
        rates.result(1, 20, 20)
    assert rates.rate(1) > 0.98


def test_latest_counts_back_from_the_newest_and_uniform_takes_all_alike() -> None:
    assert [find_rule("latest-2", 1.0).choose(versions, 0.9) for versions in ([1, 4, 6, 9], [1, 4], [7])] == [4, 1, 7]
    uniform = find_rule("uniform", 1.0)
    assert [uniform.choose([1, 4, 6, 9], draw) for draw in (0.0, 0.25, 0.5, 1.0 - 2.0**-53)] == [1, 4, 6, 9]


def test_win_rates_outlive_a_resume() -> None:
    rates, other = WinRate(power=2.0), WinRate(power=2.0)
    rates.result(1 << 41, 3, 4)
    rates.result(7, 1.5, 2)
    other.restore(rates.state())
    assert [other.rate(version) for version in (1 << 41, 7, 8)] == [rates.rate(version) for version in (1 << 41, 7, 8)]


def test_an_episode_counts_for_the_version_that_played_all_of_it() -> None:
    log = EpisodeLog(3, ["odd"])
    tree = zeros(episodes_spec(4, 3, ["odd"], 0))
    log.open(tree)

    def row(number: int, version: int, over: list[bool]) -> list[int]:
        log.answered("odd", version)
        log.ended(number, np.array(over), {"odd": np.arange(3.0)}, np.zeros((3, 0)))
        return [int(one) for one, ended in zip(tree["version"]["odd"][number], over, strict=True) if ended]

    assert row(0, 7, [True, False, False]) == [7]
    # env 0 begins anew, the others change opponents amid an episode
    assert row(1, 8, [True, True, False]) == [8, SEVERAL]
    assert row(2, 8, [False, True, True]) == [8, SEVERAL]
    assert tree["ended"].sum(1).tolist() == [1, 2, 2, 0]
    assert tree["return"]["odd"][1].tolist() == [0.0, 1.0, 2.0]
