"""What the controller adds up: staleness by stream, returns by team, advice that ends with the work."""

from __future__ import annotations

import io
import json
import math
from pathlib import Path
from typing import Any

import pytest
from rig import graph, with_node

from srl.control.runlog import RunLog
from srl.core.readings import Reading
from srl.core.types import BoundEnd, Component, Counts, PolicyEntry
from srl.observe.report import Evaluation
from srl.observe.result import RunResult
from srl.observe.screen import line, screen
from srl.observe.sinks.base import Sink
from srl.observe.sinks.console import Console
from srl.observe.totals import Totals
from srl.store import checkpoint
from srl.store.lines import read_lines, read_numbers
from srl.store.run_folder import RunFolder
from srl.workers.messages import ProcessReport, WorkerReport


def totals() -> Totals:
    done = Totals(with_node(graph(), "adder", worker="trainer"), cores=2)
    for worker, port, side in (("counter/0", "out", "producer"), ("adder/0", "in", "consumer")):
        done.ends.bound(BoundEnd("numbers", worker, port, side, {}, slots=4))
    return done


def entry(worker: str, port: str, *, reading: Any = None, at: float = 1.0, cpu: float = 0.5) -> Any:
    report = WorkerReport(Reading.from_plain(reading or {}), 0.92 * at, (), False, {port: Counts(1, 1, 1, 8)})
    return ProcessReport(at, cpu, 1, {worker: report})


def lag(low: float, high: float, total: float, number: float) -> Any:
    return {"reading": {"stream/numbers/staleness": ["spread", total, number, low, high]}}


def test_staleness_is_of_the_whole_run_but_its_mean_of_the_row() -> None:
    seen = totals()
    assert seen.report().streams[0].staleness is None
    seen.take("adder/0", entry("adder/0", "in", **lag(1, 3, 8, 4)))
    assert seen.report().streams[0].staleness == (1, 2, 3)
    row = seen.report().metrics
    assert [row[f"stream/numbers/staleness_{name}"] for name in ("min", "mean", "max")] == [1, 2, 3]
    seen.forget("adder/0", ["adder/0"], [], {})
    seen.take("adder/0", entry("adder/0", "in", **lag(0, 2, 2, 2)))  # a new incarnation
    row = seen.report().metrics
    assert [row[f"stream/numbers/staleness_{name}"] for name in ("min", "mean", "max")] == [0, 1, 3]
    assert seen.report().streams[0].staleness == (0, 1, 3)


@pytest.mark.parametrize(
    ("names", "text"),
    [(["episode/return"], "7"), (["episode/return/hider", "episode/return/seeker"], "hider 7, seeker 8")],
)
def test_the_last_line_names_the_return_of_every_team(names: list[str], text: str) -> None:
    seen = totals()
    reading = {name: ["episode", 100.0 * (7 + place), 100.0] for place, name in enumerate(names)}
    seen.take("counter/0", entry("counter/0", "out", reading=reading))
    result = RunLog(graph(), seen, None, None).finish(RunResult(kind="done"))
    assert ("return", f"{text} (last 100 episodes)") in result.summary
    assert seen.episode_return is not None and math.isclose(seen.episode_return, 7.0)


def test_the_last_line_says_of_how_few_episodes_the_return_is() -> None:
    seen = totals()
    seen.take("counter/0", entry("counter/0", "out", reading={"episode/return": ["episode", 70.0, 10.0]}))
    result = RunLog(graph(), seen, None, None).finish(RunResult(kind="done"))
    assert ("return", "7 (last 10 episodes)") in result.summary and seen.episode_return is None


def test_a_process_that_is_gone_uses_nothing_which_is_not_zero() -> None:
    seen = totals()
    seen.take("adder/0", entry("adder/0", "in"))
    assert {"cpu/adder", "rss/adder", "busy/adder"} <= seen.report().metrics.keys()
    seen.forget("adder/0", ["adder/0"], [], {})
    assert not {"cpu/adder", "rss/adder"} & seen.report().metrics.keys()


def test_advice_stays_as_it_was_when_the_run_comes_to_rest() -> None:
    seen = totals()
    for at in (1.0, 2.0):
        seen.take("adder/0", entry("adder/0", "in", at=at, cpu=0.95 * at))
    advice = seen.report().advice
    assert advice.startswith("the trainer is the limit: CPU-bound 92 %")
    seen.resting = True
    for at in (3.0, 30.0):
        seen.take("adder/0", entry("adder/0", "in", at=at, cpu=1.9))
    seen.forget("adder/0", ["adder/0"], [], {})
    assert seen.report().advice == advice


def test_the_result_names_the_newest_whole_step_not_the_best_or_the_first(tmp_path: Path) -> None:
    learning = PolicyEntry(policy=Component(use="p"), algorithm=Component(use="a"))
    arrays: Any = {"policy": {"w": [0.0]}}
    for names, expected in ((["main"], "step_000000200"), (["hider", "seeker"], "seeker/step_000000200")):
        folder = RunFolder.create(tmp_path, "rig", 1)
        work = graph(policies=dict.fromkeys(names, learning))
        record = RunLog(work, Totals(work), folder, None)
        places = [folder.checkpoints / name if len(names) > 1 else folder.checkpoints for name in names]
        for step, place in zip((100, 200), [places[0], places[-1]], strict=True):
            checkpoint.write(place / "initial", 0, arrays, {})
            checkpoint.write(place, step, arrays, {})
            checkpoint.write_best(place, 900, arrays, 1.0)
        result = record.finish(RunResult(kind="done"))
        assert result.checkpoint == expected
        assert (folder.checkpoints / result.checkpoint).is_dir()


