"""Why a run ends, and when it is time to."""

from __future__ import annotations

from dataclasses import dataclass

from srl.control.watch import Watch
from srl.core.errors import SrlError
from srl.graph.spec import Stop
from srl.observe.verdict import Kind


@dataclass(frozen=True, slots=True)
class Ending:
    """Why a run ends."""

    kind: Kind
    text: str = ""
    drain: bool = True
    error: SrlError | None = None


def reached(stop: Stop, watch: Watch) -> Ending | None:
    """The first stop condition that holds; None: the run goes on."""
    mean = watch.episode_return
    if watch.finished:
        return Ending("done", f"{watch.env_steps:,} env steps, {int(watch.total('updates')):,} updates")
    if stop.episode_return is not None and mean is not None and mean >= stop.episode_return:
        return Ending("solved", f"mean return {mean:.1f} over the last 100 episodes")
    if stop.seconds is not None and watch.elapsed >= stop.seconds:
        return Ending("done", f"{stop.seconds:g} seconds are over")
    return None
