"""What counts as reached."""

from __future__ import annotations

import pytest

from srl.observe.expectation import Expectation, expected


def test_the_last_mean_counts_not_the_best() -> None:
    one = Expectation({"return": 400})
    for steps, mean in ((1000, 450.0), (2000, 390.0)):
        one.see(steps, {"": mean})
    assert not one.holds
    assert one.text() == "return 400: not reached (390)"


def test_means_beyond_the_env_steps_that_are_allowed_do_not_count() -> None:
    one = Expectation({"return": 400, "env_steps": 1500}, stop=9000)
    for steps, mean in ((1000, 310.5), (2000, 450.0)):
        one.see(steps, {"": mean})
    assert one.text() == "return 400: not reached (310.5 after 1,000 env steps)"


@pytest.mark.parametrize(("stop", "holds"), [(1500, True), (1501, False), (None, False)])
def test_the_batch_that_reaches_the_stop_belongs_to_what_is_allowed(stop: int | None, holds: bool) -> None:
    one = Expectation({"return": 400, "env_steps": 1500}, stop=stop)
    one.see(1000, {"": 300.0})
    one.see(1536, {"": 400.0})
    assert one.holds is holds


def test_what_comes_after_a_run_was_solved_does_not_count() -> None:
    one = Expectation({"return": 400})
    one.see(1000, {"": 401.0})
    one.settle()
    one.see(1100, {"": 399.0})
    assert one.text() == "return 400: reached (401)"


def test_every_team_that_is_named_must_reach_its_return() -> None:
    one = Expectation({"return/hunter": 12, "return/prey": -8})
    one.see(1000, {"hunter": 12.5, "prey": -9.0})
    assert not one.holds
    assert one.text() == "return/hunter 12: reached (12.5), return/prey -8: not reached (-9)"


def test_without_100_episodes_nothing_is_reached() -> None:
    one = Expectation({"return": -1000})
    one.see(1000, {})
    assert (one.holds, one.text()) == (False, "return -1,000: not reached (fewer than 100 episodes)")


def test_a_return_that_is_not_a_number_is_not_remembered() -> None:
    one = Expectation({"return": 3})
    one.see(1000, {"": float("nan")})
    assert one.reached == {}


def test_a_team_that_is_not_there_names_those_that_are() -> None:
    one = Expectation({"return": 3})
    one.see(1000, {"hunter": 12.5, "prey": -9.0})
    assert one.text() == "return 3: not reached (there is return/hunter, return/prey)"


def test_a_resumed_run_remembers_what_it_has_reached() -> None:
    one = Expectation({"return": 400, "env_steps": 1500}, reached={"return": 420.0, "env_steps": 1400.0})
    one.see(2000, {"": 100.0})
    assert one.holds


@pytest.mark.parametrize("expect", [{"return": 400}, {"return": 400, "env_steps": 3000}])
def test_what_an_earlier_leg_reached_is_not_what_the_run_ends_with(expect: dict[str, float]) -> None:
    one = Expectation(expect, stop=3000, reached={"return": 420.0, "env_steps": 1400.0})
    one.see(3000, {})
    assert (one.holds, one.text()) == (False, "return 400: not reached (fewer than 100 episodes)")


def test_a_figure_just_below_is_not_shown_as_reached() -> None:
    one = Expectation({"return": 475})
    one.see(1, {"": 474.996})
    assert one.text() == "return 475: not reached (474.996)"


def test_an_expectation_in_words() -> None:
    assert expected({"return": -22, "env_steps": 400_000}) == "return -22 within 400,000 env steps"
