"""Event files are read by TensorBoard itself."""

from __future__ import annotations

import math
import subprocess
import sys
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from srl.core.types import Component, PolicyEntry
from srl.observe.report import Evaluation, Report
from srl.observe.result import RunResult
from srl.observe.sinks.tensorboard import EventWriter, TensorBoard, crc32c
from srl.store.run_folder import RunFolder
from tests.control.rig import graph


def read_back(folder: Path) -> dict[str, list[tuple[int, float]]]:
    events = reader(folder)
    return {tag: [(event.step, event.value) for event in events.Scalars(tag)] for tag in events.Tags()["scalars"]}


def reader(folder: Path) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the reader's own imports
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

        events: Any = EventAccumulator(str(folder), size_guidance={"scalars": 0})
        events.Reload()
        return events


@pytest.mark.parametrize(
    ("data", "value"),
    [(b"", 0), (b"123456789", 0xE3069283), (bytes(32), 0x8A9136AA), (b"\xff" * 32, 0x62A8AB43), (bytes(range(32)), 0x46DD794E)],
)
def test_checksum_of_the_published_examples(data: bytes, value: int) -> None:
    assert crc32c(data) == value


def test_tensorboard_reads_what_was_written(tmp_path: Path) -> None:
    writer = EventWriter(tmp_path)
    steps = [0, 1, 127, 128, 100_000, 3_000_000_000, 2**40]
    for step in steps:
        writer.write(step, {"episode/return": step / 7, "größe/λ": -1.5, **{f"many/{index}": index for index in range(100)}})
    writer.close()
    scalars = read_back(tmp_path)
    assert len(scalars) == 102
    assert [step for step, _ in scalars["episode/return"]] == steps
    assert [value for _, value in scalars["episode/return"]] == pytest.approx([step / 7 for step in steps], rel=1e-6)
    assert scalars["größe/λ"] == [(step, -1.5) for step in steps]
    assert scalars["many/99"][-1] == (2**40, 99.0)


def test_values_that_no_float_holds_do_not_stop_the_file(tmp_path: Path) -> None:
    writer = EventWriter(tmp_path)
    writer.write(1, {"nan": math.nan, "huge": 1e300, "low": -1e300, "after": 2.0})
    writer.close()
    scalars = read_back(tmp_path)
    assert math.isnan(scalars["nan"][0][1])
    assert (scalars["huge"][0][1], scalars["low"][0][1], scalars["after"][0][1]) == (math.inf, -math.inf, 2.0)


def test_every_report_is_on_disk_at_once(tmp_path: Path) -> None:
    writer = EventWriter(tmp_path)
    writer.write(5, {"x": 1.0})
    assert read_back(tmp_path) == {"x": [(5, 1.0)]}
    writer.close()


def test_a_resume_hides_what_came_after_its_checkpoint(tmp_path: Path) -> None:
    writer = EventWriter(tmp_path)
    for step in (100, 200, 300):
        writer.write(step, {"x": 1.0})
    writer.close()
    again = EventWriter(tmp_path, resume_at=200)
    again.write(250, {"x": 2.0})
    again.close()
    assert read_back(tmp_path) == {"x": [(100, 1.0), (200, 1.0), (250, 2.0)]}


def test_writing_imports_neither_torch_nor_tensorboard() -> None:
    program = (
        "import sys, srl.observe.sinks.tensorboard;sys.exit(bool({'torch', 'tensorboard', 'google.protobuf'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_a_run_says_what_it_is_and_its_evaluations_are_at_their_env_step(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path, "x", 1)
    folder.write_text("config.yaml", "seed: 7\n")
    algorithm = Component(use="ppo", args={"lr": 0.001, "shared": True, "hidden": [64, 64]})
    work = graph(policies={"main": PolicyEntry(policy=Component(use="actor_critic"), algorithm=algorithm)})
    sink = TensorBoard(folder)
    sink.begin(work, [("batch", "32 rows")])
    evaluated = Evaluation(3000, 3, {"eval/return": 475.0, "eval/other": 1.0})
    report = Report(experiment="x", elapsed=1.0, env_steps=9000, metrics={"a": 1.0}, charts={"rate/env": 5.0})
    sink.report(replace(report, evaluated=(evaluated,), charted=frozenset({"eval/return"})))
    sink.end(RunResult(kind="done"))
    assert read_back(folder.tb) == {"rate/env": [(9000, 5.0)], "eval/return": [(3000, 475.0)]}
    events = reader(folder.tb)
    assert "seed: 7" in events.Tensors("config")[0].tensor_proto.string_val[0].decode()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData
    content = events.SummaryMetadata("_hparams_/session_start_info").plugin_data.content
    found = HParamsPluginData.FromString(content).session_start_info.hparams
    assert (found["ppo.lr"].number_value, found["ppo.shared"].bool_value) == (0.001, True)
    assert (found["ppo.hidden"].string_value, found["seed"].number_value) == ("[64, 64]", work.seed)
