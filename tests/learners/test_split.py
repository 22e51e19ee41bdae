"""A split learner is a single one with the same order of updates, bit for bit."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from srl.algorithms.ddpg import DDPG
from srl.algorithms.sac import SAC
from srl.algorithms.td3 import TD3
from srl.api.policy import NoConfig
from srl.core.learner import SingleConfig, SplitConfig
from srl.learners.single import SingleLearner
from srl.learners.split import SplitLearner
from tests.algorithms.slabs import make
from tests.algorithms.transitions import learner, transitions
from tests.errors import raises
from tests.learners.own_parts import OwnParts

ALGORITHMS = (SAC, TD3, DDPG)
SIMULTANEOUS = SplitConfig()


class InThreads(SplitLearner):
    """As on two GPUs, but on the CPU."""

    in_process = True


@pytest.fixture
def split() -> Iterator[Any]:
    """Makes split learners, and ends them."""
    made: list[SplitLearner] = []

    def make(given: Any, config: SplitConfig = SIMULTANEOUS) -> SplitLearner:
        made.append(SplitLearner(given, config))
        return made[-1]

    yield make
    for one in made:
        child = one._child
        one.close()
        assert child is None or child.returncode is not None


def task(algorithm: Any, rows: int = 53, **config: Any) -> Any:
    return learner(algorithm, rows=rows, policy={"normalize_obs": True}, **config).task


def check_shares(shown: dict[str, float], *sides: str) -> None:
    """Both are busy for some of the time, and wait for each other for some of the rest."""
    for side in sides:
        busy, waits = shown[f"{side}_busy"], shown[f"{side}_waits"]
        assert 0 < busy < 1 and 0 <= waits < 1 and busy + waits <= 1


def run(made: Any, updates: range, rows: int = 53) -> None:
    for update in updates:
        made.clock.updates, made.clock.env_steps, made.clock.progress = update, 10 * update, update / 300
        made.update(transitions(update, rows))


def check_equal(one: Any, other: Any) -> None:
    """All that a checkpoint keeps."""
    (wanted, told), (found, theirs) = one.state(), other.state()
    assert told == theirs
    assert wanted.keys() == found.keys()
    for group, named in wanted.items():
        assert named.keys() == found[group].keys()
        for name, array in named.items():
            if name != "torch_rng":
                np.testing.assert_array_equal(found[group][name], array, err_msg=f"{group} {name}")


@pytest.mark.parametrize("rows", [53, pytest.param(200, marks=pytest.mark.long)])
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_simultaneous_sides_are_a_single_learner(algorithm: Any, rows: int, split: Any) -> None:
    given = task(algorithm, rows, n_step=3)
    single, both = SingleLearner(given, SingleConfig()), split(given)
    run(single, range(200), rows)
    run(both, range(200), rows)
    check_equal(single, both)
    shown = both.metrics()
    assert single.metrics().items() <= shown.items()
    assert {name: shown[name] for name in shown if "lag" in name or "version" in name} == {
        f"{both.other.name}_lag": 0, "actor_lag": 0, "actor_version": 200, f"{both.other.name}_version": 200,
    }  # fmt: skip
    check_shares(shown, "actor", both.other.name)
    assert both.metrics() == {}  # no update since then


@pytest.mark.parametrize("algorithm", [SAC, TD3, pytest.param(DDPG, marks=pytest.mark.long)])
@pytest.mark.parametrize("mode", ["simultaneous", pytest.param("exact", marks=pytest.mark.long)])
def test_checkpoints_of_single_and_split_learners_are_the_same(algorithm: Any, mode: Any, split: Any) -> None:
    given = task(algorithm)
    order = SingleConfig(order="sequential" if mode == "exact" else "simultaneous")
    straight, first, second = SingleLearner(given, order), SingleLearner(given, order), split(given, SplitConfig(mode=mode))
    run(straight, range(9))
    run(first, range(3))
    run(second, range(2))  # of another life
    groups, state = first.state()
    second.restore(groups, json.loads(json.dumps(state)))
    run(second, range(3, 6))
    groups, state = second.state()
    first.restore(groups, json.loads(json.dumps(state)))
    run(first, range(6, 9))
    check_equal(straight, first)


def test_a_side_that_is_killed_ends_the_learner(split: Any) -> None:
    made = split(task(DDPG))
    run(made, range(2))
    os.kill(made._child.pid, signal.SIGKILL)
    with raises("R01", match="the process of the critics has died"):
        run(made, range(2, 9))


def test_an_error_of_the_critics_is_told_where_the_actor_learns(split: Any) -> None:
    made = split(task(SAC))
    run(made, range(2))
    rows = transitions(3, 53)
    rows["reward"][0, 5] = np.nan
    with raises("R05", match="the loss is nan"):
        made.update(rows)
        run(made, range(3, 9))


def test_the_process_of_the_critics_leaves_nothing_behind(split: Any) -> None:
    made = split(task(DDPG))
    run(made, range(2))
    maps = Path(f"/proc/{made._child.pid}/maps").read_text()
    assert "/memfd:srl-learner (deleted)" in maps and "/dev/shm" not in maps
    if made._cores is not None:
        assert (os.sched_getaffinity(0), os.sched_getaffinity(made._child.pid)) == ({made._cores[0]}, {made._cores[1]})
    made.close()
    assert os.sched_getaffinity(0) == made._affinity
    made.close()


def test_an_algorithm_without_parts_cannot_be_split() -> None:
    with raises("E10", match="PPO cannot be split"):
        SplitLearner(make().task, SIMULTANEOUS)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("rows", [53, pytest.param(200, marks=pytest.mark.long)])
def test_exact_sides_are_a_single_learner_whose_critics_move_first(algorithm: Any, rows: int, split: Any) -> None:
    given = task(algorithm, rows, n_step=3)
    single, both = SingleLearner(given, SingleConfig(order="sequential")), split(given, SplitConfig(mode="exact"))
    run(single, range(200), rows)
    run(both, range(200), rows)
    check_equal(single, both)
    shown = both.metrics()
    assert single.metrics().items() <= shown.items()
    check_shares(shown, "actor", both.other.name)


def test_critics_with_batch_normalization_are_split_exactly_only(split: Any) -> None:
    given = task(SAC, critic={"hidden": [16], "norm": "batch", "tau": None}, actor_every=3)
    with raises("E10", match="cannot be split in this mode"):
        split(given)
    single, both = SingleLearner(given, SingleConfig(order="sequential")), split(given, SplitConfig(mode="exact"))
    run(single, range(20))
    run(both, range(20))
    check_equal(single, both)


@pytest.mark.parametrize("algorithm", [SAC, *(pytest.param(one, marks=pytest.mark.long) for one in (TD3, DDPG))])
def test_asynchronous_sides_without_lag_are_simultaneous(algorithm: Any, split: Any) -> None:
    given = task(algorithm)
    one, other = SingleLearner(given, SingleConfig()), split(given, SplitConfig(mode="asynchronous", max_lag=0))
    run(one, range(200))
    run(other, range(200))
    check_equal(one, other)


def test_sides_in_bfloat16_are_a_single_learner(split: Any) -> None:
    given = task(SAC, critic={"hidden": [16, 16], "half": True})
    single, both = SingleLearner(given, SingleConfig()), split(given)
    run(single, range(20))
    run(both, range(20))
    check_equal(single, both)


def test_asynchronous_sides_are_never_further_apart_than_they_may(split: Any) -> None:
    made = split(task(TD3), SplitConfig(mode="asynchronous", max_lag=3))
    run(made, range(200))
    groups, _ = made.state()
    assert all(np.isfinite(array).all() for array in groups["algorithm"].values())
    shown = made.metrics()
    assert abs(shown["actor_lag"]) <= 3 and abs(shown["critics_lag"]) <= 3
    assert shown["actor_version"] == shown["critics_version"] == 200


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("mode", ["simultaneous", "exact"])
def test_sides_in_two_threads_are_a_single_learner(algorithm: Any, mode: Any) -> None:
    given = task(algorithm)
    order = "sequential" if mode == "exact" else "simultaneous"
    single, both = SingleLearner(given, SingleConfig(order=order)), InThreads(given, SplitConfig(mode=mode))
    run(single, range(100))
    run(both, range(60))
    groups, state = both.state()
    both.restore(groups, state)
    run(both, range(60, 100))
    check_equal(single, both)
    check_shares(both.metrics(), "actor", both.other.name)
    thread = both._thread
    assert thread is not None and thread.is_alive()
    both.close()
    assert not thread.is_alive()


def test_an_error_in_the_thread_of_the_critics_is_told() -> None:
    made = InThreads(task(SAC), SplitConfig())
    run(made, range(2))
    rows = transitions(3, 53)
    rows["reward"][0, 5] = np.nan
    with raises("R05", match="the loss is nan"):
        made.update(rows)
        run(made, range(3, 9))
    made.close()


@pytest.mark.parametrize("mode", ["simultaneous", "exact"])
def test_an_algorithm_of_ones_own_is_split_as_it_is(mode: Any, split: Any) -> None:
    given = replace(task(DDPG), algorithm=OwnParts, config=NoConfig())
    order = "sequential" if mode == "exact" else "simultaneous"
    single, both = SingleLearner(given, SingleConfig(order=order)), split(given, SplitConfig(mode=mode))
    run(single, range(40))
    run(both, range(40))
    check_equal(single, both)
