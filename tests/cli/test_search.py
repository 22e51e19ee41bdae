"""Searching settings: ranges, draws, successive halving, and what a sweep writes down."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from srl.cli.launch import main
from srl.cli.search import Range, budgets, drawn, halve, survivors
from srl.cli.sweep import exit_code
from srl.store.run_folder import RunFolder
from tests.errors import raises

AXES = [
    "algorithm.lr=log(1e-5,1e-2)",
    "algorithm.gamma=uniform(0.9, 0.999)",
    "algorithm.epochs=int(1,10)",
    "policy.hidden=[8],[64,64]",
]
LISTS = [[], [], [], ["policy.hidden=[8]", "policy.hidden=[64,64]"]]


def test_draws_stay_in_their_ranges_repeat_and_continue() -> None:
    found = drawn(AXES, LISTS, 400)
    assert found[:20] == drawn(AXES, LISTS, 20) and drawn([AXES[0]], [[]], 1)[0] != found[0][:1]
    values = [{key: text for key, _, text in (word.partition("=") for word in one)} for one in found]
    rates = [float(one["algorithm.lr"]) for one in values]
    assert min(rates) >= 1e-5 and max(rates) <= 1e-2
    assert 0.4 < sum(rate < math.sqrt(1e-5 * 1e-2) for rate in rates) / len(rates) < 0.6
    assert all(0.9 <= float(one["algorithm.gamma"]) <= 0.999 for one in values)
    assert {int(one["algorithm.epochs"]) for one in values} == set(range(1, 11))
    assert {one["policy.hidden"] for one in values} == {"[8]", "[64,64]"}


@pytest.mark.parametrize(
    "text", ["log(0,1)", "log(1,1)", "uniform(2,1)", "int(1,2.5)", "log(a,b)", "normal(0,1)", "uniform(0,inf)"]
)
def test_a_range_that_makes_no_sense_is_refused(text: str) -> None:
    with raises("E12"):
        Range.read(f"algorithm.lr={text}")
    assert Range.read("algorithm.lr=1e-3,3e-4") is None


def test_halving_spends_about_the_same_on_every_round_and_keeps_the_best() -> None:
    assert budgets(90_000, 9) == [10_000, 30_000, 90_000] and budgets(900, 2) == [900] and budgets(900, 8) == [300, 900]
    assert survivors([1.0, 5.0, -math.inf, 3.0, 4.0, 2.0]) == [1, 4] and survivors([-math.inf]) == [0]
    played: list[tuple[list[int], Any]] = []

    def run(alive: list[int], until: int | None) -> list[float]:
        played.append((alive, until))
        return [float(one % 5) for one in alive]

    assert halve(9, 90_000, run) == [0, 0, 0, 1, 2, 0, 0, 0, 1]
    assert played == [(list(range(9)), 10_000), ([3, 4, 8], 30_000), ([4], None)]


@pytest.mark.long
def test_a_halving_pauses_runs_lets_the_best_go_on_and_says_so(tmp_path: Path, capsys: Any) -> None:
    words = [
        "cartpole",
        "mode=inline",
        "evaluation=null",
        "stop={env_steps: 36_000, return: null}",
        "--runs",
        str(tmp_path),
    ]
    rates = ["--sweep", "algorithm.lr=log(1e-6,1e-2)", "--sweep", "seed=1", "--trials", "3", "--halving"]
    assert main([*words, *rates, "--jobs", "3"]) == 0
    (file,) = tmp_path.glob("cartpole_sweep/*/sweep.json")
    told = json.loads(file.read_text())
    assert told["kind"] == "halving" and told["metric"] == "episode/return" and len(told["runs"]) == 3
    last = [row for row in told["runs"] if row["round"] == 1]
    assert len(last) == 1 and last[0]["state"] == "done" and last[0]["figures"]["env_steps"] >= 36_000
    paused = [row for row in told["runs"] if row["round"] == 0]
    assert all(row["state"] == "preempted" and 12_000 <= row["figures"]["env_steps"] < 36_000 for row in paused)
    assert all(set(row["settings"]) == {"algorithm.lr", "seed"} for row in told["runs"])
    events = [json.loads(line) for line in RunFolder(file.parent / last[0]["folder"]).events.read_text().splitlines()]
    assert sum(event["event"] == "started" for event in events) == 2
    said = capsys.readouterr().out
    assert "2 rounds: 12,000, 36,000 env steps" in said and "stopped early" in said


def test_a_run_that_ended_before_it_could_be_paused_has_ended_well() -> None:
    assert exit_code(-15, {"pid": 7, "state": "done", "exit_code": 0}, 7) == 0
    assert exit_code(-15, {"pid": 7, "state": "running", "exit_code": 75}, 7) == -15
    assert exit_code(-15, {"pid": 6, "state": "preempted", "exit_code": 75}, 7) == -15
    assert exit_code(75, {"pid": 7, "state": "preempted", "exit_code": 75}, 7) == 75
    assert exit_code(-9, {}, 7) == -9


def test_a_search_without_a_length_and_options_without_a_sweep_are_refused(tmp_path: Path, capsys: Any) -> None:
    axis = ["--sweep", "algorithm.lr=log(1e-5,1e-2)", "--runs", str(tmp_path)]
    assert main(["env=CartPole-v1", "algorithm=ppo", "--halving", *axis]) == 2
    assert "how long a whole run is" in capsys.readouterr().err
    assert main(["cartpole", "--trials", "3"]) == 2
    assert "need --sweep" in capsys.readouterr().err
