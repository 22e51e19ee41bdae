"""Event files are read by TensorBoard itself."""

from __future__ import annotations

import math
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest

from srl.observe.tensorboard import EventWriter, crc32c


def read_back(folder: Path) -> dict[str, list[tuple[int, float]]]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the reader's own imports
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

        events: Any = EventAccumulator(str(folder), size_guidance={"scalars": 0})
        events.Reload()
        return {tag: [(event.step, event.value) for event in events.Scalars(tag)] for tag in events.Tags()["scalars"]}


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
        "import sys, srl.observe.tensorboard; sys.exit(bool({'torch', 'tensorboard', 'google.protobuf'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
