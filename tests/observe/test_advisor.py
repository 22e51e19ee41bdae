"""One line says what limits a run."""

from __future__ import annotations

from typing import Any

import pytest

from srl.observe.advisor import advise
from srl.observe.report import Report, StreamRow, WorkerRow


def report(*workers: WorkerRow, cores: int = 2, streams: tuple[StreamRow, ...] = ()) -> Report:
    return Report(experiment="x", elapsed=60, env_steps=1, cores=cores, workers=workers, streams=streams)


def actors(busy: float, cpu: float, **more: Any) -> WorkerRow:
    return WorkerRow(kind="actors", role="actor", count=2, busy=busy, cpu=cpu, **more)


def trainer(busy: float, cpu: float, **more: Any) -> WorkerRow:
    return WorkerRow(kind="trainer", busy=busy, cpu=cpu, **more)


SLAB = {"slab": 0.7}
CASES = [
    (
        report(actors(0.99, 1.98, shares={"env step": 0.71, "policy": 0.2}), trainer(0.3, 0.0, waits=SLAB)),
        "actors are the limit: CPU-bound 99 %; env step is 71 % of actor time; "
        "no core is free: try a faster env or a vectorised one",
    ),
    (
        report(actors(0.99, 1.98), trainer(0.3, 0.3, waits=SLAB), cores=8),
        "actors are the limit: CPU-bound 99 %; 5.7 cores are free: try more actors",
    ),
    (
        report(actors(0.97, 0.2), trainer(0.3, 0.3), cores=8),
        "actors are the limit: busy 97 %; 7.5 cores are free: try more actors",
    ),
    (
        report(actors(0.4, 0.8, waits={"credit": 0.6}), trainer(0.98, 1.2)),
        "the trainer is the limit: CPU-bound 98 %; no core is free: try fewer epochs or larger minibatches",
    ),
    (
        report(actors(0.6, 1.2), trainer(0.8, 0.78)),
        "the cores are the limit: 2.0 of 2 in use (actors 1.2 and trainer 0.8)",
    ),
    (
        report(actors(0.8, 0.0), trainer(0.92, 0.0)),
        "the trainer is the limit: busy 92 %; no core is free: try fewer epochs or larger minibatches",
    ),
    (
        report(actors(0.5, 0.5, waits={"answer": 0.4, "credit": 0.1}), trainer(0.5, 0.5, waits={"slab": 0.5})),
        "nobody is busy all the time, they wait for each other: actors waits for answer 40 %; trainer waits for slab 50 %; "
        "more groups per actor or a higher staleness.max would overlap them",
    ),
    (report(), ""),
    (report(actors(0.0, 0.0)), ""),
]


@pytest.mark.parametrize(("given", "text"), CASES)
def test_the_advice_names_the_limit(given: Report, text: str) -> None:
    assert advise(given) == text


def test_what_is_dropped_on_purpose_is_no_loss() -> None:
    ended = StreamRow(name="samples", put=100, drops={"stop": 20, "barrier": 20, "stale": 1})
    assert "lost" not in advise(report(actors(0.99, 1.98), streams=(ended,)))


def test_a_stream_that_loses_much_is_named() -> None:
    lossy = StreamRow(name="samples", put=1000, drops={"stale": 80, "oversize": 20})
    fine = StreamRow(name="view", put=1000, drops={"busy": 10})
    text = advise(report(actors(0.99, 1.98), streams=(fine, lossy)))
    assert text.endswith("; samples lost 10 % of its records (stale 80)")
