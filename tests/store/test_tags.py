"""Versions of a policy under names: kept for good, found by `RUN@NAME`, by `--checkpoint NAME` and by past opponents."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from srl.__main__ import main
from srl.core.errors import UserError
from srl.core.types import Component, PolicyEntry
from srl.store import checkpoint
from srl.store.run_folder import RunFolder
from srl.store.weights import exact_run, find_weights, read_weights, tag, tagged
from srl.workers.checkpoints import kept_versions

POLICIES = {"main": PolicyEntry(policy=Component("actor_critic"), algorithm=Component("ppo"))}


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    """A run with the checkpoints of steps 100, 200 and 300, of which the second was the best."""
    folder = RunFolder.create(tmp_path, "tags", 1)
    folder.write_text("graph.yaml", "nodes: {}\n")
    checkpoint.write(folder.checkpoints / "initial", 0, {"policy": {"w": np.zeros(3)}}, {"env_steps": 0, "updates": 0})
    for step in (100, 200, 300):
        groups = {"policy": {"w": np.full(3, float(step))}, "optimizer": {"m": np.ones(3)}}
        checkpoint.write(folder.checkpoints, step, groups, {"env_steps": step, "updates": step // 100})
    checkpoint.write_best(folder.checkpoints, 200, {"policy": {"w": np.full(3, 200.0)}}, 1.0)
    return folder


def step(run: RunFolder, name: str) -> int:
    return checkpoint.step_of(find_weights(f"{run.path}@{name}", "main"))


def test_a_tag_keeps_its_version_when_checkpoints_are_pruned(run: RunFolder) -> None:
    tag(run.path, POLICIES, "main", "wild", run.checkpoints / "step_000000100")
    checkpoint.prune(run.checkpoints, 1)
    assert [step(run, name) for name in ("wild", "latest", "best", "initial", "step_000000300")] == [100, 300, 200, 0, 300]
    assert read_weights(f"{run.path}@wild", "main")["w"].tolist() == [100, 100, 100]
    assert list(checkpoint.read(tagged(run.path, POLICIES, "main")["wild"]).groups) == ["policy"], "no optimizer"
    assert exact_run(f"{run.path.parent}@wild").startswith(str(run.path.parent)) and exact_run(f"{run.path}@wild").endswith(
        "@wild"
    )


def test_a_name_means_one_version_for_ever(run: RunFolder) -> None:
    tag(run.path, POLICIES, "main", "v1", run.checkpoints / "step_000000100")
    with pytest.raises(UserError, match="there is a version 'v1' already"):
        tag(run.path, POLICIES, "main", "v1", run.checkpoints / "step_000000200")
    for name in ("best", "latest", "initial", "step_000000100", "../x", "", ".x", "a/b"):
        with pytest.raises(UserError, match="cannot be the name of a version"):
            tag(run.path, POLICIES, "main", name, run.checkpoints / "step_000000200")
    with pytest.raises(UserError, match="has no version 'v2'") as caught:
        find_weights(f"{run.path}@v2", "main")
    assert dict(caught.value.facts)["tags"] == "v1"


def test_past_opponents_are_the_initial_the_archived_and_the_tagged_versions(run: RunFolder) -> None:
    tag(run.path, POLICIES, "main", "second", run.checkpoints / "step_000000200")
    checkpoint.write(run.checkpoints / "archive", 100, {"policy": {"w": np.ones(3)}}, {"env_steps": 100, "updates": 1})
    checkpoint.write(run.checkpoints / "archive", 200, {"policy": {"w": np.ones(3)}}, {"env_steps": 200, "updates": 2})
    context = cast(Any, SimpleNamespace(folder=run.path, graph=SimpleNamespace(policies=POLICIES)))
    assert [updates for updates, _ in kept_versions(context, "main", before=3)] == [0, 1, 2]


def test_a_path_with_an_at_sign_is_a_path(tmp_path: Path) -> None:
    place = tmp_path / "me@home"
    checkpoint.write(place, 5, {"policy": {"w": np.zeros(2)}}, {})
    assert checkpoint.step_of(find_weights(str(place), "main")) == 5


def test_from_a_shell_and_into_another_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    small = ["experiment=cartpole", "mode=inline", "evaluation=null", "sampling.envs=4", "sampling.steps=16", "stop.return=null"]
    quiet = ["--runs", str(tmp_path), "--quiet"]
    assert main(["launch", *small, "stop.env_steps=128", *quiet]) == 0
    assert main(["tag", str(tmp_path), "early", "--checkpoint", "latest"]) == 0
    assert "main: " in capsys.readouterr().out
    assert main(["eval", str(tmp_path), "--checkpoint", "early", "--episodes", "2"]) == 0
    assert "tags/early/step_" in capsys.readouterr().out
    assert main(["launch", *small, "stop.env_steps=64", f"load={tmp_path}@early", *quiet]) == 0
    assert main(["launch", *small, "stop.env_steps=64", f"load={tmp_path}@late", *quiet]) == 2
    assert "has no version 'late'" in capsys.readouterr().err
