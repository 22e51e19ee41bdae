"""Settings of the learners of this package, and what they ask of the machine: checked before anything starts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from srl.core.errors import SettingError, UserError
from srl.core.load import load, option
from srl.core.machine import Machine
from srl.core.registry import BUILTIN, IN_PARTS
from srl.core.text import count
from srl.core.types import Component
from srl.core.where import Path


@dataclass(frozen=True, kw_only=True)
class SingleConfig:
    """Settings of the learner on one device."""

    order: Literal["simultaneous", "sequential"] = option(
        "simultaneous",
        "of actor and critics (sac, td3, ddpg). simultaneous: each learns from the other as it was before the update;"
        " sequential: the critics are updated first",
    )
    prefetch: bool | None = option(
        None, "copy the next batch to the device during an update; null: if the device is a GPU (not with mode=inline)"
    )


@dataclass(frozen=True, kw_only=True)
class SplitConfig:
    """Settings of the learner on two devices: the actor on one, the critics on the other."""

    devices: tuple[str, str] = option(
        ("cpu", "cpu"), "of actor and critics: [cpu, cpu], a process and a core for each, or [cuda:0, cuda:1]"
    )
    mode: Literal["exact", "simultaneous", "asynchronous"] = option(
        "simultaneous",
        "exact: the critics are updated first, and actions and gradients are exchanged; simultaneous: both learn from the other's"
        " parameters before the update; asynchronous: from the newest ones, without waiting",
    )
    max_lag: int = option(4, "asynchronous: updates that one side may be ahead of the other; 0: simultaneous", low=0, high=64)
    pin: bool = option(True, "keep each process on a core of its own, if there are at least two")

    def __post_init__(self) -> None:
        kinds = {one.partition(":")[0] for one in self.devices}
        if kinds not in ({"cpu"}, {"cuda"}):
            raise SettingError("devices", f"must be [cpu, cpu] or two GPUs, not [{', '.join(self.devices)}]")
        if kinds == {"cuda"} and len(set(self.devices)) == 1:
            raise SettingError(
                "devices", f"must be two GPUs, not {self.devices[0]} twice", ("try", "learner=single, or [cuda:0, cuda:1]")
            )

    @property
    def lag(self) -> int:
        """Updates that one side may be ahead. In mode exact what crosses holds them together."""
        return self.max_lag if self.mode == "asynchronous" else int(self.mode == "exact")

    @property
    def runs(self) -> str:
        """What runs where, in words."""
        actor, critics = self.devices
        where = f"actor on {actor}, critics on {critics}"
        lag = f", at most {count(self.max_lag, 'update')} apart" if self.mode == "asynchronous" else ""
        return f"{where}{' in a process of their own' if actor == 'cpu' else ''}, {self.mode}{lag}"

    def check(self, machine: Machine, path: Path) -> None:
        """E08 if the machine does not have these devices."""
        missing = [one for one in self.devices if not one.startswith("cpu") and one not in _gpus(machine)]
        if missing:
            there = count(machine.gpus, "GPU") if machine.gpus else "no GPU"
            raise _too_much(f"the learner needs device {missing[0]}, but this machine has {there}", machine, path)
        if self.devices == ("cpu", "cpu") and machine.cores < 2:
            raise _too_much("actor and critics need a core each, but this machine has 1 usable core", machine, path)


CONFIGS: dict[str, type] = {"single": SingleConfig, "split": SplitConfig}
"""Settings of the learners that come with the package."""


def split_config(learner: Component | None) -> SplitConfig | None:
    """The settings, if this learner is split over two devices."""
    return load(SplitConfig, learner.args, path="learner") if learner is not None and learner.use == "split" else None


def check_learner(learner: Component, *, algorithm: str, threads: int, path: Path) -> None:
    """UserError if a learner of this package cannot run this algorithm with these settings."""
    if learner.use not in CONFIGS:
        return
    found: Any = load(CONFIGS[learner.use], learner.args, path=path)
    if isinstance(found, SplitConfig) and algorithm in BUILTIN["algorithm"] and algorithm not in IN_PARTS:
        raise UserError(
            f"algorithm {algorithm} cannot be split over two devices: its update has no parts",
            ("try", f"learner=single, or one of {', '.join(sorted(IN_PARTS))}"),
            code="E10",
            path=path,
        )
    if isinstance(found, SplitConfig) and threads > 1:
        raise UserError(
            f"a split learner uses one thread on each side, not {threads}",
            ("try", "workers.trainer.threads=1, or learner=single, whose parts share the threads"),
            code="E10",
            path=path,
        )


def prefetches(device: str, wanted: bool | None) -> bool:
    """Whether a learner on one device copies batches ahead. `wanted`: its setting."""
    return device != "cpu" if wanted is None else wanted


def copies_ahead(learner: Component, device: str) -> bool:
    """The same of a learner that is not made yet."""
    return learner.use == "single" and prefetches(device, load(SingleConfig, learner.args, path="learner").prefetch)


def _gpus(machine: Machine) -> Sequence[str]:
    return [f"cuda:{number}" for number in range(machine.gpus)]


def _too_much(headline: str, machine: Machine, path: Path) -> UserError:
    instead = "learner.devices=[cpu, cpu], or learner=single" if machine.cores > 1 else "learner=single"
    return UserError(headline, ("try", instead), code="E08", path=path)
