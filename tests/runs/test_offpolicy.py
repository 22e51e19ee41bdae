"""Off-policy runs: every row that is drawn is right, and the updates per env step are held."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import srl

WITNESS = f"{Path(__file__).parent / 'witness.py'}:Witness"
FAKE = {
    "env": {"use": "fake", "length": [3, 9], "end": "random", "box": 2},
    "algorithm": {"use": WITNESS},
    "policy": {"hidden": [16]},
    "seed": 3,
}
SMALL = {"size": 400, "batch": 32, "warmup": 50}


def built(replay: dict[str, Any] | None = None, **settings: Any) -> Any:
    return srl.build(replay={**SMALL, **(replay or {})}, **{**FAKE, **settings})


@pytest.mark.parametrize(
    ("sampling", "env", "n_step"),
    [
        ({}, {}, 1),
        ({"envs": 3, "steps": 5}, {}, 3),
        ({"envs": 4, "steps": 7, "groups": 2, "workers": 2}, {"teams": {"agent": 2}}, 1),
        ({"envs": 2, "steps": 3}, {"teams": {"agent": 3}, "dying": True, "late": True}, 2),
        ({"envs": 2}, {"mask": True, "box": 0, "state": 4}, 1),
    ],
    ids=["one env", "n-step", "groups and agents", "agents that come and go", "masks and state"],
)
def test_every_row_that_is_drawn_is_what_an_env_wrote(sampling: Any, env: Any, n_step: int) -> None:
    """Over many rounds of the rings. The algorithm raises otherwise."""
    wanted = {"sampling": sampling, "env": {**FAKE["env"], **env}, "algorithm": {"use": WITNESS, "n_step": n_step}}
    with built({"updates_per_step": 0.2}, **wanted) as session:
        session.step(400)
        store = session.workers["replay/0"].store
        assert store.inserted > 4 * store.size
        assert session.algorithm.terminations and session.algorithm.truncations


@pytest.mark.parametrize(("rate", "steps"), [(1.0, 1), (0.25, 1), (4.0, 1), (1.0, 6), (0.1, 3)])
def test_inline_updates_follow_the_env_steps_exactly(rate: float, steps: int) -> None:
    """No slab is begun while an update is owed, and none trains before the warm-up."""
    sampling = {"envs": 2, "steps": steps}
    with built({"updates_per_step": rate, "warmup": 20}, sampling=sampling) as session:
        for _ in range(60):
            session.step()
            trainer, replay = session.workers["trainer/0"], session.workers["replay/0"]
            owed = rate * (replay.store.env_steps - 20)
            assert trainer.updates == replay.limiter.drawn <= owed
            assert owed < trainer.updates + 2 * steps * rate + 1
            assert trainer.env_steps == replay.store.env_steps > 20


def test_inline_runs_repeat() -> None:
    weights = []
    for _ in range(2):
        with built({"updates_per_step": 1.0}) as session:
            session.step(100)
            weights.append(session.workers["trainer/0"].learner.params())
            weights[-1] = {name: np.array(array) for name, array in weights[-1].items()}
    assert all((weights[0][name] == weights[1][name]).all() for name in weights[0])


def test_what_is_handed_back_reaches_the_replay() -> None:
    with built(algorithm={"use": WITNESS, "prioritised": True}) as session:
        session.step(50)
        ends = session.workers["trainer/0"].ends["feedback"], session.workers["replay/0"].ends["feedback"]
        session.step()
        assert ends[0].counts.put == 51 and ends[1].counts.taken >= 50 and not ends[0].counts.dropped


def test_the_policy_is_asked_once_for_every_env_step() -> None:
    """Nothing bootstraps from row T, so nobody asks about it."""
    with built(sampling={"envs": 2, "steps": 4}) as session:
        session.step(40)
        actor, policy = session.workers["actor/0"], session.workers["policy/0"]
        assert policy.reading["infer/rows"] - actor.reading["env_steps"] in (0, 2)


def test_evaluations_begin_where_they_are_due_though_few_versions_are_looked_at() -> None:
    wanted = {"evaluation": {"every": 300, "episodes": 2}, "stop": {"env_steps": 1000}}
    with built(**wanted) as session:
        session.step(900)
        evaluator = session.workers["evaluator/0"]
        assert next(iter(evaluator.ends.values())).counts.taken == 1 + 900 // 64
        assert evaluator._evaluations == 4
