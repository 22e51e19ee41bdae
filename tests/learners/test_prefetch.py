"""Batches that are copied while another one trains: what is learned stays the same. On the CPU a place is other memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

from srl.algorithms.ppo import PPO
from srl.algorithms.sac import SAC
from srl.core.learner import SingleConfig
from srl.core.tree import leaves
from srl.learners.prefetch import Prefetcher
from srl.learners.single import SingleLearner
from tests.algorithms.slabs import make, record
from tests.algorithms.transitions import learner, transitions

AHEAD = SingleConfig(prefetch=True)


@pytest.fixture
def prefetcher() -> Iterator[Prefetcher]:
    made = Prefetcher(torch.device("cpu"))
    yield made
    made.close()


def rows(number: int) -> dict[str, Any]:
    return {"obs": {"eye": np.full((2, 3), number, np.uint8)}, "reward": np.full(3, number, np.float32), "mask": None}


def task(algorithm: Any) -> Any:
    return (make() if algorithm is PPO else learner(algorithm)).task


def batches(algorithm: Any, made: SingleLearner) -> list[Any]:
    return [record(made, seed=number) if algorithm is PPO else transitions(number) for number in range(6)]


@pytest.mark.parametrize("algorithm", [PPO, SAC])
def test_what_is_learned_does_not_depend_on_copies(algorithm: Any) -> None:
    plain, ahead = SingleLearner(task(algorithm), SingleConfig()), SingleLearner(task(algorithm), AHEAD)
    assert plain.tell is None and ahead.tell is not None
    given = batches(algorithm, plain)
    for update, one in enumerate(given):
        plain.clock.updates = ahead.clock.updates = update
        plain.update(one)
        if update + 1 < len(given):
            ahead.tell(given[update + 1])
        ahead.update(one)
        for _, leaf in leaves(one):
            leaf[...] = 0  # it is free now
    (wanted, _), (found, _) = plain.state(), ahead.state()
    for group, named in wanted.items():
        for name, array in named.items():
            np.testing.assert_array_equal(found[group][name], array, err_msg=f"{group} {name}")
    shown = ahead.metrics()
    assert shown.pop("prefetched") == pytest.approx(5 / 6)
    assert shown == plain.metrics()
    ahead.close()


def test_a_batch_that_trains_is_not_overwritten_by_those_that_come(prefetcher: Prefetcher) -> None:
    given = [rows(number) for number in range(5)]
    for one in given[1:3]:
        prefetcher.tell(one)
    places = set()
    for number, one in enumerate(given):
        tree: Any = prefetcher.take(one)
        if number + 3 < len(given):
            prefetcher.tell(given[number + 3])
        prefetcher._thread.submit(lambda: None).result()  # the next one is copied by now
        assert (tree["obs"]["eye"] == number).all() and (tree["reward"] == number).all() and "mask" not in tree
        assert tree["obs"]["eye"].dtype == torch.uint8
        places.add(id(tree))
    assert len(places) == 2
    assert prefetcher.metrics() == {"prefetched": 4 / 5} and prefetcher.metrics() == {}


def test_batches_of_which_nothing_was_told_are_copied_when_they_are_asked_for(prefetcher: Prefetcher) -> None:
    for number in range(3):
        tree: Any = prefetcher.take(rows(number))
        assert (tree["reward"] == number).all()
    tree = prefetcher.take({"reward": np.ones(7, np.float32)})  # of another size
    assert tree.keys() == {"reward"} and tree["reward"].shape == (7,)


def test_an_error_while_copying_is_raised_where_the_batch_is_asked_for(prefetcher: Prefetcher) -> None:
    broken = {"reward": np.array([object()])}
    prefetcher.tell(broken)
    with pytest.raises(TypeError):
        prefetcher.take(broken)
