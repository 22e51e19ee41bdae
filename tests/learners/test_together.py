"""Parts of an update on several threads."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
import torch

from srl.algorithms.ddpg import DDPG
from srl.algorithms.sac import SAC
from srl.algorithms.td3 import TD3
from srl.core.errors import RunError
from srl.learners.together import Together
from tests.algorithms.transitions import learner, transitions


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("parts", [1, 2, 5])
def test_results_come_in_order(threads: int, parts: int) -> None:
    together = Together(threads)
    for _ in range(3):
        assert together([lambda i=i: i * i for i in range(parts)]) == [i * i for i in range(parts)]  # type: ignore[misc]
    together.close()
    together.close()
    assert not [one for one in threading.enumerate() if one.name == "srl learner"], "Python could not exit in peace"


def test_parts_run_at_the_same_time_on_threads_that_compute_alone() -> None:
    before = torch.get_num_threads()
    together, meet = Together(2), threading.Barrier(2)

    def part() -> tuple[str, int]:
        meet.wait(10.0)  # passes only if both are there
        return threading.current_thread().name, torch.get_num_threads()

    (one, alone), (two, alone_too) = together([part, part])
    assert one != two and alone == alone_too == 1
    together.close()
    torch.set_num_threads(before)


def test_an_error_is_raised_when_all_parts_are_over_and_the_threads_live_on() -> None:
    together, over = Together(2), []

    def fails() -> None:
        raise RunError("a part failed", code="R05")

    for parts in ([fails, lambda: over.append(1)], [lambda: over.append(1), fails]):
        with pytest.raises(RunError, match="a part failed"):
            together(parts)
    assert over == [1, 1] and together([lambda: 1, lambda: 2]) == [1, 2]
    together.close()


@pytest.mark.parametrize("norm", ["no", "layer", "batch"])
@pytest.mark.parametrize("algorithm", [SAC, TD3, DDPG])
def test_any_number_of_threads_learns_the_same(algorithm: Any, norm: str) -> None:
    before = torch.get_num_threads()
    results = []
    for threads in (1, 2):
        made = learner(
            algorithm, critic={"hidden": [16, 16], "norm": norm, "tau": None if norm == "batch" else 0.005}, threads=threads
        )
        for update in range(8):
            made.clock.updates = update
            made.update(transitions(update))
            assert torch.get_num_threads() == 1, "operations on two threads each wait for each other"
        results.append({name: array.copy() for name, array in made.params().items()})
        made.close()
    torch.set_num_threads(before)
    for name, array in results[0].items():
        np.testing.assert_array_equal(results[1][name], array, err_msg=name)