def test_totals_of_a_resumed_run_go_on_from_its_checkpoint(tmp_path: Path) -> None:
    folder, work = RunFolder.create(tmp_path, "rig", 1), graph()
    checkpoint.write(folder.checkpoints, 200, {"sum": {"total": [0.0]}}, {})
    rows = [{"env_steps": step, "total/episodes": step / 10} for step in (100, 200, 300)]
    folder.metrics.write_text("".join(json.dumps(row) + "\n" for row in [*rows, {"env_steps": 150, "eval/return": 1.0}]))
    seen = Totals(work)
    log = RunLog(work, seen, folder, folder.path)
    assert seen.total("episodes") == 0
    seen.take("counter/0", entry("counter/0", "out", reading={"episodes": ["count", 4]}))
    assert seen.total("episodes") == 24
    log.finish(RunResult(kind="done"))


def test_an_env_outside_its_bounds_is_noted_once(tmp_path: Path) -> None:
    seen, out, folder = totals(), io.StringIO(), RunFolder.create(tmp_path, "rig", 1)
    record = RunLog(graph(), seen, folder, None, [Console(out)])
    seen.take("counter/0", entry("counter/0", "out"))
    record.report()
    assert out.getvalue() == ""
    for at in (2.0, 3.0):
        seen.take("counter/0", entry("counter/0", "out", reading={"env/outside_bounds": ["max", 1.0]}, at=at))
        record.report()
    assert out.getvalue() == ("note: observations exceed the env's declared bounds (details in the log of counter/0)\n")
    assert [event["worker"] for event in read_lines(folder.events) if event["event"] == "outside_bounds"] == ["counter/0"]
    record.finish(RunResult(kind="done"))


def test_what_an_env_calls_its_headline_is_shown_with_the_last_games_against_initial_policies() -> None:
    seen = totals()
    seen.figures.headline = ("seen", "locked")
    seen.take("counter/0", entry("counter/0", "out", reading={
        "episode/seen": ["episode", 30, 120], "episode/locked": ["episode", 1, 4], "episode/other": ["episode", 9, 9],
        "cross/seeker/seen": ["point", 0.5, 3000, 7], "cross/seeker/locked": ["point", 1, 3000, 7],
    }))  # fmt: skip
    assert seen.report().charted == {"cross/seeker/seen"}
    report = seen.report()  # means start anew, what is shown stays
    assert report.stats == {"seen": 0.25, "locked": 0.25}
    assert report.evaluation == Evaluation(3000, 7, {"cross/seeker/seen": 0.5})
    assert "evaluation at 3,000: cross/seeker/seen 0.5" in line(report) and "seen 0.25  locked 0.25" in screen(report)
    assert set(report.charts) >= {"episode/seen", "episode/locked"} and "episode/other" not in report.charts


def test_metrics_are_merged_by_their_own_rules() -> None:
    """Two counters: one has restarted, one has died for good."""
    seen = Totals(with_node(graph(counters=2), "adder", worker="trainer"), cores=2)
    first = {"steps": ["count", 10], "held": ["gauge", 4], "updates": ["min", 7], "version": ["max", 7]}
    second = {"steps": ["count", 5], "held": ["gauge", 2], "updates": ["min", 3], "version": ["max", 3]}
    seen.take("counter/0", entry("counter/0", "out", reading=first | {"env step": ["time", 1.0]}))
    seen.take("counter/1", entry("counter/1", "out", reading=second))
    assert [seen.total(name) for name in first] == [15, 6, 3, 7]
    seen.forget("counter/0", ["counter/0"], [], {})
    assert [seen.total(name) for name in first] == [15, 2, 3, 7]
    seen.take("counter/0", entry("counter/0", "out", reading={"steps": ["count", 1], "updates": ["min", 2]}))
    assert [seen.total(name) for name in first] == [16, 2, 2, 3]
    assert "total/steps" in seen.report().metrics and "total/env step" not in seen.report().metrics


def test_an_evaluation_is_of_the_version_it_played_with() -> None:
    seen = totals()
    seen.take("adder/0", entry("adder/0", "in", reading={"trained_steps": ["min", 9000]}))
    seen.take("counter/0", entry("counter/0", "out", reading={"eval/return": ["point", 475.0, 3000, 12]}))
    report = seen.report()
    assert report.env_steps == 9000 and "eval/return" not in report.metrics
    assert report.evaluated == (Evaluation(3000, 12, {"eval/return": 475.0}),)
    assert seen.report().evaluated == () and seen.report().evaluation == Evaluation(3000, 12, {"eval/return": 475.0})


