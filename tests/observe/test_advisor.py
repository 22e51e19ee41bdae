"""One line says what limits a run."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from srl.observe.advisor import advise
from srl.observe.report import Report, StreamRow, WorkerRow


def report(*workers: WorkerRow, cores: int = 2, streams: tuple[StreamRow, ...] = (), idle: float | None = None) -> Report:
    return Report(experiment="x", elapsed=60, env_steps=1, cores=cores, workers=workers, streams=streams, idle=idle)


def actors(busy: float, cpu: float, **more: Any) -> WorkerRow:
    return WorkerRow(kind="actors", role="actor", count=2, busy=busy, cpu=cpu, **more)


def trainer(busy: float, cpu: float, **more: Any) -> WorkerRow:
    return WorkerRow(kind="trainer", role="trainer", busy=busy, cpu=cpu, **more)


SLABS = {"slabs": 0.7}
CASES = [
    (
        report(actors(0.99, 1.98, shares={"env step": 0.71, "policy": 0.2}), trainer(0.3, 0.0, waits=SLABS)),
        "actors are the limit: CPU-bound 99 %; env step is 71 % of actor time; "
        "no core is free: try a faster env or a vectorised one",
    ),
    (
        report(actors(0.99, 1.98), trainer(0.3, 0.3, waits=SLABS), cores=8),
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
        "the cores are the limit: 2.0 of 2 in use (actor 1.2, trainer 0.8)",
    ),
    (
        report(actors(0.8, 0.0), trainer(0.92, 0.0)),
        "the trainer is the limit: busy 92 %; no core is free: try fewer epochs or larger minibatches",
    ),
    (
        report(actors(0.5, 0.5, waits={"answers": 0.4, "credit": 0.1}), trainer(0.5, 0.5, waits={"slabs": 0.5})),
        "no worker is saturated: actor waits for answers 40 %; trainer waits for slabs 50 %; "
        "try more groups per actor or a higher staleness.max",
    ),
    (
        replace(report(actors(0.1, 0.1), trainer(0.98, 1.95)), replay={"rows": 1.0}),
        "the trainer is the limit: CPU-bound 98 %; no core is free: try a smaller replay.updates_per_step",
    ),
    (
        replace(report(actors(0.1, 0.1, waits={"credit": 0.9}), trainer(0.5, 0.5)), replay={"rows": 1.0}),
        "no worker is saturated: actor waits for credit 90 %; try more groups per actor or a larger replay.ahead",
    ),
    (  # the policy's time is the actor's: it takes no cores of its own
        report(actors(0.3, 0.3), WorkerRow(kind="policy", role="policy", busy=0.9, inside="actor"), cores=2, idle=1.7),
        "the policy worker is the limit: busy 90 %; 1.7 cores are free: try more policy workers or a larger max_batch",
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


@pytest.mark.parametrize(
    ("workers", "idle", "text"),
    [
        (  # 0.7 of 2 cores in use by the run, all in use by others
            (actors(0.5, 0.4, waits={"credit": 0.5}), trainer(0.6, 0.3, waits={"slabs": 0.4})),
            0.0,
            "the machine is the limit: other programs use 1.3 of 2 cores, this run 0.7",
        ),
        (
            (actors(0.3, 0.3), trainer(0.95, 0.95)),
            0.0,
            "the trainer is the limit: CPU-bound 95 %; no core is free (other programs use 0.8 of 2): "
            "try fewer epochs or larger minibatches",
        ),
        (
            (actors(0.3, 0.3), trainer(0.95, 0.95)),
            0.75,
            "the trainer is the limit: CPU-bound 95 %; 0.8 cores are free: try more threads for the trainer",
        ),
        (
            (actors(0.6, 0.7), trainer(0.7, 0.7)),
            0.0,
            "the cores are the limit: 2.0 of 2 in use (actor 0.7, trainer 0.7, other programs 0.6)",
        ),
    ],
)
def test_the_advice_sees_the_load_of_other_programs(workers: tuple[WorkerRow, ...], idle: float, text: str) -> None:
    assert advise(report(*workers, idle=idle)) == text


def test_a_worker_of_any_kind_can_be_the_limit_but_an_evaluator_never_is() -> None:
    league = WorkerRow(kind="league", role="league", busy=0.95, cpu=0.95)
    evaluator = WorkerRow(kind="evaluator", role="evaluator", busy=1.0, cpu=1.0)
    text = advise(report(league, evaluator, cores=8))
    assert text.startswith("the league is the limit") and "more of them" in text


def test_a_slow_copy_of_an_env_is_named() -> None:
    slow = replace(report(actors(0.99, 1.98), trainer(0.3, 0.3, waits=SLABS)), metrics={"env/slow/7": 12.3, "env/slow/2": 4.0})
    assert advise(slow).endswith("; env 7 takes 12 times as long as the others")
