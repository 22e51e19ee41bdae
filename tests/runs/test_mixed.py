"""Policies on slabs and policies on a replay in one run, and past opponents of policies on a replay."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import srl
from tests.runs.test_offpolicy import WITNESS

TEAMS: dict[str, Any] = {
    "env": {"use": "fake", "teams": {"hider": 1, "seeker": 1}, "length": [5, 9], "end": "random", "box": 2},
    "agents": {"h*": "hider", "s*": "seeker"},
    "replay": {"size": 2000, "batch": 32, "warmup": 100, "updates_per_step": 0.2},
    "evaluation": None,
}
SMALL = {"hidden": [8]}


def test_one_policy_learns_from_slabs_and_one_from_a_replay(tmp_path: Path) -> None:
    policies = {
        "hider": {"algorithm": {"use": WITNESS}, "policy": SMALL},
        "seeker": {"algorithm": {"use": "ppo", "minibatch": 32, "epochs": 1}, "policy": SMALL},
    }
    settings = {**TEAMS, "policies": policies, "sampling": {"envs": 4, "steps": 16}, "stop": {"env_steps": 1500}}
    run = srl.launch(**settings, runs=tmp_path, quiet=True)
    assert run.result is not None and run.result.exit_code == 0, run.result.format()
    assert "DOES NOT BALANCE" not in run.result.format()
    last = run.metrics()[-1]
    assert {"hider", "seeker"} <= {path.name for path in (run.folder / "checkpoints").iterdir()}
    assert last["total/replay/batches"] >= 0.2 * (1500 - 100) - 40


def test_policies_on_replays_play_against_past_versions() -> None:
    """Rows of the matches come into the replays too; the algorithm checks each."""
    policies = {name: {"algorithm": {"use": WITNESS}, "policy": SMALL} for name in ("hider", "seeker")}
    with srl.build(**TEAMS, policies=policies, opponents={"keep_every": 20}) as session:
        session.step(300)
        for name in ("hider", "seeker"):
            replay, trainer = session.workers[f"replay.{name}/0"], session.workers[f"trainer.{name}/0"]
            assert len(replay._columns) == 2, "envs of the newest policies, and of the match"
            assert 0 <= 0.2 * (replay.store.env_steps - 100) - trainer.updates < 2
