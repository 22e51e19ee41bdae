"""The commands, end to end on small runs."""

import json
import os
import re
import subprocess
import sys

import numpy as np
import pytest
import torch

import srl
from srl.__main__ import main as verbs
from srl.cli.launch import main
from srl.cli.sweep import values
from srl.core.errors import UserError
from tests.errors import raises

SMALL = ["sampling.envs=8", "sampling.steps=16", "stop.updates=2", "~stop.env_steps", "evaluation.episodes=2", "--quiet"]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """One small finished run."""
    root = tmp_path_factory.mktemp("runs")
    assert main(["cartpole", "mode=inline", *SMALL, "--runs", str(root)]) == 0
    return next((root / "cartpole").iterdir())


def test_a_dry_run_prints_the_plan_and_starts_nothing(tmp_path, monkeypatch, capsys):
    assert main(["experiment=cartpole", "--dry-run", "--runs", str(tmp_path / "none")]) == 0
    text = capsys.readouterr().out
    assert "1 batch = 32 envs x " in text
    assert not (tmp_path / "none").exists()


def test_print_config_names_the_place_of_every_value(capsys):
    assert main(["cartpole", "seed=7", "--print-config"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert any(line.startswith("seed: 7") and line.endswith("# command line") for line in lines)
    assert any(line.strip().startswith("workers:") and line.endswith("# auto") for line in lines)
    assert any("cartpole.yaml:" in line for line in lines)


def test_the_run_folder_repeats_the_run(run, capsys):
    assert main([str(run / "config.yaml"), "--print-config"]) == 0
    again = capsys.readouterr().out
    assert "layout: inline" in again
    assert {"config.yaml", "graph.yaml", "overrides.txt", "metrics.jsonl", "status.json"} <= {one.name for one in run.iterdir()}


def test_eval_and_play_work_from_the_folder_alone(run, tmp_path, capsys):
    assert verbs(["eval", str(run), "--episodes", "2"]) == 0
    said = capsys.readouterr().out.splitlines()
    path = srl.load_run(run).checkpoint("best")
    assert said[0] == f"checkpoint {path} (env step {int(path.name.removeprefix('step_')):,})"
    assert said[1] == "2 episodes, most likely actions"
    assert said[2].split()[0] == "return" and said[2].split()[2] == "±"
    video = tmp_path / "episode.gif"
    assert verbs(["play", str(run), "--record", str(video)]) == 0
    assert capsys.readouterr().out.splitlines() == [said[0], str(video)]
    assert video.stat().st_size > 1000


@pytest.mark.parametrize("number", ["0", "-3", "few"])
@pytest.mark.parametrize("words", [["eval", "--episodes"], ["eval", "--envs"], ["play", "--episodes"]])
def test_no_episodes_and_no_envs_are_refused(run, words, number, capsys):
    assert verbs([words[0], str(run), f"{words[1]}={number}"]) == 2
    assert f"'{number}' is not a number of at least 1" in capsys.readouterr().err


def test_a_loaded_policy_predicts_for_one_and_for_many(run):
    policy = srl.load_run(run).policy("latest")
    network = srl.load_run(run).network("latest")
    rows = np.random.default_rng(0).uniform(-0.2, 0.2, (64, 4)).astype(np.float32)
    np.testing.assert_array_equal(network(torch.from_numpy(rows)).numpy(), policy.predict(rows)[0])
    action, memory = policy.predict(np.zeros(4))
    assert action.shape == () and memory == {}
    many, _ = policy.predict(np.zeros((3, 4)))
    assert many.shape == (3,)
    with pytest.raises(UserError, match="has shape"):
        policy.predict(np.zeros(5))


def test_an_unknown_checkpoint_names_those_there_are(run):
    with pytest.raises(UserError) as caught:
        srl.load_run(run).policy("step_5")
    assert "latest" in dict(caught.value.facts)["known"]


def test_a_resume_goes_on_and_shows_what_changed(run, capsys):
    before = json.loads((run / "status.json").read_text())["env_steps"]
    assert main(["--resume", str(run), "stop.updates=4", "algorithm.lr=1e-4"]) == 0
    text = capsys.readouterr().out
    assert "stop.updates: 2 -> 4 (command line)" in text
    assert "algorithm.lr: {from: " in text
    assert json.loads((run / "status.json").read_text())["env_steps"] > before


def test_a_resume_that_has_nothing_to_do_says_so_and_writes_nothing(run, capsys):
    def files():
        return {path: path.stat().st_mtime_ns for path in run.rglob("*") if path.is_file()}

    before = files()
    assert main(["--resume", str(run), "stop.updates=1", "--quiet"]) == 0
    assert f"nothing to do: {run} has " in capsys.readouterr().out
    done = srl.launch(resume=run, overrides=["stop.updates=1"], quiet=True)
    assert capsys.readouterr().out == ""
    assert repr(done) == f"<Run {run}: done>"
    assert done.result is not None and done.result.headline.startswith("nothing to do")
    assert files() == before


def test_a_resume_of_a_solved_run_says_that_the_return_still_holds(run, tmp_path, capsys):
    words = ["cartpole", "mode=inline", *SMALL, "stop.return=1", "stop.updates=1000", "--runs", str(tmp_path)]
    assert main(words) == 0
    assert "solved" in capsys.readouterr().out
    assert main(["--resume", str(tmp_path), "stop.env_steps=600_000"]) == 0
    said = capsys.readouterr().out
    assert "nothing to do" in said and "stop.return=1" in said and "stop.return=null" in said
    assert main(["--resume", str(tmp_path), "stop.return=null", "stop.seconds=1", "--quiet"]) == 0
    assert "nothing to do" not in capsys.readouterr().out


def test_a_requeued_job_continues_in_its_own_folder(tmp_path, capsys):
    words = ["cartpole", "mode=inline", *SMALL[:-1], "+plugins=[]", "--runs", str(tmp_path), "--resume-or-start", "job-7"]
    folder = tmp_path / "cartpole" / "job-7"
    assert main([*words, "stop.seconds=0"]) == 0  # no update, and no checkpoint: the next one starts anew
    assert main(words) == 0
    assert json.loads((folder / "status.json").read_text())["exit_code"] == 0
    assert [path.name.partition("_")[0] for path in sorted(folder.parent.iterdir())] == ["job-7", "job-7"]
    capsys.readouterr()
    assert main(words) == 0
    assert "nothing to do" in capsys.readouterr().out
    assert main([*words, "stop.updates=4"]) == 0
    assert json.loads((folder / "metrics.jsonl").read_text().splitlines()[-1])["update"] == 4
    assert main([*words[:-1], "a/b"]) == 2


def test_a_resume_that_makes_no_update_writes_no_second_checkpoint(run):
    before = sorted(path.name for path in (run / "checkpoints").iterdir())
    assert main(["--resume", str(run), "stop.updates=100000", "stop.seconds=0", "--quiet"]) == 0
    assert sorted(path.name for path in (run / "checkpoints").iterdir()) == before


def test_a_run_without_a_checkpoint_says_so(run, tmp_path):
    bare = tmp_path / "bare"
    bare.mkdir()
    for name in ("graph.yaml", "status.json"):
        (bare / name).write_bytes((run / name).read_bytes())
    with pytest.raises(UserError, match="has no checkpoint"):
        srl.load_run(bare).policy("best")


def test_play_shows_nothing_but_its_own_lines(run, tmp_path):
    environment = {name: value for name, value in os.environ.items() if name not in ("XDG_RUNTIME_DIR", "SDL_VIDEODRIVER")}
    command = [sys.executable, "-m", "srl", "play", str(run), "--record", str(tmp_path / "x.gif")]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=environment)
    taken, *rest = ended.stdout.splitlines()
    assert taken.startswith("checkpoint ") and (rest, ended.stderr) == ([str(tmp_path / "x.gif")], "")


@pytest.mark.parametrize(
    "words", [["list"], ["graph", "cartpole"], ["graph", "cartpole", "--mermaid"], ["doctor"], ["--version"]]
)
def test_looking_commands_answer(words, capsys):
    assert verbs(words) == 0
    assert capsys.readouterr().out


def test_list_has_every_kind_of_name(capsys):
    assert verbs(["list"]) == 0
    said = capsys.readouterr().out
    for line in ("learner: auto, single, split", "launcher: local, external", "sink: prometheus", "transport: auto, inproc"):
        assert f"\n{line}" in said


def test_status_lists_runs(run, capsys):
    assert verbs(["status", str(run.parent.parent)]) == 0
    head, *rows = capsys.readouterr().out.splitlines()
    assert head.split() == ["updated", "state", "env", "steps", "return", "duration", "folder"]
    assert any(str(run) in row and " 00:00:0" in row for row in rows)


def test_status_of_one_run_is_for_people(run, capsys):
    assert verbs(["status", str(run)]) == 0
    said = dict(line.split(None, 1) for line in capsys.readouterr().out.replace("env steps", "steps").splitlines())
    assert re.fullmatch(r"20\d\d-\d\d-\d\d \d\d:\d\d:\d\d", said["created"]) and said["duration"].startswith("00:00:")
    assert "," in said["steps"] or len(said["steps"]) < 4
    assert said["folder"] == str(run) and "incarnation" not in said


def test_an_unknown_command_names_the_nearest(capsys):
    assert verbs(["evl"]) == 2
    assert "did you mean: srl eval?" in capsys.readouterr().err


def test_an_unknown_option_names_the_nearest(capsys):
    assert main(["cartpole", "--dri-run"]) == 2
    assert "did you mean: --dry-run?" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (["cartpole", "lr=5e-4"], "algorithm.lr=5e-4?"),
        (["cartpole", "envs=8"], "sampling.envs=8"),
        (["cartpole", "--seed", "3"], "seed=3?"),
        (["--experiment", "cartpole"], "experiment=cartpole?"),
        (["cartpole", "--algorithm.lr=3e-4"], "algorithm.lr=3e-4?"),
        (["cartpole", "algorithm.lr=1e-3,3e-4"], "--sweep algorithm.lr=1e-3,3e-4"),
        (["hide_and_seek", "env.presett=full"], "preset?"),
    ],
)
def test_errors_of_words_name_what_was_meant(words, meant, capsys):
    assert main([*words, "mode=inline", "--dry-run"]) == 2
    assert meant in capsys.readouterr().err


