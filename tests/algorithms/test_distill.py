"""Distillation: its loss against a loop over rows, and a student that comes to act like its teacher."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import srl
from srl.algorithms.distill import Distill
from srl.api.env import Box, Discrete
from srl.core.spec import Leaf
from srl.core.types import Component
from srl.nets.recurrent import Recurrent
from srl.suites.algorithm import check_algorithm
from srl.suites.trial import shaken
from tests.algorithms.slabs import make, record, train
from tests.errors import raises

PENDULUM = Box((1,), (-2.0,), (2.0,))


@pytest.fixture(scope="module")
def teachers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Runs of one update: their policies are as good as any for learning to act like them."""
    found = {}
    for env, policy in (("CartPole-v1", "actor_critic"), ("Pendulum-v1", "actor_critic"), ("Acrobot-v1", "recurrent")):
        run = srl.launch(
            env=env, algorithm={"use": "ppo", "normalize_value": True, "lr": 0.02}, policy={"use": policy, "hidden": [16]},
            sampling={"envs": 2, "steps": 16}, stop={"updates": 3}, evaluation=None, mode="inline",
            runs=tmp_path_factory.mktemp("runs"), quiet=True,
        )  # fmt: skip
        found[env] = str(run.folder)
    return found


def student(teacher: str, kind: str = "choice", **settings: Any) -> Any:
    action, obs = (Discrete(2), Leaf((4,), "float32")) if kind != "real" else (PENDULUM, Leaf((3,), "float32"))
    more = {key: settings.pop(key) for key in ("policy", "policy_config", "memory_every") if key in settings}
    made = {"policy_config": {"hidden": [16]}, **more}
    return make(action, obs=obs, algorithm=Distill, config={"teacher": teacher, "lr": 3e-3, **settings}, **made)


@pytest.mark.parametrize("divergence", ["forward", "reverse"])
@pytest.mark.parametrize("kind", ["choice", "real"])
def test_the_loss_is_that_of_a_loop_over_rows(kind: str, divergence: str, teachers: dict[str, str]) -> None:
    learner = student(teachers["Pendulum-v1" if kind == "real" else "CartPole-v1"], kind, divergence=divergence)
    learner.policy.load(shaken(learner.policy, 0.3), 0)
    algorithm: Distill = learner.algorithm
    batch = learner.intake.batch(record(learner), 0)
    same = algorithm.ask(batch)
    (mini,) = batch.minibatches(4096)
    with torch.no_grad():
        kl, error = algorithm.loss(mini, learner.policy.unroll(mini), same)
        teacher = algorithm.teacher
        theirs, ours = ({name: head.numpy() for name, head in one.unroll(batch).items()} for one in (teacher, learner.policy))
    divergences, distances = [], []
    for t, b in np.argwhere(batch.valid.numpy()):
        pair = (theirs, ours) if divergence == "forward" else (ours, theirs)
        if kind == "real":
            total = 0.0
            for i in range(1):
                (m, s), (n, r) = ((one["logits"][t, b, i], np.exp(one["log_std"][i])) for one in pair)
                total += np.log(r / s) + (s**2 + (m - n) ** 2) / (2 * r**2) - 0.5
        else:
            p, q = (np.exp(one["logits"][t, b]) / np.exp(one["logits"][t, b]).sum() for one in pair)
            total = sum(p[i] * np.log(p[i] / q[i]) for i in range(2))
        divergences.append(total)
        distances.append(0.5 * (ours["value"][t, b] - theirs["value"][t, b]) ** 2)
    assert float(kl) == pytest.approx(np.mean(divergences), rel=1e-4)
    assert float(error) == pytest.approx(np.mean(distances), rel=1e-4)


@pytest.mark.parametrize("kind", ["choice", "real", "memory"])
def test_a_student_comes_to_act_like_its_teacher(kind: str, teachers: dict[str, str]) -> None:
    more: dict[str, Any] = {}
    if kind == "memory":
        more = {"policy": Recurrent, "policy_config": {"hidden": [16], "width": 16}, "window": 4, "memory_every": 4}
    learner = student(teachers["Pendulum-v1" if kind == "real" else "CartPole-v1"], kind, lr=0.01, epochs=8, **more)
    learner.algorithm.teacher.load(shaken(learner.algorithm.teacher, 0.5), 0)
    kept = {name: one.clone() for name, one in learner.algorithm.teacher.state_dict().items()}
    first, *_, last = [train(learner, record(learner, seed=update)) for update in range(25)]
    share = 0.5 if kind == "memory" else 0.2
    assert last["kl"] < share * first["kl"] and last["value_error"] < share * first["value_error"]
    moments = [one.value_head.moments for one in (learner.policy, learner.algorithm.teacher)]
    assert torch.equal(*moments)
    assert all(torch.equal(one, kept[name]) for name, one in learner.algorithm.teacher.state_dict().items())


def test_it_passes_the_suite_of_algorithms(teachers: dict[str, str]) -> None:
    report = check_algorithm(
        Component("distill", {"teacher": teachers["CartPole-v1"]}),
        Component("actor_critic", {"hidden": [8]}),
        Component("CartPole-v1"),
    )
    assert report.holds, "\n".join(report.lines())
    assert {one.name for one in report.findings if not one.tried} == {"masks", "truncation"}


def test_teachers_that_cannot_teach_are_refused(teachers: dict[str, str]) -> None:
    with raises("E10", match=r"observations and actions of its student[^$]*float32"):
        student(teachers["Pendulum-v1"], policy_config={"hidden": [8]})
    with raises("E10", match="must be a policy without memory"):
        student(teachers["Acrobot-v1"])


@pytest.mark.long
def test_a_student_of_cartpole_reaches_the_return_of_its_teacher(tmp_path: Path) -> None:
    teacher = srl.launch("cartpole", runs=tmp_path, quiet=True)
    run = srl.launch(
        env="CartPole-v1", algorithm={"use": "distill", "teacher": str(teacher.folder)}, policy={"hidden": [32]},
        sampling={"envs": 32, "steps": 32}, stop={"env_steps": 150_000}, runs=tmp_path, quiet=True,
    )  # fmt: skip
    assert [row["episode/return"] for row in run.metrics() if "episode/return" in row][-1] >= 450
