"""The life of a slab, as the other ends of an actor see it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from srl.core.errors import UserError
from srl.core.spec import lead, zeros
from srl.core.tree import map_tree
from srl.streams.base import version
from tests.workers.stage import Stage

STEPS, ENVS = 4, 3
ONE: dict[str, Any] = {
    "env": {"use": "fake", "length": [3, 6], "end": "random"},
    "algorithm": "ppo",
    "sampling": {"envs": ENVS, "steps": STEPS, "workers": 1, "groups": 1},
    "evaluation": None,
    "seed": 5,
}
TWO = ONE | {
    "env": {"use": "fake", "teams": {"red": 2, "blue": 1}, "length": [3, 6]},
    "policies": {"red": {"policy": "actor_critic", "algorithm": "ppo"}, "blue": {"policy": "actor_critic", "algorithm": "ppo"}},
    "agents": {"red*": "red", "blue*": "blue"},
}
TWO.pop("algorithm")
INFER, SAMPLES = "infer:main", "samples:main"


def answer(stage: Stage, port: str, number: int = 7) -> dict[str, Any] | None:
    """Answer one question with action 0; its rows."""
    asked = stage.ends[port].take(100, number)
    if asked is None:
        return None
    rows: dict[str, Any] = map_tree(np.copy, asked.rows)
    policy = stage.derived.policies[port.partition(":")[2] or "main"]
    asked.reply(zeros(lead(policy.answer, ENVS)), number)
    return rows


def play(stage: Stage, port: str = INFER) -> list[dict[str, Any]]:
    """Answer until a slab is full: its questions."""
    asked = []
    for _ in range(STEPS + 1):
        rows = answer(stage, port)
        assert rows is not None
        asked.append(rows)
        stage.poll()
    return asked


def test_without_a_credit_nothing_is_asked() -> None:
    with Stage("actor", ONE) as stage:
        assert stage.poll() == 0
        assert stage.ends[INFER].take(100, 1) is None
        assert [waiting.what for waiting in stage.worker.waits()] == ["credit"]


def test_a_slab_holds_the_rows_that_were_asked_and_begins_where_the_last_one_ended() -> None:
    with Stage("actor", ONE) as stage:
        consumer = stage.ends[SAMPLES]
        slabs = []
        for number in range(2):
            consumer.credit(number, 0)
            stage.poll()
            asked = play(stage)
            loan = consumer.get()
            assert loan is not None and loan.credit == number
            tree: Any = map_tree(np.copy, loan.tree)
            loan.release()
            np.testing.assert_array_equal(tree["obs"], np.stack([rows["obs"] for rows in asked]))
            np.testing.assert_array_equal(tree["first"], np.stack([rows["first"] for rows in asked]))
            assert tree["version"][0] == 7 and not tree["action"].any()
            slabs.append(tree)
        np.testing.assert_array_equal(slabs[0]["obs"][-1], slabs[1]["obs"][0])
        assert stage.worker.reading["env_steps"] == 2 * STEPS * ENVS


def test_the_first_row_is_answered_by_a_version_as_new_as_the_credit_says() -> None:
    with Stage("actor", ONE) as stage:
        stage.ends[SAMPLES].credit(0, version(0, 5))
        stage.poll()
        assert stage.ends[INFER].take(100, version(0, 4)) is None
        assert answer(stage, INFER, version(0, 5)) is not None


def test_noise_differs_from_row_to_row_and_from_agent_to_agent() -> None:
    with Stage("actor", ONE) as stage:
        stage.ends[SAMPLES].credit(0, 0)
        stage.poll()
        keys = np.concatenate([rows["keys"].ravel() for rows in play(stage)])
        assert len(np.unique(keys)) == len(keys)


def test_a_slab_is_opened_when_every_policy_has_a_credit() -> None:
    with Stage("actor", TWO) as stage:
        stage.ends["samples:red"].credit(0, 0)
        stage.poll()
        assert stage.ends["infer:red"].take(100, 1) is None
        stage.ends["samples:blue"].credit(0, 0)
        stage.poll()
        assert answer(stage, "infer:red") is not None
        assert stage.poll() == 0, "the answer of the other policy is missing"
        assert answer(stage, "infer:blue") is not None
        assert stage.poll() == ENVS


def test_drain_drops_the_open_slab_and_opens_no_other() -> None:
    with Stage("actor", ONE) as stage:
        for number in range(2):
            stage.ends[SAMPLES].credit(number, 0)
        stage.poll()
        assert stage.worker.drain()
        counts = stage.worker.ends[SAMPLES].counts
        assert (counts.put, counts.dropped) == (1, {"stop": 1})
        assert stage.poll() == 0 and stage.ends[SAMPLES].get() is None


def test_a_barrier_gives_the_credit_back_and_a_restored_actor_goes_on_alike() -> None:
    with Stage("actor", ONE) as straight, Stage("actor", ONE) as resumed:
        straight.ends[SAMPLES].credit(0, 0)
        straight.poll()
        answer(straight, INFER)
        straight.poll()  # two rows into the slab
        straight.worker.barrier(1)
        assert straight.ends[SAMPLES].unused_credits == 1
        resumed.worker.restore(straight.worker.state())
        resumed.ends[SAMPLES].credit(0, 0)
        trees = []
        for stage in (straight, resumed):
            stage.poll()
            play(stage)
            trees.append(stage.ends[SAMPLES].get().tree)
        for name in ("obs", "first", "valid", "reward", "terminated", "truncated"):
            np.testing.assert_array_equal(trees[0][name], trees[1][name])


def test_an_observation_that_is_not_finite_stops_the_run_before_its_slab_is_sent() -> None:
    with Stage("actor", ONE) as stage:
        stage.ends[SAMPLES].credit(0, 0)
        group = stage.worker.groups[0]
        step = group.env.step

        def broken(actions: Any, out: Any) -> None:
            step(actions, out)
            out.teams["agent"].obs[1, 0, 2] = np.nan

        group.env.step = broken
        stage.poll()
        with pytest.raises(UserError) as caught:
            play(stage)
        assert caught.value.code == "E05" and dict(caught.value.facts)["key"] == "obs"
        assert stage.loop.at_fault == "actor/0"
        assert stage.ends[SAMPLES].get() is None
