"""Figures are added up, kept per window and written as lines that survive a crash."""

from __future__ import annotations

import json
import math
import os
from dataclasses import replace
from pathlib import Path

import pytest

from srl.observe.metrics import Processors, Rate
from srl.observe.report import Evaluation, Report
from srl.observe.result import RunResult
from srl.observe.sinks.jsonl import JsonLines
from srl.store.lines import read_numbers
from srl.store.run_folder import RunFolder


def moment(env_steps: int, update: int, **metrics: float) -> Report:
    return Report(experiment="x", elapsed=1.0, env_steps=env_steps, update=update, metrics=metrics)


def folder_in(path: Path) -> RunFolder:
    return RunFolder.create(path, "x", 1)


def test_a_line_has_time_steps_update_and_flat_names(tmp_path: Path) -> None:
    ticks, folder = iter([100.0, 102.5]), folder_in(tmp_path)
    folder.metrics.write_text('{"wall": 10.0}\n')
    sink = JsonLines(folder, clock=lambda: next(ticks))
    sink.report(moment(4096, 2, loss=0.25))
    sink.end(RunResult(kind="done"))
    row = json.loads(folder.metrics.read_text().splitlines()[-1])
    assert row.pop("time") > 1.6e9
    assert row == {"wall": 12.5, "env_steps": 4096, "update": 2, "loss": 0.25}


def test_an_evaluation_has_a_line_at_the_env_step_of_its_version(tmp_path: Path) -> None:
    folder = folder_in(tmp_path)
    sink = JsonLines(folder)
    sink.report(replace(moment(9000, 9, loss=0.5), evaluated=(Evaluation(3000, 3, {"eval/return": 475.0}),)))
    sink.end(RunResult(kind="done"))
    first, second = read_numbers(folder.metrics)
    assert (first["env_steps"], first["update"], first["eval/return"]) == (3000, 3, 475.0)
    assert (second["env_steps"], second["loss"], "eval/return" in second) == (9000, 0.5, False)


def test_what_is_not_finite_is_null_and_counted(tmp_path: Path) -> None:
    folder = folder_in(tmp_path)
    sink = JsonLines(folder)
    sink.report(moment(1, 1, a=math.nan, b=math.inf, c=1.0))
    sink.report(moment(2, 2, a=2.0))
    first, second = read_numbers(folder.metrics)
    assert (first["a"], first["b"], first["c"], first["nonfinite"]) == (None, None, 1.0, 2)
    assert "nonfinite" not in second
    sink.end(RunResult(kind="done"))


def test_a_metric_may_not_take_the_name_of_a_fixed_column(tmp_path: Path) -> None:
    sink = JsonLines(folder_in(tmp_path))
    with pytest.raises(ValueError, match="'wall': the name is taken"):
        sink.report(moment(1, 1, wall=1.0))
    sink.end(RunResult(kind="done"))


def test_a_torn_last_line_is_skipped_and_the_next_run_begins_a_new_one(tmp_path: Path) -> None:
    folder = folder_in(tmp_path)
    for step in (1, 2):
        sink = JsonLines(folder)
        sink.report(moment(step, step, x=step))
        sink.end(RunResult(kind="done"))
        if step == 1:
            with folder.metrics.open("a") as file:
                file.write('{"time": 5, "env_st')
    assert [row["env_steps"] for row in read_numbers(folder.metrics)] == [1, 2]
    assert list(read_numbers(tmp_path / "absent.jsonl")) == []


@pytest.mark.parametrize(
    ("text", "idle"),
    [
        ("cpu0 0 0 0 {0} 0\ncpu1 0 0 0 50 {0}\ncpu2 0 0 0 {0} 9\n", 1.5),
        ("cpu 1 2 3 4 5\n", None),
        ("", None),
    ],
)
def test_idle_cores_are_those_that_this_process_may_use(text: str, idle: float | None, tmp_path: Path) -> None:
    file = tmp_path / "stat"
    second = os.sysconf("SC_CLK_TCK")
    seen = Processors(file, frozenset({0, 1}))
    assert seen.idle(0.0) is None, "there is no such file"
    found = []
    for now in (0, 10):
        file.write_text(text.format(int(0.75 * now * second)))
        found.append(seen.idle(float(now)))
    assert found == [None, idle]


def test_rate_is_over_the_window_and_survives_a_restart_of_the_counter() -> None:
    rate = Rate()
    assert rate.update(1000, 0.0) == 0.0
    assert rate.update(1500, 5.0) == 100.0
    assert rate.update(2000, 10.0) == 100.0
    assert rate.update(2000, 20.0) == 0.0  # the busy seconds have left the window
    assert rate.update(300, 25.0) == 20.0  # counted from zero again: 300 since second 10, the last report before the window


def test_rate_does_not_count_what_was_there_before_the_first_report() -> None:
    rate = Rate()
    rate.update(1e6, 0.0)
    assert rate.update(1e6 + 10, 1.0) == 10.0
