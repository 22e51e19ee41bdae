"""Settings of the learners, without torch: they are checked before anything starts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from srl.core.errors import SettingError
from srl.core.load import option


@dataclass(frozen=True, kw_only=True)
class SingleConfig:
    """Settings of the learner on one device."""

    order: Literal["simultaneous", "sequential"] = option(
        "simultaneous",
        "of actor and critics (sac, td3, ddpg). simultaneous: each learns from the other as it was before the update;"
        " sequential: the critics move first",
    )


@dataclass(frozen=True, kw_only=True)
class SplitConfig:
    """Settings of the learner on two devices: the actor on one, the critics on the other."""

    devices: tuple[str, str] = option(
        ("cpu", "cpu"), "of actor and critics: [cpu, cpu], a process and a core for each, or [cuda:0, cuda:1]"
    )
    mode: Literal["exact", "simultaneous", "asynchronous"] = option(
        "simultaneous",
        "exact: the critics move first, and actions and gradients cross; simultaneous: both learn at once from the other's"
        " parameters before the update; asynchronous: from the newest ones, without waiting",
    )
    max_lag: int = option(4, "asynchronous: updates that one side may be ahead of the other; 0: simultaneous", low=0, high=64)
    pin: bool = option(True, "keep each process on a core of its own, where there are two")

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
