"""Sinks by name and by path: Prometheus, Weights & Biases offline, settings of one's own."""

from __future__ import annotations

import json
import os
import re
import struct
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

import srl
from srl.cli.launch import main
from srl.core.types import Component
from srl.observe.report import Report
from srl.observe.sinks.base import make_sink
from srl.plan.prepare import prepare
from srl.store.run_folder import SWEEP
from tests.errors import raises

LINE = re.compile(r'srl_[a-zA-Z0-9_]+\{run="run",experiment="cartpole"\} (-?[0-9.e+-]+|NaN|\+Inf|-Inf)')


def test_prometheus_serves_the_figures_of_the_newest_report(tmp_path: Path) -> None:
    sink: Any = make_sink(Component("prometheus", {"port": 0}), tmp_path / "run")
    sink.begin(prepare("cartpole", inspect=False).graph, ())
    figures = {"episode/return": 12.5, "stream/samples.main/staleness_max": float("inf"), "total/episodes": 3.0}
    sink.report(Report(experiment="cartpole", elapsed=1.0, env_steps=640, metrics=figures))
    with urllib.request.urlopen(sink.address, timeout=20) as page:
        assert page.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        lines = page.read().decode().splitlines()
    values = {line.partition("{")[0]: line.rpartition(" ")[2] for line in lines if not line.startswith("#")}
    assert all(LINE.fullmatch(line) for line in lines if not line.startswith("#"))
    assert values["srl_episode_return"] == "12.5" and values["srl_env_steps"] == "640.0"
    assert values["srl_stream_samples_main_staleness_max"] == "+Inf"
    assert "# TYPE srl_total_episodes counter" in lines and "# TYPE srl_episode_return gauge" in lines
    with pytest.raises(urllib.error.HTTPError):
        urllib.request.urlopen(sink.address.replace("/metrics", "/"), timeout=20).close()
    port = sink.address.split(":")[2].partition("/")[0]
    with raises("E00", match=f"cannot listen on 127.0.0.1:{port}"):
        make_sink(Component("prometheus", {"port": int(port)}), tmp_path / "run")
    sink.end(None)
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(sink.address, timeout=20).close()


def test_a_sink_of_ones_own_has_settings_and_wrong_ones_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(
        "from dataclasses import dataclass\nimport srl\n\n"
        "@dataclass(frozen=True)\nclass Settings:\n    every: int = srl.option(1, 'reports', low=1)\n\n"
        "class Mine(srl.Sink):\n    Config = Settings\n"
        "    def __init__(self, folder, config):\n        self.file, self.every = (folder / 'mine.txt').open('w'), config.every\n"
        "    def report(self, report):\n        print(self.every, report.env_steps, file=self.file)\n"
        "    def end(self, result):\n        self.file.close()\n"
    )
    words = ["mode=inline", "evaluation=null", "stop={updates: 2}"]
    run = srl.launch(
        "cartpole", overrides=[f"sinks=[{{use: '{file}:Mine', every: 7}}]", *words], runs=tmp_path / "runs", quiet=True
    )
    assert (run.folder / "mine.txt").read_text().splitlines()[-1].startswith("7 ")
    for settings in ("evry: 7", "every: 0"):
        with raises("E02" if "evry" in settings else "E03"):
            prepare("cartpole", [f"sinks=[{{use: '{file}:Mine', {settings}}}]"], inspect=False)


def test_a_package_that_a_sink_needs_is_missed_before_the_run(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)  # as if it were not installed
    assert main(["experiment=cartpole", "sinks=[wandb]", "--dry-run"]) == 2
    told = capsys.readouterr().err
    assert "cannot work without the package wandb" in told and "pip install 'really-scalable-rl[wandb]'" in told
    image = ["launcher=kubernetes", "launcher.image=x", "launcher.claim=runs", "launcher.home.cores=2"]
    prepare("cartpole", [*image, "hosts.cpu.count=1", "workers.actor.hosts=cpu", "sinks=[wandb]"], inspect=False)


@pytest.mark.skipif(find_spec("wandb") is None, reason="needs the extra wandb")
def test_a_resumed_run_of_a_sweep_is_one_run_of_wandb_with_its_group(tmp_path: Path) -> None:
    (tmp_path / "cartpole_sweep" / "one").mkdir(parents=True)
    (tmp_path / "cartpole_sweep" / "one" / SWEEP).write_text("{}")
    runs = tmp_path / "cartpole_sweep" / "one" / "seed=1"
    words = [sys.executable, "-m", "srl.launch", "sinks=[{use: wandb, project: mine, mode: offline}]", "--runs", str(runs)]
    start = ["experiment=cartpole", "mode=inline", "evaluation={every: 2000, episodes: 1}", "stop={updates: 3}"]
    for more in (start, ["--resume", str(runs), "stop.updates=5"]):
        ended = subprocess.run([*words, *more], capture_output=True, text=True, timeout=110, check=False, env=os.environ)
        assert ended.returncode == 0 and "sink WandB failed" not in ended.stdout, ended.stdout + ended.stderr
    (folder,) = runs.glob("*/*")
    files = sorted(folder.glob("wandb/offline-run-*/*.wandb"))
    assert len(files) == 2
    rows: list[dict[str, Any]] = []
    for file in files:
        found = list(records(file.read_bytes()))
        (about,) = (one.run for one in found if one.WhichOneof("record_type") == "run")
        assert (about.run_id, about.project, about.run_group) == (folder.name, "mine", "cartpole_sweep one")
        history = [one.history for one in found if one.WhichOneof("record_type") == "history"]
        rows += [{"/".join(item.nested_key) or item.key: json.loads(item.value_json) for item in row.item} for row in history]
        assert any("episode/return" in row for row in rows)
    assert any("eval/return" in row for row in rows)
    assert max(row["env_steps"] for row in rows) == srl.load_run(folder).metrics()[-1]["env_steps"]


def records(data: bytes) -> Iterator[Any]:
    """The records of a file of W&B: blocks of 32 kB, parts of (checksum, size, kind)."""
    from wandb.proto import wandb_internal_pb2

    at, held = 7, b""
    while at + 7 <= len(data):
        if (left := 32768 - at % 32768) < 7:
            at += left
            continue
        size, kind = struct.unpack_from("<HB", data, at + 4)
        held += data[at + 7 : at + 7 + size]
        at += 7 + size
        if kind in (1, 4):
            record = wandb_internal_pb2.Record()
            record.ParseFromString(held)
            held = b""
            yield record