def test_rates_begin_with_the_session_and_counts_go_on_from_the_earlier_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """A trainer resumes at 2,000,000 env steps, does 50 in 5 s, dies, and goes back by 40."""
    seen, now = totals(), 0.0
    seen.earlier = {"episodes": 300.0, "trained_steps": 17.0}
    monkeypatch.setattr("srl.observe.totals.time.monotonic", lambda: now)
    seen.report()
    for now, steps in ((1.0, 2_000_000), (6.0, 2_000_050)):
        reading = {"trained_steps": ["min", steps], "episodes": ["count", now]}
        seen.take("adder/0", entry("adder/0", "in", reading=reading, at=now))
        report = seen.report()
    assert report.train_rate == 10.0
    assert (report.env_steps, report.episodes) == (2_000_050, 306)
    seen.take("adder/0", entry("adder/0", "in", reading={"trained_steps": ["min", 2_000_010]}, at=7.0))
    now = 7.0
    assert seen.report().train_rate == 50 / 6


def test_a_queue_is_never_less_than_empty_nor_more_than_full() -> None:
    """Both ends report in turn: the consumer may be ahead of the producer, or behind it."""
    seen = totals()
    for put, taken, queue in ((10, 32, 0), (50, 32, 8), (33, 32, 1)):
        made, taken_in = entry("counter/0", "out"), entry("adder/0", "in")
        made.workers["counter/0"].counts = {"out": Counts(put, 0, 0, 8)}
        taken_in.workers["adder/0"].counts = {"in": Counts(0, taken, taken, 8)}
        seen.take("counter/0", made)
        seen.take("adder/0", taken_in)
        (row,) = seen.report().streams
        assert (row.queue, row.slots) == (queue, 8)


def test_the_last_report_shows_what_the_processes_used_and_how_fast_they_were(monkeypatch: pytest.MonkeyPatch) -> None:
    seen, now = totals(), 0.0
    monkeypatch.setattr("srl.observe.totals.time.monotonic", lambda: now)
    for now in (1.0, 3.0):
        seen.take("counter/0", entry("counter/0", "out", reading={"env_steps": ["count", 100 * now]}, at=now, cpu=now / 2))
        before = seen.report()
    seen.resting, now = True, 30.0
    seen.forget("counter/0", ["counter/0"], [], {})
    after = seen.report()
    assert after.env_rate == before.env_rate == 100.0
    for report in (before, after):
        row = next(row for row in report.workers if row.kind == "counter")
        assert (row.cpu, row.rss, row.busy) == (0.5, 1, pytest.approx(0.92))


def test_workers_inside_a_process_of_others_have_no_cores_of_their_own() -> None:
    seen = Totals(graph(inside=True), cores=2)
    rows = {row.kind: row for row in seen.report().workers}
    assert rows["counter"].inside and not rows["adder"].inside
    inline = Totals(graph(mode="inline"), cores=2)
    assert [bool(row.inside) for row in inline.report().workers] == [False, True]


class Broken(Sink):
    def report(self, report: Any) -> None:
        raise ValueError("no such column")


def test_a_sink_that_fails_is_dropped_and_the_others_go_on(tmp_path: Path) -> None:
    seen, out, folder = totals(), io.StringIO(), RunFolder.create(tmp_path, "rig", 1)
    log = RunLog(graph(), seen, folder, None, [Broken(), Console(out)])
    log.report()
    log.finish(RunResult(kind="done"))
    assert out.getvalue().count("note: sink Broken failed and gets no more reports: ValueError: no such column") == 1
    assert len(list(read_numbers(folder.metrics))) == 2


def test_lost_records_are_a_part_of_those_put_by_reason() -> None:
    seen = totals()
    producer = ProcessReport(1.0, 0.5, 1, {"counter/0": WorkerReport(Reading(), 0.9, (), False, {"out": Counts(8, 0, 0, 64)})})
    consumer = Counts(0, 4, 4, 0, {"stale": 1, "stop": 2})
    seen.take("counter/0", producer)
    seen.take("adder/0", ProcessReport(1.0, 0.5, 1, {"adder/0": WorkerReport(Reading(), 0.9, (), False, {"in": consumer})}))
    report = seen.report()
    assert {name: part for name, part in report.metrics.items() if name.startswith("lost/")} == {
        "lost/numbers/stale": 0.125,
        "lost/numbers/stop": 0.25,
    }
    assert report.charts["lost/numbers/stop"] == 0.25


def test_the_replay_ratio_is_frames_over_rows_that_could_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("srl.observe.totals.time.monotonic", lambda: now[0])
    seen = totals()
    for steps in (100.0, 300.0):
        counts = {"optimizer_steps": steps, "frames": 64 * steps, "trained_steps": 8 * steps}
        reading = {name: ["count" if name != "trained_steps" else "min", value] for name, value in counts.items()}
        seen.take("adder/0", entry("adder/0", "in", reading=reading, at=now[0]))
        report = seen.report()
        now[0] += 2.0
    assert (report.update_rate, report.frame_rate, report.train_rate, report.replay_ratio) == (100, 6400, 800, 8)
    assert "100 updates/s, 6,400 frames/s, replay ratio 8" in screen(report)
