"""A table on a terminal, plain lines elsewhere, nothing when quiet but the end."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
import threading
from dataclasses import replace

import pytest

from srl.observe.console import Console, aligned, clock_time, line, size
from srl.observe.report import Report, StreamRow, WorkerRow

REPORT = Report(
    experiment="cartpole",
    elapsed=18.4,
    env_steps=120_000,
    target=300_000,
    update=117,
    env_rate=10_000.0,
    agent_rate=10_000.0,
    train_rate=9_900.0,
    returns={"": 187.3},
    episodes=512,
    episode_length=187.0,
    best=201.0,
    cores=2,
    workers=(
        WorkerRow(kind="actor", count=2, busy=0.62, cpu=1.2, rss=120_000_000, waits={"credit": 0.3, "answer": 0.05}),
        WorkerRow(kind="trainer", busy=0.81, cpu=0.8, rss=433_000_000, waits={"slab": 0.19}, restarts=1),
    ),
    streams=(
        StreamRow(name="samples", items=12.5, bytes=3.1e6, queue=3, slots=8, staleness=(0, 0.6, 1), drops={"stop": 2}, put=400),
        StreamRow(name="params", kind="param", items=9.0, bytes=81_000),
    ),
    advice="nobody is busy all the time",
)


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


class Screen:
    """A pseudo terminal, and all that was written to it."""

    def __init__(self) -> None:
        master, slave = os.openpty()
        self.out = os.fdopen(slave, "w")
        self._parts: list[bytes] = []
        self._reader = threading.Thread(target=self._read, args=(master,))
        self._reader.start()

    def _read(self, master: int) -> None:
        try:
            while part := os.read(master, 65536):
                self._parts.append(part)
        except OSError:  # how Linux says that the other side was closed
            pass
        os.close(master)

    def finish(self) -> str:
        self.out.close()
        self._reader.join()
        return b"".join(self._parts).decode()


def test_one_plain_line_says_it_all() -> None:
    assert line(REPORT) == (
        "00:00:18 | env steps 120,000 of 300,000 (40 %), 00:00:18 to go, update 117"
        " | return 187.3 (episodes 512, length 187, best 201) | env 10,000/s, train 9,900/s"
        " | actor busy 62 % (waits: credit 30 %, answer 5 %) | trainer busy 81 % (waits: slab 19 %)"
        " | samples staleness 0.6 | samples dropped stop 2 | nobody is busy all the time"
    )


def test_returns_are_shown_per_team_and_agents_where_they_differ_from_envs() -> None:
    text = line(replace(REPORT, returns={"hiders": 1.25, "seekers": -1.25}, agent_rate=40_000.0))
    both = line(replace(REPORT, agent_rate=40_000.0, policy_rates={"hider": 30_000.0, "seeker": 10_000.0}))
    assert "agent 40,000/s (hider 30,000, seeker 10,000), train" in both
    assert "return hiders 1.25, seekers -1.25 (episodes" in text
    assert "env 10,000/s, agent 40,000/s, train" in text


def test_elsewhere_a_line_comes_every_ten_seconds() -> None:
    clock, out = Clock(), io.StringIO()
    console = Console(out, clock=clock)
    shown = []
    for second in range(36):
        clock.now = float(second)
        shown += [second] if console.update(REPORT) else []
    assert shown == [10, 20, 30]
    assert out.getvalue() == (line(REPORT) + "\n") * 3
    assert not console.live


def test_quiet_says_nothing_but_the_end() -> None:
    clock, out = Clock(), io.StringIO()
    console = Console(out, quiet=True, clock=clock)
    console.plan([("batch", "12,288 rows")])
    clock.now = 100.0
    assert not console.update(REPORT)
    console.message("checkpoint written")
    console.finish(REPORT, "done")
    assert out.getvalue() == "done\n"


def test_a_terminal_gets_a_table_at_most_twice_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setenv("LINES", "40")
    screen, clock = Screen(), Clock()
    console = Console(screen.out, clock=clock)
    assert console.live
    console.plan([("batch", "12,288 rows")])
    shown = 0
    for tick in range(100):
        clock.now = tick / 20
        shown += console.update(replace(REPORT, env_steps=1000 * tick))
    console.message("actor/3 restarted [1 of 3]")
    console.finish(replace(REPORT, env_steps=123_456), "error[R01]: the end")
    text = screen.finish()
    assert shown == 10
    plain = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", text)
    last = plain[plain.rindex("123,456") :]
    assert "batch  12,288 rows" in plain and "actor/3 restarted [1 of 3]" in plain
    assert re.search(r"actor x 2 +│ +62 % │ +1\.20 │ +120 MB │ credit 30 %, answer 5 %", last)
    assert re.search(r"trainer \(1 restarts\)", last)
    assert re.search(r"samples \(sample\) │ +12\.5 │ +3\.1 MB │ +3/8 │ 0\.0 / 0\.6 / 1\.0 │ stop 2", last)
    assert "nobody is busy all the time" in last
    assert last.rstrip().endswith("error[R01]: the end")
    assert text.count("\x1b[?25l") == text.count("\x1b[?25h") == 1  # the cursor is given back


def test_a_dumb_terminal_gets_plain_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    screen = Screen()
    console = Console(screen.out)
    assert not console.live
    console.finish(REPORT, "done")
    assert screen.finish() == f"{line(REPORT)}\r\ndone\r\n"


def test_rich_is_not_imported_without_a_terminal() -> None:
    program = (
        "import sys; from srl.observe.console import Console; from srl.observe.report import Report;"
        "Console().finish(Report(experiment='x', elapsed=1.0, env_steps=5), 'done'); sys.exit('rich' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], check=False, stdout=subprocess.PIPE, text=True)
    assert done.returncode == 0
    assert done.stdout == "00:00:01 | env steps 5, update 0 | env 0/s, train 0/s\ndone\n"


def test_progress_and_time_to_go() -> None:
    assert (REPORT.progress, REPORT.eta) == (0.4, 18.0)
    endless = replace(REPORT, target=None)
    assert (endless.progress, endless.eta) == (None, None)
    by_time = replace(endless, fraction=0.25, elapsed=30.0)
    assert (by_time.progress, by_time.eta) == (0.25, 90.0)
    assert replace(REPORT, env_steps=400_000).progress == 1.0


def test_the_plan_is_aligned() -> None:
    text = aligned([("batch", "48 envs x 64 steps\n= 12,288"), ("threads", "2 of 2")])
    assert text == "batch    48 envs x 64 steps\n         = 12,288\nthreads  2 of 2"


@pytest.mark.parametrize(("seconds", "text"), [(0, "00:00:00"), (761.9, "00:12:41"), (90061, "1d 01:01:01")])
def test_clock_time(seconds: float, text: str) -> None:
    assert clock_time(seconds) == text


@pytest.mark.parametrize(("number", "text"), [(0, "0 B"), (999, "999 B"), (1500, "1.5 kB"), (3.1e9, "3.1 GB"), (2e12, "2.0 TB")])
def test_size(number: float, text: str) -> None:
    assert size(number) == text


@pytest.mark.parametrize("live", [True, False])
def test_a_terminal_that_is_gone_breaks_nothing(live: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm" if live else "dumb")
    master, slave = os.openpty()
    with os.fdopen(slave, "w") as out, open(os.devnull, "w") as nowhere:
        console = Console(out, clock=(clock := Clock()))
        clock.now = 10.0
        assert console.live is live and console.update(REPORT)
        os.close(master)
        clock.now = 20.0
        console.update(REPORT)
        console.message("a checkpoint was written")
        console.finish(REPORT, "interrupted")
        assert os.path.sameopenfile(out.fileno(), nowhere.fileno())
