"""The errors that every user meets, word for word: messages.txt, renewed by WRITE_MESSAGES=1.

Other tests assert code, setting and the deciding fact. Read this file aloud after a change of words.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from srl.__main__ import main as verbs
from srl.cli.launch import main

GOLDEN = Path(__file__).with_name("messages.txt")
FILES = {
    "my.yaml": (
        "env: CartPole-v1\n"
        "policy: {use: actor_critic, hidden: [16]}\n"
        "algorithm:\n"
        "  use: ppo\n"
        "  epochs: 2\n"
        "sampling: {envs: 8, steps: 16, workers: 2}\n"
        "stop: {updates: 2}\n"
    ),
    "misspelt.yaml": "env: CartPole-v1\nalgorithm:\n  use: ppo\n  epoks: 2\n",
    "twice.yaml": "env: CartPole-v1\nseed: 1\nalgorithm: ppo\nseed: 2\n",
    "torn.yaml": "env: CartPole-v1\nalgorithm: {use: ppo\n",
    "deep.yaml": "env: CartPole-v1\npolicy: " + "[" * 50 + "]" * 50 + "\n",
    "circle.yaml": "inherit: [circle.yaml]\n",
    "two.yaml": (
        "env: {use: fake, teams: {red: 1, blue: 1}}\n"
        "policies:\n"
        "  hider: {algorithm: ppo}\n"
        "  seeker:\n"
        "    algorithm:\n"
        "      use: ppo\n"
        "      lr: {from: 1e-3, to: 0, until: 2}\n"
        'agents: {"red*": hider, "blue*": seeker}\n'
    ),
    "script.py": "import srl\n\nclass Mine:\n    pass\n\nsrl.launch('my')\n",
}
CASES = [
    "experiment=cartpol",
    "my sampling.envz=8",
    "misspelt",
    "my sampling.steps=many",
    "my sampling.steps=0",
    "my sampling.envs=9",
    "my policy.hidden=64",
    "my policy.hidden=[1000000000]",
    "my algorithm.clip=2e-1x",
    "my stop.return=high",
    "my seed=100000000000000000000",
    "two",
    "my algorithm=pppo",
    "my env=CartPol-v1",
    "my layout=impalla",
    "my algorithm.use=my_pkg.mine:Better",
    "my algorithm.use=script.py:Mine",
    "my algorithm.use=nowhere.py:Mine",
    'my agents={"seeker_*":main}',
    "my ~agents",
    "my +seed",
    "my sampling.envs",
    "my sampling=[1,",
    "my algorithm=null",
    "my device=cuda:1",
    "twice",
    "torn",
    "deep",
    "circle",
    "--resume runs/none",
    "srl status runs/none",
    "srl stauts",
]


def said(case: str, capsys: pytest.CaptureFixture[str], folder: Path) -> str:
    words = case.split()
    code = verbs(words[1:]) if words[0] == "srl" else main([*words, "mode=inline", "--dry-run"])
    assert code == 2
    text = capsys.readouterr().err.replace(str(folder), "FOLDER")
    lines = [line for line in text.splitlines() if not line.startswith(("  known: ", "  searched: ", "  commands: "))]
    return "\n".join(lines)


def test_the_messages_read_as_they_were_reviewed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    found = "\n\n".join(f"$ {case}\n{said(case, capsys, tmp_path)}" for case in CASES) + "\n"
    if os.environ.get("WRITE_MESSAGES"):
        GOLDEN.write_text(found)
    assert found == GOLDEN.read_text()
