"""Why and when a run ends."""

from __future__ import annotations

from dataclasses import dataclass

from srl.core.errors import SrlError
from srl.core.types import Stop
from srl.observe.expectation import figure
from srl.observe.result import Kind
from srl.observe.totals import Totals


@dataclass(frozen=True, slots=True)
class Ending:
    """Why a run ends."""

    kind: Kind
    text: str = ""
    drain: bool = True
    error: SrlError | None = None


def reached(stop: Stop, totals: Totals) -> Ending | None:
    """The first stop condition that holds, or None."""
    mean = totals.episode_return
    if totals.finished:
        return Ending("done", f"{totals.env_steps:,} env steps, {int(totals.total('updates')):,} updates")
    if stop.episode_return is not None and mean is not None and mean >= stop.episode_return:
        return Ending("solved", f"mean return {figure(mean)} over the last 100 episodes")
    if stop.seconds is not None and totals.elapsed >= stop.seconds:
        return Ending("done", f"reached stop.seconds={stop.seconds:g}")
    return None
