"""live.json: the newest report with the graph that it belongs to, and settings.json: every setting with its origin."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from srl.observe import live
from srl.observe.live import Live
from srl.observe.report import Member, Report, StreamRow, WorkerRow
from srl.observe.result import RunResult
from srl.plan.prepare import prepare
from srl.store.run_folder import RunFolder

REPORT = Report(
    experiment="cartpole",
    elapsed=2.0,
    env_steps=500,
    target=1000,
    train_rate=250.0,
    workers=(WorkerRow(kind="actor", busy=math.nan, waits={"credit": 0.5}),),
    members=(Member(name="actor/0", process="actor/0", waits={"credit": ("trainer/0",)}),),
    streams=(StreamRow(name="samples.main", staleness=(0.0, 0.5, 1.0), drops={"late": 2}),),
    metrics={"loss": 1.0},
    charted=frozenset({"x"}),
)


@pytest.fixture
def written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Live, RunFolder]:
    monkeypatch.setattr(live, "EVERY", 0.0)
    folder = RunFolder.create(tmp_path, "cartpole", 1)
    graph = prepare("cartpole", ["layout=impala"], inspect=False).graph
    return Live(folder, graph, [("stop", "after 1,000 env steps")]), folder


def loads() -> dict[str, Any]:
    return {"hosts": [], "processes": [{"process": "actor/0"}]}


def told(folder: RunFolder) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(folder.live.read_text())
    return found


def test_the_graph_is_there_before_the_first_report(written: tuple[Live, RunFolder]) -> None:
    found = told(written[1])
    assert found["plan"] == [["stop", "after 1,000 env steps"]] and "workers" not in found
    streams = {one["name"]: (one["kind"], one["gives"], one["takes"]) for one in found["graph"]["streams"]}
    assert streams["samples.main"] == ("sample", ["actor"], ["trainer"])
    assert streams["params.main"] == ("param", ["trainer"], ["policy", "evaluator"])


def test_a_report_replaces_the_one_before(written: tuple[Live, RunFolder]) -> None:
    written[0].report(REPORT, loads)
    written[0].report(replace(REPORT, env_steps=750), loads)
    found = told(written[1])
    assert (found["env_steps"], found["progress"], found["eta"]) == (750, 0.75, 1.0)
    assert found["workers"][0]["busy"] is None and found["workers"][0]["waits"] == {"credit": 0.5}
    assert found["members"][0]["waits"] == {"credit": ["trainer/0"]}
    assert found["streams"][0]["drops"] == {"late": 2} and found["graph"]["mode"] == "local"
    assert found["processes"] == [{"process": "actor/0"}] and found["screen"][0].startswith("cartpole")
    assert "metrics" not in found, "these are in metrics.jsonl"


def test_it_is_written_at_most_once_a_second_and_at_the_end(
    written: tuple[Live, RunFolder], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "EVERY", 1000.0)
    written[0].report(REPORT, loads)
    written[0].report(replace(REPORT, env_steps=750), loads)
    assert told(written[1])["env_steps"] == 500
    written[0].end(replace(REPORT, env_steps=750), RunResult(kind="done", headline="it is done"))
    assert told(written[1])["env_steps"] == 750 and "it is done" in told(written[1])["result"]


def test_every_setting_has_a_value_and_an_origin() -> None:
    found = prepare("cartpole", ["algorithm.clip=0.1", "layout=impala"], inspect=False).flat({})
    assert found["algorithm.clip"] == (0.1, "command line")
    assert found["seed"] == (1, "default")
    assert found["sampling.workers"][1] == "auto"
    assert found["algorithm.gamma"][1].startswith("experiments/cartpole.yaml:")


def test_a_resumed_run_keeps_the_origins_that_are_known(tmp_path: Path) -> None:
    prepared = prepare("cartpole", ["algorithm.clip=0.1", "layout=impala"], inspect=False)
    (tmp_path / "config.yaml").write_text(prepared.config_text())
    before = {name: where for name, (_, where) in prepared.flat({}).items()}
    again = prepare(None, ["stop.env_steps=7"], resume=tmp_path, inspect=False).flat(before)
    assert again["algorithm.clip"] == (0.1, "command line") and again["algorithm.gamma"][1] == before["algorithm.gamma"]
    assert again["stop.env_steps"] == (7, "command line")
