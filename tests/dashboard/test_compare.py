"""Comparison of runs: statistics against slow references, groups over seeds, tables and pictures, a report in a file."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from srl.__main__ import main
from srl.dashboard.compare import as_text, compare
from srl.dashboard.runs import Runs
from srl.dashboard.statistics import interquartile_mean, interval, probability_of_improvement
from srl.store.run_folder import RunFolder


@pytest.mark.parametrize("number", [1, 2, 3, 4, 5, 8, 11])
def test_the_interquartile_mean_leaves_out_a_quarter_at_each_end(number: int) -> None:
    scores = np.random.default_rng(number).normal(size=number)
    kept = sorted(scores)[int(0.25 * number) : number - int(0.25 * number)]
    assert interquartile_mean(scores) == pytest.approx(sum(kept) / len(kept))


def test_the_bootstrap_draws_seeds_within_each_task() -> None:
    apart = [np.array([0.0, 0.0, 0.0, 0.0]), np.array([10.0, 10.0, 10.0, 10.0])]
    found = interval(apart)
    assert (found.value, found.low, found.high) == (5.0, 5.0, 5.0), "tasks are never mixed: nothing varies within one"
    slow, random = [], np.random.default_rng(7)
    scores = np.random.default_rng(1).normal(3, 2, 9)
    for _ in range(4000):
        drawn = sorted(scores[random.integers(0, 9)] for _ in range(9))
        slow.append(np.mean(drawn[2:-2]))
    found = interval([scores], resamples=4000)
    assert (found.low, found.high) == pytest.approx(tuple(np.percentile(slow, [2.5, 97.5])), abs=0.15)
    assert found.low < found.value < found.high
    assert interval([scores]) == interval([scores]), "the same every time"


def test_nine_of_ten_intervals_of_many_seeds_hold_the_truth() -> None:
    random = np.random.default_rng(0)
    found = [interval([random.normal(size=40)], resamples=300, seed=number) for number in range(200)]
    assert sum(one.low <= 0 <= one.high for one in found) >= 175


def test_the_chance_of_improvement_counts_ties_half() -> None:
    assert probability_of_improvement(np.array([2.0, 3.0]), np.array([1.0, 1.0])) == 1.0
    assert probability_of_improvement(np.array([1.0, 3.0]), np.array([1.0, 3.0])) == 0.5


def learned(root: Path, lr: float, seed: int, top: float) -> RunFolder:
    """A run whose return rises to `top`."""
    run = RunFolder.create(root, "game", seed, run_id=f"{lr}-{seed}")
    with run.metrics.open("w") as file:
        for number in range(101):
            row = {"wall": number, "env_steps": 100 * number, "update": number, "rate/env": 1.0}
            file.write(json.dumps({**row, "episode/return": min(top, top * number / 50)}) + "\n")
    settings = {"algorithm.lr": [lr, "command line"], "seed": [seed, "command line"], "name": ["game", "default"]}
    run.write_text("settings.json", json.dumps(settings))
    run.write_status({**run.read_status(), "state": "done", "mean_return": float(top)})
    return run


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for seed, top in enumerate([90, 100, 110, 1000], 1):  # one is far out: the middle is not moved by it
        learned(tmp_path / "runs", 0.1, seed, top)
    learned(tmp_path / "runs", 0.2, 1, 50.0)
    return tmp_path / "runs"


def test_runs_that_differ_in_their_seed_only_are_one_group(root: Path) -> None:
    found = compare(Runs([root]))
    first, second = found.groups
    assert (first.label, len(first.runs), second.label, len(second.runs)) == ("lr=0.1", 4, "lr=0.2", 1)
    assert sorted(first.final) == [90, 100, 110, 1000] and interval([first.final]).value == 105
    text = as_text(found)
    assert "algorithm.lr  0.1  0.2" in text and "seed" not in text.splitlines()[0]
    assert next(line.split() for line in text.splitlines() if line.startswith("B lr=0.2"))[:5] == [
        "B",
        "lr=0.2",
        "1",
        "50",
        "one",
    ]
    bars = next(line for line in text.splitlines() if line.startswith("A  "))
    assert bars[3] == "▁" and bars[-1] == "█"


def test_compare_prints_and_draws(root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    picture = tmp_path / "curves.png"
    assert main(["compare", str(root), "--png", str(picture)]) == 0
    assert "final return" in capsys.readouterr().out
    pixels = np.asarray(Image.open(picture).convert("RGB")).reshape(-1, 3)
    for colour in ((0x2F, 0x7F, 0xD9), (0xE2, 0x76, 0x3B)):
        assert (np.abs(pixels.astype(int) - colour).sum(axis=1) < 12).any(), "a line of this colour"


def test_a_figure_that_no_run_has_is_said_and_cannot_be_drawn(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["compare", str(root), "--metric", "nothing", "--png", str(tmp_path / "x.png")]) == 2
    told = capsys.readouterr()
    assert "no run has reported nothing yet" in told.out and "there is nothing to draw" in told.err


def test_a_report_is_one_file(root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "report.html"
    assert main(["report", str(root), "--out", str(path)]) == 0
    assert capsys.readouterr().out.startswith(f"{path}: 5 runs, ")
    html = path.read_text()
    assert html.startswith("<!doctype html>") and "0.1-3" in html and "NONCE" not in html


def test_a_folder_without_runs_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for verb in ("dashboard", "report", "compare"):
        assert main([verb, str(tmp_path)]) == 2
        assert "holds no run" in capsys.readouterr().err
