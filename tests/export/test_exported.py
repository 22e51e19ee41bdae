"""Exported policies act as their originals, in onnxruntime and in torch, and say what they need."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import srl
from srl.__main__ import main as verbs
from srl.export.write import export_policy
from tests.errors import raises

pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")

ONE_UPDATE = ["mode=inline", "evaluation=null", "stop={updates: 1}"]
ONE_REPLAY = ["replay.warmup=64", "replay.size=1000", "replay.batch=32"]
ROOT = Path(srl.__file__).parents[1]


def trained(folder: Path, *words: str) -> Any:
    return srl.load_run(srl.launch(overrides=[*words, *ONE_UPDATE], runs=folder, quiet=True).folder)


RUNS: dict[str, tuple[str, ...]] = {
    "plain": ("env=CartPole-v1", "algorithm=ppo", "policy.normalize_obs=true"),
    "box": ("env=Pendulum-v1", "algorithm=ppo"),
    "gru": ("env=CartPole-v1", "algorithm=ppo", "policy={use: recurrent, shared: false}"),
    "lstm": ("env=CartPole-v1", "algorithm=ppo", "policy={use: recurrent, cell: lstm, normalize_obs: true}"),
    "masks": (
        "env={use: fake, mask: true, state: 5, action: [3, 4], dying: true, teams: {side: 3}}",
        "algorithm=ppo",
        "policy={use: recurrent, critic_state: true, normalize_obs: true}",
    ),
    "pictures": ("env=catch", "algorithm=ppo"),
    "dict": ("env={use: catch, told: true}", "algorithm=dqn", *ONE_REPLAY),
    "squashed": ("env=Pendulum-v1", "algorithm=sac", "policy.normalize_obs=true", *ONE_REPLAY),
    "deterministic": ("env=Pendulum-v1", "algorithm=td3", *ONE_REPLAY),
    "q": ("env=CartPole-v1", "algorithm=dqn", "policy={dueling: true, atoms: 11}", *ONE_REPLAY),
    "recurrent q": ("env=CartPole-v1", "algorithm=r2d2", *ONE_REPLAY),
    "entities": ("experiment=hide_and_seek_shared", "sampling.envs=2", "sampling.workers=1", "opponents=null"),
}
SHORT = ("masks", "dict", "squashed")
"""Memory and masks, with a critic that reads and remembers more; pictures with vectors, and values; bounds of actions."""


@pytest.mark.parametrize("kind", [one if one in SHORT else pytest.param(one, marks=pytest.mark.long) for one in RUNS])
def test_an_exported_policy_acts_as_its_original(kind: str, tmp_path: Path) -> None:
    run = trained(tmp_path, *RUNS[kind])
    for name in run.graph.learning:
        made = export_policy(run, name=name, which="latest")
        assert made.parity.observations >= 1000 and made.parity.difference < 1e-5, made
        contract = json.loads(made.contract.read_text())
        inputs = [one["name"] for one in contract["inputs"]]
        assert inputs[0].startswith("obs") and set(contract["memory"]) == {one for one in inputs if one.startswith("memory")}
        assert not any("critic" in one or one.startswith("state") for one in inputs)
        assert bool(contract["memory"]) == (kind in ("gru", "lstm", "masks", "recurrent q", "entities"))


def test_the_command_exports_and_the_example_plays_without_torch(tmp_path: Path, capsys: Any) -> None:
    run = trained(tmp_path, *RUNS["plain"])
    assert verbs(["export", str(run.folder), "--observations", "100"]) == 0
    said = capsys.readouterr().out
    assert "104 observations, largest difference" in said
    for file in ("policy.onnx", "policy.json"):
        assert (run.folder / "exports" / file).is_file() and str(run.folder / "exports" / file) in said
    words = [sys.executable, "docs/examples/serve_onnx.py", str(run.folder / "exports" / "policy.onnx"), "3"]
    played = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False, timeout=100)
    assert played.returncode == 0, played.stderr
    assert played.stdout.count("return") == 3 and "torch" not in played.stderr


def test_torch_takes_the_other_format(tmp_path: Path) -> None:
    run = trained(tmp_path, *RUNS["lstm"])
    made = export_policy(run, name="main", which="latest", format="pt2", out=tmp_path / "here" / "mine.pt2", observations=200)
    assert made.program == tmp_path / "here" / "mine.pt2" and made.program.is_file()
    assert made.contract == tmp_path / "here" / "mine.json"
    assert made.parity.difference < 1e-5


def test_a_program_that_acts_otherwise_is_refused_and_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import srl.export.write as write

    run = trained(tmp_path, *RUNS["plain"])
    right = write._runner

    def wrong(*given: Any) -> Any:
        answer = right(*given)
        return lambda asked: {
            name: leaf + np.asarray(1e-3, leaf.dtype) if leaf.dtype == np.float32 else leaf
            for name, leaf in answer(asked).items()
        }

    monkeypatch.setattr(write, "_runner", wrong)
    with raises("S00", match="does not act as the original"):
        export_policy(run, name="main", which="latest", format="pt2", observations=50)
    assert not list((run.folder / "exports").iterdir())


def test_what_cannot_be_exported_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    run = trained(tmp_path, *RUNS["plain"])
    assert verbs(["export", str(run.folder), "--policy", "other"]) == 2
    assert "no policy 'other'" in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    assert verbs(["export", str(run.folder)]) == 2
    assert "really-scalable-rl[export]" in capsys.readouterr().err
