"""Words that the shell offers at the Tab key."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from srl.cli.completion import SCRIPTS, words


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("srl ex", {"expect", "export"}),
        ("srl launch experiment=cartpole_d", {"experiment=cartpole_dagger", "experiment=cartpole_dqn"}),
        ("srl launch sampling.e", {"sampling.envs="}),
        ("srl launch sampl", {"sampling=", "sampling."}),
        ("srl graph algorithm=dqn algorithm.eps", {"algorithm.epsilon="}),
        ("srl launch algorithm=pp", {"algorithm=ppo", "algorithm=ppg"}),
        ("srl eval --sa", {"--sampled"}),
        ("srl completion f", {"fish"}),
        ("srl nonsense ", set()),
    ],
)
def test_a_line_is_continued(line: str, wanted: set[str]) -> None:
    assert set(words(line)) == wanted


def test_commands_for_runs_offer_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "runs" / "cartpole").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    assert set(words("srl play ")) == {"runs/"} and set(words("srl play runs/c")) == {"runs/cartpole/"}


def test_bash_asks_and_gets_the_rest_of_the_word() -> None:
    """After an equals sign bash completes only what stands behind it."""
    script = f"""
    srl() {{ {sys.executable} -m srl "$@"; }}
    {SCRIPTS["bash"]}
    COMP_LINE="srl launch experiment=cartpole_da" COMP_POINT=33 COMP_CWORD=4
    COMP_WORDS=(srl launch experiment = cartpole_da)
    _srl 2> /dev/null
    printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    ended = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert ended.stdout.split() == ["cartpole_dagger"], ended.stderr
