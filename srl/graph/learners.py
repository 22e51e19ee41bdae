"""How the update of SAC, TD3 and DDPG uses the machine where nothing is said: one thread, two, or two processes."""

from __future__ import annotations

from dataclasses import dataclass

from srl.config.experiment import Experiment
from srl.core.errors import UserError
from srl.core.learner import CONFIGS, split_config
from srl.core.load import load
from srl.core.machine import Machine
from srl.core.registry import IN_PARTS
from srl.core.text import count
from srl.core.types import AUTO, Component
from srl.core.where import Path
from srl.graph.ranks import ranks_of


@dataclass(frozen=True, kw_only=True, slots=True)
class Chosen:
    """How the trainer of one policy computes."""

    learner: Component
    threads: int = 1
    why: str = ""
    """In words, if it was chosen here."""


def choose_learner(experiment: Experiment, machine: Machine, policy: str, *, device: str, apart: bool) -> Chosen:
    """What the file says; else what is fastest. That changes nothing of what is learned: all ways are the same, bit for bit.

    `apart`: the layout wants actor and critics to run without waiting for each other.
    """
    learner, path = learner_of(experiment, policy)
    if learner.use in CONFIGS:
        load(CONFIGS[learner.use], learner.args, path=path)
    is_auto = learner.use == AUTO
    if is_auto:
        learner = Component("split", {"mode": "asynchronous"}) if apart and _has_two(machine, device) else Component("single")
    algorithm, ranks = experiment.entries()[policy].algorithm, ranks_of(experiment, policy)
    if split_config(learner) is not None:
        return _on_devices(learner, experiment.device, machine)
    if algorithm is None or algorithm.use not in IN_PARTS:
        return Chosen(learner=learner)
    if any("threads" in experiment.workers.get(name, {}) for name in (f"trainer.{policy}", "trainer")):
        return Chosen(learner=learner)  # the file says how many
    cores = count(machine.cores, "usable core")
    if ranks > 1:
        return Chosen(learner=learner, why=f"learner on 1 thread: {ranks} trainers compute at the same time")
    if device != "cpu":
        more = "; learner=split would use two GPUs, which was never measured" if machine.gpus > 1 else ""
        return Chosen(learner=learner, why=f"learner on {device}: actor and critics share it{more}")
    if machine.cores < 2:
        return Chosen(learner=learner, why=f"learner on 1 thread: {cores}")
    if not is_auto:
        return Chosen(learner=learner, threads=2)
    if experiment.mode == "inline":
        return _two_threads("mode=inline has one process")
    if dict(algorithm.args.get("critic") or {}).get("norm") == "batch":
        return _two_threads("batch normalization of critics is split in mode exact only, which is not faster")
    why = f"learner split over two processes, for actor and critics: {cores}; two threads of one process are slower"
    return Chosen(learner=Component("split"), why=why)


def learner_of(experiment: Experiment, policy: str) -> tuple[Component, Path]:
    """What `workers:` says of the trainer of this policy or of all, else `learner:`, and where that stands."""
    for name in (f"trainer.{policy}", "trainer"):
        if "learner" in (said := experiment.workers.get(name, {})):
            path = ("workers", name, "learner")
            return load(Component, said["learner"], path=path), path
    return experiment.learner, ("learner",)


def _has_two(machine: Machine, device: str) -> bool:
    """Devices of a kind."""
    return (machine.cores if device == "cpu" else machine.gpus) >= 2


def _on_devices(learner: Component, device: str, machine: Machine) -> Chosen:
    """A split learner whose devices are not named has two GPUs, or else two cores. `device`: what the file says."""
    if "devices" in learner.args or device == "cpu" or (device == "auto" and not machine.gpus):
        return Chosen(learner=learner)
    if machine.gpus >= 2:
        return Chosen(learner=_named(learner, "cuda:0", "cuda:1"), why=f"learner split over 2 of {count(machine.gpus, 'GPU')}")
    if device == "auto":
        why = "learner split over two cores: actor and critics cannot share 1 GPU"
        return Chosen(learner=_named(learner, "cpu", "cpu"), why=why)
    raise UserError(
        f"a split learner needs two GPUs, but this machine has {count(machine.gpus, 'GPU') if machine.gpus else 'no GPU'}",
        ("try", "device=cpu, for a core each, or learner=single"),
        code="E08",
        path=("learner",),
    )


def _named(learner: Component, *devices: str) -> Component:
    return Component(learner.use, {**learner.args, "devices": list(devices)})


def _two_threads(why: str) -> Chosen:
    return Chosen(learner=Component("single"), threads=2, why=f"learner on 2 threads, for actor and critics: {why}")
