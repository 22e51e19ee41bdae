"""Policy workers: which version answers, and when."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import srl.workers.policy as policy_room
from srl.core.spec import lead, zeros
from srl.streams.base import version
from tests.workers.stage import Stage

ENVS = 2
ONE: dict[str, Any] = {
    "env": {"use": "fake", "length": [3, 6]},
    "algorithm": "ppo",
    "sampling": {"envs": 4, "steps": 4, "workers": 1},
    "evaluation": None,
}


def stage(*overrides: str, groups: int = 1) -> Stage:
    return Stage("policy", ONE, *overrides, groups=groups, units=ENVS)


def ask(on: Stage, group: int = 0, min_version: int = 0) -> None:
    rows: Any = zeros(lead(on.derived.policies["main"].question, ENVS))
    rows["keys"][...] = np.arange(ENVS).reshape(-1, 1) + 1
    on.ends["asks"].post(group, rows, min_version)


def publish(on: Stage, number: int) -> None:
    tree: Any = zeros(on.derived.policies["main"].published)
    on.ends["params"].publish(number, tree)


def test_nothing_is_answered_before_the_first_weights() -> None:
    with stage() as on:
        ask(on)
        assert on.poll() == 0
        assert [waiting.what for waiting in on.worker.waits()] == ["parameters"]
        publish(on, version(0, 0))
        assert on.poll() == ENVS
        answer = on.ends["asks"].ready(0)
        assert answer is not None and answer.version == version(0, 0)


def test_the_newest_weights_answer_and_a_question_waits_for_those_it_needs() -> None:
    with stage() as on:
        publish(on, version(0, 3))
        on.poll()
        ask(on, min_version=version(0, 4))
        assert on.poll() == 0 and on.ends["asks"].ready(0) is None
        publish(on, version(0, 4))
        publish(on, version(0, 5))
        assert on.poll() == ENVS
        assert on.ends["asks"].ready(0).version == version(0, 5)
        assert on.worker.reading["version"] == 5


def test_what_has_queued_is_answered_together_up_to_max_batch() -> None:
    with stage("workers.policy.max_batch=4", groups=3) as on:
        publish(on, 0)
        for group in range(3):
            ask(on, group)
        assert on.poll() == 2 * ENVS
        assert [on.ends["asks"].ready(group) is None for group in range(3)] == [False, False, True]
        assert on.poll() == ENVS


def test_the_same_question_has_the_same_answer_in_any_batch() -> None:
    with stage("workers.policy.max_batch=100", groups=3) as on:
        publish(on, 0)
        ask(on)
        on.poll()
        alone = np.copy(on.ends["asks"].ready(0).tree["action"])
        for group in range(3):
            ask(on, group)
        on.poll()
        for group in range(3):
            np.testing.assert_array_equal(on.ends["asks"].ready(group).tree["action"], alone)


def test_few_questions_wait_for_others_but_not_longer_than_max_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    with stage("workers.policy.min_batch=4", "workers.policy.max_wait=5", groups=2) as on:
        publish(on, 0)
        ask(on)
        assert on.poll() == 0
        due = on.worker.wake_at()
        assert due is not None and 0 < due - policy_room.time.monotonic() <= 5
        ask(on, 1)
        assert on.poll() == 2 * ENVS, "enough have come"
        ask(on)
        assert on.poll() == 0
        monkeypatch.setattr(on.worker._asks, "waiting", lambda: (ENVS, 5.1))
        assert on.poll() == ENVS, "the first has waited long enough"


def test_a_barrier_drops_the_questions() -> None:
    with stage() as on:
        publish(on, 0)
        ask(on)
        on.worker.barrier(1)
        assert on.poll() == 0 and on.worker.state() == {}
