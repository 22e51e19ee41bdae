"""A screen on a terminal, plain lines elsewhere, nothing when quiet but the result."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
import threading
from dataclasses import replace

import pytest

from srl.core.text import aligned, clock_time, size
from srl.observe.report import Evaluation, Report, StreamRow, WorkerRow
from srl.observe.result import RunResult
from srl.observe.screen import LOG_WIDTH, line, screen, sides
from srl.observe.sinks.console import Console
from tests.control.rig import graph

GRAPH = graph()
DONE = RunResult(kind="done", headline="all steps")
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
    cores=2,
    workers=(
        WorkerRow(kind="actor", count=2, busy=0.62, cpu=1.2, rss=120_000_000, waits={"credit": 0.3, "answers": 0.05}),
        WorkerRow(kind="trainer", busy=0.81, cpu=0.8, rss=433_000_000, waits={"slab": 0.19}, restarts=1),
    ),
    streams=(
        StreamRow(name="samples", items=12.5, bytes=3.1e6, queue=3, slots=8, staleness=(0, 0.6, 1), drops={"stop": 2}, put=400),
        StreamRow(name="params", kind="param", items=9.0, bytes=81_000),
    ),
    advice="the trainer is the limit: busy 81 %; no core is free: try fewer epochs",
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


def test_one_plain_line_says_what_it_has_room_for() -> None:
    assert line(REPORT) == (
        "00:00:18 | 120,000 of 300,000 env steps (40 %) | return 187.3 | env 10,000/s, train 9,900/s | the trainer is the limit"
    )
    assert line(replace(REPORT, advice="")).endswith("| samples dropped stop 2")


def test_every_line_fits_and_the_limit_comes_first() -> None:
    """The report of a game: three actors with two policies each, two trainers, an evaluator, many streams."""
    teams = ("hider", "seeker")
    rows = [WorkerRow(kind=f"actor{part}", role="actor", busy=0.4, cpu=0.1, rss=3 * 10**8) for part in ("", *teams)]
    rows += [WorkerRow(kind=f"policy{n}", role="policy", busy=0.3, inside="actor", waits={"questions": 0.7}) for n in range(6)]
    rows += [WorkerRow(kind=f"trainer.{team}", role="trainer", busy=0.9, cpu=0.4, rss=10**9) for team in teams]
    streams = [StreamRow(name=f"ask{n}", kind="infer", items=1e4, bytes=1e9) for n in range(6)]
    streams += [replace(REPORT.streams[0], name=f"samples.{team}") for team in teams]
    values = {"policy_loss": -0.0123, "value_loss": 12.1, "entropy": 2.13, "kl": 0.0081, "clip_fraction": 0.11, "lr": 3e-4}
    game = replace(
        REPORT,
        experiment="hide_and_seek",
        env_steps=14_000_000,
        target=15_000_000,
        returns={"hider": 20.53, "seeker": -20.53},
        agent_rate=30_000.0,
        policy_rates=dict.fromkeys(teams, 15_000.0),
        stats={f"hider_in_room_{n}": 0.26 for n in range(6)},
        training=dict.fromkeys(teams, values),
        evaluation=Evaluation(13_750_000, 2700, {"eval/return/hider": 21.5, "cross/seeker/seen": 0.54}),
        workers=tuple(rows),
        streams=tuple(streams),
        advice=3 * "the trainer is the limit; training is 99 % of trainer time, ",
    )
    lines = screen(game, 80)
    assert len(lines) <= 23 and max(map(len, lines)) <= 80
    assert lines[0].startswith("hide_and_seek  00:00:18  14,000,000 of")
    assert [text[:20] for text in lines].index("the trainer is the l") <= 2
    text = "\n".join(lines)
    for part in ("evaluation at 13,750,000: return/hider 21.5", "hider: policy_loss -0.0123", "entropy 2.13", "kl 0.0081"):
        assert part in text
    assert re.search(r"policy x 6 +30 % +in +actor +questions 70 %", text)
    assert re.search(r"actor x 3 +40 % +0\.30 +900 MB", text)
    assert re.search(r"infer x 6 +60,000\.0 +6\.0 GB", text)
    assert max(len(line(game)), len(line(REPORT))) <= LOG_WIDTH == 120


@pytest.mark.parametrize(("value", "shown"), [(0.51234, "0.5123"), (-1234.5, "-1,234"), (9999.7, "10,000"), (10177.03, "10,177")])
def test_returns_are_never_shown_with_an_exponent(value: float, shown: str) -> None:
    report = replace(REPORT, returns={"": value}, evaluation=Evaluation(3_000, 10, {"eval/return": value}))
    assert f"return {shown}" in line(report) and f"evaluation at 3,000: return {shown}" in "\n".join(screen(report))


def test_returns_are_shown_per_team_and_agents_where_they_differ_from_envs() -> None:
    text = "\n".join(screen(replace(REPORT, returns={"hiders": 1.25, "seekers": -1.25}, agent_rate=40_000.0)))
    both = "\n".join(screen(replace(REPORT, agent_rate=40_000.0, policy_rates={"hider": 30_000.0, "seeker": 10_000.0})))
    assert "agent 40,000/s (hider 30,000, seeker 10,000), train" in both
    assert "return hiders 1.25, seekers -1.25 (512 episodes" in text
    assert "env 10,000/s, agent 40,000/s, train" in text


def test_elsewhere_a_line_comes_every_ten_seconds() -> None:
    clock, out = Clock(), io.StringIO()
    console = Console(out, clock=clock)
    shown = []
    for second in range(36):
        clock.now, before = float(second), out.tell()
        console.report(REPORT)
        shown += [second] if out.tell() > before else []
    assert shown == [10, 20, 30]
    assert out.getvalue() == (line(REPORT) + "\n") * 3
    assert not console.live


def test_quiet_says_nothing_but_the_end() -> None:
    clock, out = Clock(), io.StringIO()
    console = Console(out, quiet=True, clock=clock)
    console.begin(GRAPH, [("batch", "12,288 rows")])
    clock.now = 100.0
    console.report(REPORT)
    console.event("note", text="checkpoint written")
    console.end(DONE)
    assert out.getvalue() == "done  all steps\n"


def test_a_terminal_gets_a_table_at_most_twice_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setenv("LINES", "40")
    terminal, clock = Screen(), Clock()
    console = Console(terminal.out, clock=clock)
    assert console.live
    console.begin(GRAPH, [("batch", "12,288 rows")])
    for tick in range(100):
        clock.now = tick / 20
        console.report(replace(REPORT, env_steps=1000 * tick))
    console.event("note", text="actor/3 restarted [1 of 3]")
    console.report(replace(REPORT, env_steps=123_456))
    console.end(DONE)
    text = terminal.finish()
    assert len(set(re.findall(r"cartpole  00:00:18  (0|\d+,000) of", text))) == 10
    plain = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", text)
    last = plain[plain.rindex("123,456") :]
    assert "batch  12,288 rows" in plain and "actor/3 restarted [1 of 3]" in plain
    assert re.search(r"actor x 2 +62 % +1\.20 +120 MB +credit 30 %, answers 5 %", last)
    assert re.search(r"trainer \(1 restarted\)", last)
    assert re.search(r"sample +12\.5 +3\.1 MB +3/8 +0\.0 / 0\.6 / 1\.0 +stop 2", last)
    assert "the trainer is the limit: busy 81 %; no core is free" in last
    assert last.rstrip().endswith("done  all steps")
    assert text.count("\x1b[?25l") == text.count("\x1b[?25h") == 1  # the cursor is given back


def test_a_dumb_terminal_gets_plain_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    terminal = Screen()
    console = Console(terminal.out)
    assert not console.live
    console.report(REPORT)
    console.end(DONE)
    assert terminal.finish() == f"{line(REPORT)}\r\ndone  all steps\r\n"


def test_rich_is_not_imported_without_a_terminal() -> None:
    program = (
        "import sys; from srl.observe.sinks.console import Console; from srl.observe.report import Report;"
        "from srl.observe.result import RunResult; console = Console();"
        "console.report(Report(experiment='x', elapsed=1.0, env_steps=5)); console.end(RunResult(kind='done', headline='5'));"
        "sys.exit('rich' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], check=False, stdout=subprocess.PIPE, text=True)
    assert done.returncode == 0
    assert done.stdout == "00:00:01 | 5 env steps | env 0/s, train 0/s\ndone  5\n"


def test_progress_and_time_to_go() -> None:
    assert (REPORT.progress, REPORT.eta) == (0.4, 180_000 / 9_900)
    endless = replace(REPORT, target=None)
    assert (endless.progress, endless.eta) == (None, None)
    by_time = replace(endless, fraction=0.25, elapsed=30.0)
    assert (by_time.progress, by_time.eta) == (0.25, 90.0)
    assert replace(REPORT, env_steps=400_000).progress == 1.0


def test_the_plan_is_aligned() -> None:
    text = aligned([("batch", "48 envs x 64 steps\n= 12,288"), ("threads", "2 of 2")])
    assert text == "batch    48 envs x 64 steps\n         = 12,288\nthreads  2 of 2"
    folded = aligned([("why", "asking another process for actions is never faster here")], 40).splitlines()
    assert folded == ["why  asking another process for actions", "     is never faster here"]


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
        console.report(REPORT)
        assert console.live is live
        os.close(master)
        clock.now = 20.0
        console.report(REPORT)
        console.event("note", text="a checkpoint was written")
        console.end(DONE)
        assert os.path.sameopenfile(out.fileno(), nowhere.fileno())


def test_speed_and_lag_of_learning_have_a_place_on_a_narrow_screen() -> None:
    lags = {"updates": 12345.6, "updates_p99": 99999.0, "ms": 1234567.0, "ms_p99": 9876543.0}
    report = replace(REPORT, update_rate=298.4, frame_rate=76_390.0, replay_ratio=256.0, lag=lags)
    lines = screen(report, 80)
    assert "298 updates/s, 76,390 frames/s, replay ratio 256" in lines
    assert "lag 12,346 updates (p99 99,999), 1,234,567 ms (p99 9,876,543)" in lines
    assert max(map(len, lines)) <= 80
    small = replace(report, lag={"updates": 1.0, "updates_p99": 1.0, "ms": 84.0, "ms_p99": 120.0})
    assert "298 updates/s, 76,390 frames/s, replay ratio 256" in screen(small, 80)
    assert any(line.endswith("lag 1 updates (p99 1), 84 ms (p99 120)") for line in screen(small, 120))


def test_the_sides_of_a_split_learner_have_a_line_of_their_own() -> None:
    values = {
        "q": 1.0,
        "critics_version": 2972.0,
        "critics_busy": 0.993,
        "critics_waits": 0.0,
        "actor_version": 2972.0,
        "actor_busy": 0.714,
    }
    found = replace(REPORT, training={"": {**values, "actor_lag": -2.8, "critics_lag": 3.0}, "other": {"q": 2.0}})
    assert sides(found) == "critics 2,972 (busy 99 %), actor 2,972 (busy 71 %), lag 3"
    shown = "\n".join(screen(found))
    assert "sides critics 2,972" in shown and "_version" not in shown and "_lag" not in shown and "q 1" in shown
    assert "_busy" not in shown and "_waits" not in shown
