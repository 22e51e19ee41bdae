"""Figures are added up, kept per window and written as lines that survive a crash."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from srl.observe.metrics import MetricsWriter, Rate, last_leg, last_wall, read_metrics


def test_a_line_has_time_steps_update_and_flat_names(tmp_path: Path) -> None:
    ticks = iter([100.0, 102.5])
    writer = MetricsWriter(tmp_path / "metrics.jsonl", wall=10.0, clock=lambda: next(ticks))
    writer.write(4096, 2, {"loss/policy": 0.25})
    writer.close()
    row = json.loads((tmp_path / "metrics.jsonl").read_text())
    assert row.pop("time") > 1.6e9
    assert row == {"wall": 12.5, "env_steps": 4096, "update": 2, "loss/policy": 0.25}
    assert last_wall(tmp_path / "metrics.jsonl") == 12.5


def test_what_is_not_finite_is_null_and_counted(tmp_path: Path) -> None:
    writer = MetricsWriter(tmp_path / "metrics.jsonl")
    writer.write(1, 1, {"a": math.nan, "b": math.inf, "c": 1.0})
    writer.write(2, 2, {"a": 2.0})
    first, second = read_metrics(tmp_path / "metrics.jsonl")
    assert (first["a"], first["b"], first["c"], first["nonfinite"]) == (None, None, 1.0, 2)
    assert "nonfinite" not in second and writer.nonfinite == 2
    writer.close()


def test_a_metric_may_not_take_the_name_of_a_fixed_column(tmp_path: Path) -> None:
    writer = MetricsWriter(tmp_path / "metrics.jsonl")
    with pytest.raises(ValueError, match="'wall': the name is taken"):
        writer.write(1, 1, {"wall": 1.0})
    writer.close()


def test_a_torn_last_line_is_skipped_and_the_next_run_begins_a_new_one(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    for step in (1, 2):
        writer = MetricsWriter(path)
        writer.write(step, step, {"x": step})
        writer.close()
        if step == 1:
            with path.open("a") as file:
                file.write('{"time": 5, "env_st')
    assert [row["env_steps"] for row in read_metrics(path)] == [1, 2]
    assert read_metrics(tmp_path / "absent.jsonl") == []


def test_the_curve_after_a_resume_replaces_what_it_went_back_over() -> None:
    rows = [{"env_steps": step, "leg": leg} for leg, steps in ((1, (10, 20, 30)), (2, (20, 40))) for step in steps]
    assert [(row["env_steps"], row["leg"]) for row in last_leg(rows)] == [(10, 1), (20, 2), (40, 2)]


def test_rate_is_over_the_window_and_survives_a_restart_of_the_counter() -> None:
    rate = Rate(10.0)
    assert rate.update(1000, 0.0) == 0.0
    assert rate.update(1500, 5.0) == 100.0
    assert rate.update(2000, 10.0) == 100.0
    assert rate.update(2000, 20.0) == 0.0  # the busy seconds have left the window
    assert rate.update(300, 25.0) == 20.0  # counted from zero again: 300 since second 10, the last report before the window


def test_rate_does_not_count_what_was_there_before_the_first_report() -> None:
    rate = Rate(10.0)
    rate.update(1e6, 0.0)
    assert rate.update(1e6 + 10, 1.0) == 10.0
