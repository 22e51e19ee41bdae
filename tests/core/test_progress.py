"""The line that says how far a command is: on a terminal, and in a file."""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Iterator

import pytest

from srl.core import progress
from srl.core.progress import Progress, line
from tests.waiting import until


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[io.TextIOWrapper, list[str]]]:
    """The side that a command writes to, and what has come out at the other one."""
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(progress, "AFTER", 0.0)
    ours, theirs = os.openpty()
    os.set_blocking(ours, False)
    with open(theirs, "w") as out:
        yield out, _Seen(ours)
    os.close(ours)


class _Seen(list[str]):
    def __init__(self, descriptor: int) -> None:
        super().__init__()
        self._descriptor = descriptor

    def __contains__(self, text: object) -> bool:
        with contextlib.suppress(BlockingIOError):
            self.append(os.read(self._descriptor, 1 << 16).decode())
        return str(text) in "".join(self)


def test_a_terminal_shows_one_line_that_is_gone_at_the_end(
    terminal: tuple[io.TextIOWrapper, list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    out, seen = terminal
    with Progress("loading the run", out=out) as shown:
        until(lambda: "loading the run" in seen)
        shown("episodes", 12, 20)
        until(lambda: "episodes 12 of 20" in seen)
        shown.print("checkpoint best")
        shown.lasting("the run", 1000.0)
        until(lambda: "the run 00:00:00 of 00:16:40" in seen)
    until(lambda: "\r\x1b[K" in seen)
    assert "".join(seen).endswith("\r\x1b[K") and "\n" not in "".join(seen)
    assert capsys.readouterr().out == "checkpoint best\n"


def test_a_file_gets_a_plain_line_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    out = io.StringIO()
    with Progress("runs", look=lambda: ("runs", 1, 3), out=out):
        pass
    assert out.getvalue() == "", "what is over soon says nothing"
    monkeypatch.setattr(progress, "PLAIN_EVERY", 0.01)
    with Progress("runs", look=lambda: ("runs", 1, 3), out=out):
        until(lambda: out.getvalue().count("\n") > 1)
    assert out.getvalue().startswith("runs 1 of 3  [") and "\x1b" not in out.getvalue()


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (("episodes", 12, 20, 6.0), "episodes 12 of 20  [##################............]  00:00:06, 00:00:04 to go"),
        (("episodes", 0, 20, 6.0), "episodes 0 of 20  [..............................]  00:00:06"),
        (("pictures", 1234, 0, 6.0), "pictures 1,234  00:00:06"),
        (("loading the run", 0, 0, 61.0), "loading the run  00:01:01"),
        (("runs", 7, 5, 6.0), "runs 7 of 5  [##############################]  00:00:06, 00:00:00 to go"),
    ],
)
def test_a_line_says_what_is_known(given: tuple[str, float, float, float], text: str) -> None:
    assert line(*given) == text


@pytest.mark.parametrize("width", [20, 40, 60, 79])
def test_a_line_fits(width: int) -> None:
    assert len(line("round 2 of 3, runs", 12, 1000, 90_000.0, width=width)) <= width
