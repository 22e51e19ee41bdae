"""When a run is over."""

from __future__ import annotations

from typing import Any

import pytest
from rig import graph

from srl.control.failures import reached
from srl.core.readings import Reading
from srl.core.types import Stop
from srl.observe.totals import Totals
from srl.workers.messages import ProcessReport, WorkerReport


def seen(mean: float = 0.0, *, episodes: int = 0, finished: bool = False) -> Totals:
    totals = Totals(graph())
    reading: dict[str, Any] = {"env_steps": ["count", 1000]}
    if episodes:
        reading["episode/return"] = ["episode", mean * episodes, float(episodes)]
    report = WorkerReport(Reading.from_plain(reading), 0.0, (), finished, {})
    totals.take("counter/0", ProcessReport(1.0, 0.0, 1, {"counter/0": report}))
    return totals


@pytest.mark.parametrize(
    ("stop", "totals", "expected"),
    [
        ({}, {"mean": 500.0, "episodes": 100}, None),
        ({"episode_return": 475.0}, {"mean": 500.0, "episodes": 100}, ("solved", "mean return 500 over the last 100 episodes")),
        ({"episode_return": 475.0}, {"mean": 500.0, "episodes": 99}, None),
        ({"episode_return": 475.0}, {"mean": 470.0, "episodes": 100}, None),
        ({"seconds": 0.0}, {}, ("done", "reached stop.seconds=0")),
        ({"seconds": 3600.0}, {}, None),
        ({"episode_return": 475.0}, {"mean": 500.0, "episodes": 100, "finished": True}, ("done", "1,000 env steps, 0 updates")),
    ],
)
def test_a_run_ends_when_a_stop_condition_holds(stop: Any, totals: Any, expected: Any) -> None:
    ending = reached(Stop(**stop), seen(**totals))
    assert (ending and (ending.kind, ending.text)) == expected
