"""An off-policy run with real processes in every layout and over every transport: each row right, the updates held."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import srl
from tests.runs.test_offpolicy import FAKE, WITNESS

APART: dict[str, Any] = {"replay": {"inside": None}}
WAYS: dict[str, dict[str, Any]] = {
    "replay inside the trainer": {},
    "replay apart, over zmq": {"workers": APART, "streams": {"all": {"via": "zmq"}}},
    "two shards apart, two actors": {
        "workers": APART,
        "replay": {"shards": 2},
        "sampling": {"envs": 4, "workers": 2},
        "algorithm": {"use": WITNESS, "prioritised": True},
    },
    "remote policy": {"layout": "seed", "sampling": {"envs": 4}},
}
WARMUP, STEPS, AHEAD = 200, 2000, 64


@pytest.mark.parametrize("way", WAYS)
def test_rows_are_right_and_updates_are_held(way: str, tmp_path: Path) -> None:
    more = WAYS[way]
    replay = {"size": 1000, "batch": 32, "warmup": WARMUP, "updates_per_step": 0.5, "ahead": AHEAD, **more.get("replay", {})}
    run = srl.launch(**{**FAKE, **more, "replay": replay, "stop": {"env_steps": STEPS}}, runs=tmp_path, quiet=True)
    assert run.result is not None and run.result.exit_code == 0, run.result.format()
    text = run.result.format()
    assert "ok" in text and "DOES NOT BALANCE" not in text
    assert not (run.folder / "replays").exists(), "rows are saved only where that is asked for"
    last = run.metrics()[-1]
    assert last["env_steps"] >= STEPS
    owed = 0.5 * (last["total/replay/env_steps"] - WARMUP)
    assert owed - 0.5 * AHEAD - 2 <= last["total/replay/batches"] <= owed
    assert last["update"] <= last["total/replay/batches"] <= last["update"] + 2