def test_an_env_is_checked_alone(capsys):
    assert verbs(["check", "env", "env=fake", "env.length=[5,5]"]) == 0
    by_setting = capsys.readouterr().out
    assert "equal seeds give equal episodes" in by_setting
    assert verbs(["check", "env", "fake", "env.length=[5,5]"]) == 0
    assert capsys.readouterr().out == by_setting


def test_trace_shows_the_traceback_of_a_user_error():
    ended = subprocess.run(
        [sys.executable, "-m", "srl.launch", "nothing_like_it", "--trace"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert "Traceback" in ended.stderr


def test_a_sweep_runs_every_value_into_one_folder(tmp_path, capsys):
    words = ["cartpole", "mode=inline", *SMALL[:-1], "evaluation=null", "--sweep", "seed=1,2", "--jobs", "2"]
    words.remove("evaluation.episodes=2")
    assert main([*words, "--runs", str(tmp_path)]) == 0
    *rows, mean = capsys.readouterr().out.splitlines()[-3:]
    assert [row.split()[:2] for row in rows] == [["seed=1", "ok"], ["seed=2", "ok"]]
    assert mean.startswith("mean of 2 seeds") and mean.count("±") == 3
    assert len(list(tmp_path.glob("cartpole_sweep/*/*/cartpole/*/metrics.jsonl"))) == 2
    assert verbs(["status", str(tmp_path)]) == 0
    assert capsys.readouterr().out.count("cartpole_sweep") == 2


def test_commas_inside_brackets_do_not_split_a_sweep():
    assert values("policy.hidden=[64,64],[32]") == ["policy.hidden=[64,64]", "policy.hidden=[32]"]
    with raises("E12"):
        values("seed")


def test_launch_from_python_returns_a_run(tmp_path):
    run = srl.launch(
        "cartpole",
        mode="inline",
        stop={"updates": 2},
        sampling={"envs": 8, "steps": 16},
        evaluation=None,
        runs=tmp_path,
        quiet=True,
    )
    assert run.result is not None and run.result.exit_code == 0
    assert run.metrics()[-1]["update"] == 2


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (["experiment=cartpole", "~stop", "sampling.envs=8", "sampling.steps=16"], ["env step", "inference", "training"]),
        (
            ["env=CartPole-v1", "algorithm=dqn", "replay.warmup=20", "replay.batch=16"],
            ["env step", "inference", "inserting", "sampling", "training"],
        ),
    ],
)
def test_bench_times_every_part_of_a_step(words: list[str], parts: list[str]) -> None:
    from srl.cli.bench import measure
    from srl.plan.prepare import prepare

    costs = measure(prepare(overrides=[*words, "evaluation=null"]), 0.2)
    assert list(costs.parts) == parts and min(costs.parts.values()) > 0
    assert costs.limit(2) == pytest.approx(2e6 / sum(costs.parts.values()))


def test_bench_times_the_whole_update_of_a_split_learner(monkeypatch: pytest.MonkeyPatch) -> None:
    from srl.cli.bench import measure
    from srl.plan.prepare import prepare

    words = ["env=Pendulum-v1", "algorithm=sac", "learner=split", "replay.warmup=20", "replay.batch=16", "evaluation=null"]
    prepared = prepare(overrides=words)
    monkeypatch.delattr("subprocess.Popen")  # what another process spends is not seen
    assert measure(prepared, 0.2).parts["training"] > 0
