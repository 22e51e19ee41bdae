"""Words that the shell offers at the Tab key."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from srl.cli.completion import SCRIPTS, words
from tests.waiting import until

ROOT = Path(__file__).parents[2]


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


def srl_in(folder: Path) -> dict[str, str]:
    """An environment in which the shell finds a program `srl`, which completes and otherwise only repeats its words."""
    program = folder / "bin" / "srl"
    program.parent.mkdir()
    asked = f'[ "$1" = completion ] && exec "{sys.executable}" -m srl "$@"'
    program.write_text(f'#!/bin/sh\n{asked}\necho "asked for: $*"\n')
    program.chmod(0o755)
    return {**os.environ, "PATH": f"{program.parent}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT), "HOME": str(folder)}


def test_fish_loads_the_script_and_offers_words(tmp_path: Path) -> None:
    (tmp_path / "srl.fish").write_text(SCRIPTS["fish"])
    words = "complete -C 'srl launch experiment=cartpole_da'; complete -C 'srl completion z'"
    command = [shell("fish"), "--no-config", "-c", f"source {tmp_path}/srl.fish; {words}"]
    ended = subprocess.run(command, env=srl_in(tmp_path), capture_output=True, text=True, timeout=60, check=False)
    assert ended.stdout.split() == ["experiment=cartpole_dagger", "zsh"], ended.stderr


def test_zsh_completes_at_the_tab_key(tmp_path: Path) -> None:
    """In a terminal of its own: completion works only where keys are typed."""
    (tmp_path / ".zshrc").write_text(f"PS1='> '\n{SCRIPTS['zsh']}\n")
    ours, theirs = os.openpty()
    environment = {**srl_in(tmp_path), "TERM": "dumb", "ZDOTDIR": str(tmp_path)}
    with subprocess.Popen([shell("zsh"), "-i"], stdin=theirs, stdout=theirs, stderr=theirs, env=environment, cwd=tmp_path) as zsh:
        os.close(theirs)
        os.set_blocking(ours, False)
        seen = ""

        def shown(text: str) -> bool:
            nonlocal seen
            with contextlib.suppress(BlockingIOError):
                seen += os.read(ours, 1 << 16).decode()
            return text in seen

        try:
            until(lambda: shown("> "))
            os.write(ours, b"srl launch experiment=cartpole_da\tsampling.e\t\n")
            until(lambda: shown("asked for: launch experiment=cartpole_dagger sampling.envs="))
        finally:
            zsh.kill()
            os.close(ours)


def shell(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"needs {name}: install the Debian package of this name")
    return found
