"""How the update of SAC uses the machine where the file says nothing, and why."""

from __future__ import annotations

from typing import Any

import pytest

from srl.config.experiment import read_experiment
from srl.core.learner import split_config
from srl.core.machine import Machine
from srl.graph.check import check_resources, notes
from srl.graph.decide import Decided, decide
from srl.plan.lines import plan_lines
from tests.errors import raises


def decided(machine: Machine, **settings: Any) -> Decided:
    return decide(read_experiment({"env": "Pendulum-v1", "algorithm": "sac", **settings}), machine=machine)


def cores(number: int, gpus: int = 0) -> Machine:
    return Machine(number, gpus, 1 << 34)


CROSSQ = {"use": "sac", "critic": {"norm": "batch", "tau": None}}


@pytest.mark.parametrize(
    ("machine", "settings", "learner", "threads", "why"),
    [
        (cores(1), {}, "single", 1, "learner on 1 thread: 1 usable core"),
        (cores(2), {}, "split", 1, "2 usable cores; two threads of one process are slower"),
        (cores(8), {"mode": "inline"}, "single", 2, "mode=inline has one process"),
        (cores(8), {"algorithm": CROSSQ}, "single", 2, "batch normalization of critics"),
        (cores(8, 1), {}, "single", 1, "learner on cuda: actor and critics share it"),
        (cores(8, 2), {}, "single", 1, "learner=split would use two GPUs, which was never measured"),
        (cores(8, 1), {"device": "cpu"}, "split", 1, "8 usable cores"),
        (cores(8), {"workers": {"trainer": {"count": 2}}}, "single", 1, "2 trainers compute at the same time"),
    ],
)
def test_the_learner_is_chosen_by_cores_devices_and_batch(
    machine: Machine, settings: Any, learner: str, threads: int, why: str
) -> None:
    found = decided(machine, **settings)
    node = found.graph.node("trainer")
    assert (node.loaded.learner.use, node.threads, found.experiment.learner.use) == (learner, threads, learner)
    assert why in found.why[-1]


SPLIT = {"learner": {"use": "split"}}


@pytest.mark.parametrize(
    ("machine", "settings", "learner", "devices"),
    [
        (cores(2), SPLIT, "split", ("cpu", "cpu")),
        (cores(2, 1), SPLIT, "split", ("cpu", "cpu")),
        (cores(2, 2), SPLIT, "split", ("cuda:0", "cuda:1")),
        (cores(2, 2), {**SPLIT, "device": "cpu"}, "split", ("cpu", "cpu")),
        (cores(2, 2), {"layout": "spreeze"}, "split", ("cuda:0", "cuda:1")),
        (cores(2), {"layout": "spreeze"}, "split", ("cpu", "cpu")),
        (cores(8, 1), {"layout": "spreeze"}, "single", None),
    ],
)
def test_a_split_learner_has_two_devices_of_a_kind(machine: Machine, settings: Any, learner: str, devices: Any) -> None:
    found = decided(machine, **settings)
    check_resources(found.graph, machine)
    node = found.graph.node("trainer")
    split = split_config(node.loaded.learner)
    assert node.loaded.learner.use == learner and (split.devices if split is not None else None) == devices
    again = decide(found.experiment, machine=machine)
    assert again.graph == found.graph


@pytest.mark.parametrize(("gpus", "has"), [(0, "no GPU"), (1, "1 GPU")])
def test_a_split_learner_without_two_gpus_is_refused_where_cuda_is_asked_for(gpus: int, has: str) -> None:
    with raises("E08", "learner", match=f"a split learner needs two GPUs, but this machine has {has}"):
        decided(cores(4, gpus), **SPLIT, device="cuda")


def test_settings_of_a_split_learner_without_effect_are_noted() -> None:
    found = decided(cores(4), learner={"use": "split", "max_lag": 3})
    assert [text for text in notes(found.graph, cores(4)) if "max_lag has no effect with mode: simultaneous" in text]
    assert [text for text in notes(found.graph, cores(1)) if "actor and critics share 1 usable core" in text]
    assert not [text for text in notes(found.graph, cores(2)) if "learner split" in text]
    there = decided(cores(4), learner={"use": "split", "max_lag": 3, "mode": "asynchronous"})
    assert not [text for text in notes(there.graph, cores(4)) if "learner" in text]


@pytest.mark.parametrize("how", [{"learner": "single"}, {"workers": {"trainer": {"learner": "single"}}}])
def test_a_learner_that_is_named_is_kept(how: Any) -> None:
    found = decided(cores(8), replay={"batch": 4_096}, **how)
    node = found.graph.node("trainer")
    assert (node.loaded.learner.use, node.threads) == ("single", 2)
    assert "learner" not in " ".join(found.why)


@pytest.mark.parametrize(
    ("settings", "where"),
    [
        ({"learner": {"use": "single", "devices": ["cpu", "cpu"]}}, "learner"),
        ({"workers": {"trainer": {"learner": {"use": "single", "devices": ["cpu", "cpu"]}}}}, "workers.trainer.learner"),
    ],
)
def test_a_setting_that_a_learner_does_not_have_is_named_where_it_was_written(settings: Any, where: str) -> None:
    with raises("E02", f"{where}.devices", match=f"'{where}' has no setting 'devices'"):
        decided(cores(4), **settings)


def test_threads_that_the_file_names_are_kept_and_need_no_reason() -> None:
    found = decided(cores(8), workers={"trainer": {"threads": 2}})
    assert found.graph.node("trainer").threads == 2 and "learner" not in " ".join(found.why)


def test_the_plan_says_which_device_does_what() -> None:
    def trainer(machine: Machine, **settings: Any) -> str:
        graph = decided(machine, **settings).graph
        lines = dict(plan_lines(graph, machine))["workers"].splitlines()
        return next(line for line in lines if line.startswith("trainer"))

    assert trainer(cores(2), mode="inline").endswith(", on cpu with 2 threads")
    assert "; actor on cpu, critics on cpu in a process of their own" in trainer(cores(2))
    assert trainer(cores(2, 1)).endswith(", on cuda")
    assert trainer(cores(4, 2), workers={"trainer": {"count": 2}}).endswith(", on cuda:0 to cuda:1")
    assert trainer(cores(2, 2), **SPLIT).endswith("; actor on cuda:0, critics on cuda:1, simultaneous")


def test_an_algorithm_without_parts_has_one_thread_and_no_reason() -> None:
    found = decided(cores(8), algorithm="ppo")
    assert found.graph.node("trainer").threads == 1 and "learner" not in " ".join(found.why)
