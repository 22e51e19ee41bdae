"""The same experiment in every layout and over every transport, with real processes: nothing lost, nothing too stale."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import srl

WAYS: dict[str, dict[str, Any]] = {
    "impala": {"layout": "impala", "staleness": {"max": 1}},
    "impala, strictly on-policy": {"layout": "impala", "staleness": {"max": 0}},
    "decoupled over shm": {"layout": "decoupled", "staleness": {"max": 2}},
    "decoupled over zmq": {"layout": "decoupled", "streams": {"all": {"via": "zmq"}}},
    "decoupled over local sockets": {"layout": "decoupled", "streams": {"all": {"via": "ipc"}}},
    "seed": {"layout": "seed"},
}


LONG = ("impala", "decoupled over local sockets")
"""Many other runs are of the first kind, and local sockets differ from others in their address."""


@pytest.mark.parametrize("way", [pytest.param(one, marks=pytest.mark.long if one in LONG else ()) for one in WAYS])
def test_a_run_ends_with_every_slab_accounted_for_and_none_too_stale(way: str, tmp_path: Path) -> None:
    settings = WAYS[way]
    run = srl.launch(
        env="CartPole-v1",
        algorithm={"use": "ppo", "epochs": 2, "minibatch": 256},
        sampling={"envs": 16, "steps": 32, "workers": 2},
        stop={"env_steps": 12_000},
        seed=3,
        runs=tmp_path,
        quiet=True,
        **settings,
    )
    assert run.result is not None and run.result.exit_code == 0
    last = run.metrics()[-1]
    assert last["env_steps"] >= 12_000
    limit = settings.get("staleness", {}).get("max", 1)
    assert last["stream/samples.main/staleness_max"] <= limit
    if "layout" in settings and settings["layout"] != "impala":  # policies in processes of their own
        waits = {name.removeprefix("waits/") for name in last if name.startswith(("waits/actor/", "waits/policy/"))}
        assert waits and waits <= {"actor/answers", "actor/credit", "policy/questions", "policy/newer parameters"}
    text = run.result.format()
    assert "ok" in text and "DOES NOT BALANCE" not in text
