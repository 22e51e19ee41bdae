"""What goes wrong in the first hour: what is refused before anything starts, and what is left behind."""

import re
from pathlib import Path

import pytest

from srl.__main__ import main as verbs
from srl.cli.launch import main
from srl.store.run_folder import RunFolder

ROOT = Path(__file__).parents[2]


def refused(capsys, *words: str) -> str:
    assert main(list(words)) == 2
    return capsys.readouterr().err


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my.yaml").write_text(
        "env: CartPole-v1\n"
        "policy: {use: actor_critic, hidden: [16]}\n"
        "algorithm:\n"
        "  use: ppo\n"
        "  epochs: 2\n"
        "sampling: {envs: 8, steps: 16, workers: 2}\n"
        "stop: {updates: 2}\n"
    )
    return tmp_path


@pytest.mark.parametrize(
    ("words", "fact"),
    [
        (["algorithm.epoks=2"], "'algorithm' has no setting 'epoks'"),
        (["policy.hiden=[8]"], "'policy' has no setting 'hiden'"),
        (["env.lenght=8"], "lenght"),
        (["trainer.threads=2"], "did you mean: workers.trainer.threads=2?"),
    ],
)
def test_a_misspelt_setting_is_refused_before_any_folder_or_process_exists(words, fact, capsys, folder, monkeypatch):
    (folder / "mine.py").write_text('"""User code: its specs are never cached."""\n')
    monkeypatch.setattr("srl.control.controller.Controller.__init__", lambda *_, **__: pytest.fail("a process was started"))
    dry = refused(capsys, "my", "mode=inline", "import=mine.py", *words, "--dry-run")
    assert fact in dry
    assert main(["my", "mode=inline", "import=mine.py", *words]) == 2
    printed = capsys.readouterr()
    assert (printed.out, printed.err) == ("", dry)
    assert not (folder / "runs").exists()


def test_the_plan_is_shown_with_its_figures(capsys, folder):
    assert main(["my", "mode=inline"]) == 0
    said = capsys.readouterr().out
    assert "policy      actor_critic" in said and " parameters" in said and " shared of " in said
    assert said.count("experiment  my") == 1


def test_observation_outside_its_space(capsys, folder):
    (folder / "envs.py").write_text(
        "import gymnasium, numpy as np\n"
        "class Bad(gymnasium.Env):\n"
        "    observation_space = gymnasium.spaces.Box(0, 255, (4, 4, 3), np.uint8)\n"
        "    action_space = gymnasium.spaces.Discrete(2)\n"
        "    def reset(self, *, seed=None, options=None):\n"
        "        super().reset(seed=seed)\n"
        "        return np.zeros((4, 4, 3), np.uint8), {}\n"
        "    def step(self, action):\n"
        "        return np.full((4, 4, 3), 0.5), 0.0, False, False, {}\n"
    )
    from srl.__main__ import main as verbs

    assert verbs(["check", "env", "envs.py:Bad"]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith("error[E05]: env ") and lines[0].endswith("returned an observation outside its space")
    assert "expected uint8 (4,4,3) in 0..255" in lines[1] and "got float64 (4,4,3) min 0.5 max 0.5" in lines[1]
    assert lines[2].startswith("  likely: image scaled to floats; declare Box(0,1,...,float32) or return uint8")


def test_resume_that_does_not_fit(capsys, folder):
    assert main(["my", "mode=inline", "--quiet"]) == 0
    run = next((folder / "runs" / "my").iterdir())
    capsys.readouterr()
    assert main(["--resume", "runs", "policy.hidden=[32]"]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == (
        "error[E09]: the checkpoint does not fit policy 'main': "
        "layer 'actor.layers.0.bias' is float32 (16,) there and float32 (32,) here"
    )
    assert lines[1].startswith(f"  checkpoint: {run.relative_to(folder)}/checkpoints/step_")
    assert lines[2] == "  changed: policy.hidden: [16] -> [32] (command line)"
    assert lines[3] == "  try: undo that setting, or start a new run without --resume"


def test_worker_died(capsys, folder):
    (folder / "mine.py").write_text(
        "from srl.algorithms.ppo import PPO\n"
        "class Breaks(PPO):\n"
        "    def update(self, batch):\n"
        "        raise RuntimeError('the loss is not a number')\n"
    )
    assert main(["my", "algorithm.use=mine.py:Breaks", "--runs", "runs"]) == 3
    text = capsys.readouterr().out
    assert re.search(r"^error\[R01\]: trainer/0 raised RuntimeError \d\d:\d\d:\d\d after start$", text, re.MULTILINE), text
    assert "  policy: workers.trainer.on_failure=stop -> stopping; no checkpoint was written" in text
    assert "RuntimeError: the loss is not a number" in text


def test_an_interrupt_before_the_controller_runs_leaves_no_folder(folder, monkeypatch):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("srl.control.controller.Controller.__init__", interrupt)
    assert main(["my"]) == 130
    assert list((folder / "runs").glob("*/*")) == []


@pytest.mark.parametrize("writing", ["write_env", "write_text"])
def test_an_interrupt_while_the_folder_is_made_leaves_none(writing, folder, monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(RunFolder, writing, interrupt)
    assert main(["my"]) == 130
    assert list((folder / "runs").glob("*/*")) == []


@pytest.mark.parametrize(
    ("command", "facts"),
    [
        (["srl", "bench"], ["srl bench needs limit or scale", "try: srl bench limit experiment=cartpole"]),
        (["srl", "bench", "limit"], ["no experiment is named", "try: experiment=cartpole"]),
        (["srl", "expect"], ["no experiment is named", "try: experiment=cartpole"]),
        (["srl", "watch"], ["srl watch needs run", "try: srl watch runs/cartpole"]),
        (["srl", "compare"], ["srl compare needs RUN", "try: srl compare runs/cartpole"]),
        (["srl.launch", "algorithm=ppo"], ["no experiment is named", "env=CartPole-v1 algorithm=ppo"]),
        (["srl.launch", "--help", "cartpole_dqn"], ["python -m srl.launch experiment=cartpole_dqn --print-config"]),
    ],
)
def test_a_command_without_what_it_needs_says_what_could_be_typed(command, facts, capsys, monkeypatch):
    monkeypatch.chdir(ROOT)
    program, *words = command
    assert (verbs if program == "srl" else main)(words) == 2
    said = capsys.readouterr().err
    assert all(fact in said for fact in facts), said
