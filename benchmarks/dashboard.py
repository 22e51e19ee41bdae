"""What the dashboard costs a run, how fast its page opens, and the pictures of it in the documentation.

    python benchmarks/dashboard.py cost [--seconds 20] [--rounds 5] [experiment=cartpole] [key=value ...]
    python benchmarks/dashboard.py open [--runs 10] [--lines 100000]
    python benchmarks/dashboard.py pictures [run] [sweep]

`cost` runs the same experiment without the dashboard, with it and no page open, with one and with five pages that take all news,
in turn, in one process and in several. It prints medians of env steps a second, and the processor time of an env step.
The pages are read here, not drawn: what a browser needs to draw is not a cost of the run, unless it is on the same machine.
First comes what serving alone takes, from a process of its own: that figure holds on a machine with other work too.
`open` makes runs with so many lines in metrics.jsonl and opens the page of all in a headless Chromium, until curves are drawn.
`pictures` runs CartPole, and a sweep of it, and replaces docs/pictures/dashboard*.png: on an idle machine, in three minutes.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse
import urllib.request
from collections import Counter
from pathlib import Path
from typing import Any

from srl.dashboard.runs import Runs
from srl.dashboard.server import Dashboard
from srl.store.lines import read_numbers
from srl.store.run_folder import RunFolder

ROOT = Path(__file__).parents[1]
CASES = {"off": None, "no page": 0, "one page": 1, "five pages": 5}
ENDLESS = ["stop.env_steps=1_000_000_000", "stop.return=null"]
news: Counter[str] = Counter()
"""Messages that pages got, by address."""
MODES = {"inline": ["mode=inline"], "processes": ["layout=impala"]}


def measure(words: list[str], pages: int | None, seconds: float) -> tuple[float, float]:
    """Env steps a second, and microseconds of processor time for each env step, without start and end."""
    with tempfile.TemporaryDirectory() as runs:
        own = [
            *words,
            "evaluation=null",
            *ENDLESS,
            f"stop.seconds={seconds}",
            "checkpoint.every=0",
            f"dashboard={pages is not None}".lower(),
        ]
        command = [sys.executable, "-m", "srl.launch", *own, "--quiet", "--runs", runs]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        over = threading.Event()
        readers = [threading.Thread(target=read, args=(Path(runs), over), daemon=True) for _ in range(pages or 0)]
        for reader in readers:
            reader.start()
        _, code, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(code)
        over.set()
        (run,) = RunFolder.below(Path(runs))
        assert run.metrics.is_file(), "the run reported nothing: more --seconds"
        rows = [row for row in read_numbers(run.metrics) if row.get("total/env_steps")]
        first, last = rows[len(rows) // 5], rows[-1]
        steps = float(last["total/env_steps"] or 0)
        rate = (steps - float(first["total/env_steps"] or 0)) / (float(last["wall"] or 0) - float(first["wall"] or 0))
        return rate, 1e6 * (usage.ru_utime + usage.ru_stime) / steps


def serving(words: list[str], seconds: float) -> None:
    """Processor time of serving the pages of a run, in a process of its own: right on a busy machine too."""
    with tempfile.TemporaryDirectory() as runs:
        endless = [*words, "evaluation=null", *ENDLESS, "--quiet", "--runs", runs]
        command = [sys.executable, "-m", "srl.launch", *endless]
        run = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        try:
            while not any(one.metrics.is_file() and one.metrics.stat().st_size for one in RunFolder.below(Path(runs))):
                time.sleep(0.1)
            for pages in (0, 1, 5):
                board = subprocess.Popen([sys.executable, "-m", "srl", "dashboard", runs], stdout=subprocess.PIPE, text=True)
                try:
                    assert board.stdout is not None
                    address = next(word for word in board.stdout.readline().split() if word.startswith("http"))
                    readers = [threading.Thread(target=follow, args=(address, Path(runs)), daemon=True) for _ in range(pages)]
                    for reader in readers:
                        reader.start()
                    time.sleep(5.0)  # the pages are open
                    before, start, told = processor_time(board.pid), time.monotonic(), news[address]
                    time.sleep(seconds)
                    passed = time.monotonic() - start
                    share = (processor_time(board.pid) - before) / passed
                    told = news[address] - told
                    print(f"serving {pages} pages: {100 * share:.2f} % of a core, {told / passed:.1f} messages/s", flush=True)
                finally:
                    board.kill()
                    board.wait()
        finally:
            run.send_signal(signal.SIGINT)
            run.wait()


def processor_time(pid: int) -> float:
    """Seconds, from the clock of that process: the ticks in /proc miss what is short."""
    return time.clock_gettime((~pid << 3) | 2)


def read(runs: Path, over: threading.Event) -> None:
    """A page of the run's own dashboard, once there is one."""
    while not over.wait(0.1):
        for run in RunFolder.below(runs):
            if address := run.read_status().get("dashboard"):
                follow(address, run.path)
                return


def follow(address: str, root: Path) -> None:
    """A page: everything once, then the news."""
    name = urllib.parse.quote(next(iter(Runs([root]).all())))
    try:
        for part in ("", "runs", f"run?id={name}", f"curves?id={name}"):
            with urllib.request.urlopen(address + part, timeout=30) as answer:
                found = answer.read()
        seen = urllib.parse.quote(f"{urllib.parse.unquote(name)}@{json.loads(found)['end']}")
        with urllib.request.urlopen(f"{address}news?id={name}&seen={seen}", timeout=30) as stream:
            while line := stream.readline():
                news.update([address] if line.startswith(b"data") else [])
    except OSError:
        return


def cost(words: list[str], seconds: float, rounds: int) -> None:
    serving([*words, *MODES["processes"]], seconds)
    for mode, layout in MODES.items():
        found: dict[str, list[tuple[float, float]]] = {case: [] for case in CASES}
        for number in range(rounds):
            for case in list(CASES) if number % 2 == 0 else list(reversed(CASES)):
                found[case].append(measure([*words, *layout], CASES[case], seconds))
        base = [statistics.median(column) for column in zip(*found["off"], strict=True)]
        for case, rows in found.items():
            rate, processor = (statistics.median(column) for column in zip(*rows, strict=True))
            print(
                f"{mode:<10} {case:<11} {rate:>9,.0f} env steps/s ({100 * (rate / base[0] - 1):+5.1f} %)"
                f"  {processor:>8.2f} us of processor time a step ({100 * (processor / base[1] - 1):+5.1f} %)",
                flush=True,
            )


def opening(number: int, lines: int) -> None:
    sys.path.insert(0, str(ROOT))
    from tests.dashboard.browser import Browser

    with tempfile.TemporaryDirectory() as made:
        root = Path(made) / "runs" / "game_sweep" / "20260101-120000"
        file = Path(made) / "metrics.jsonl"
        names = [f"train/{name}" for name in "abcdefghijklmnop"] + [f"busy/{name}" for name in "abcdefgh"] + ["episode/return"]
        with file.open("w") as out:
            for at in range(lines):
                row = {"time": 1e9 + at, "wall": float(at), "env_steps": 1000 * at, "update": at, "rate/env": 1e4}
                out.write(json.dumps(row | dict.fromkeys(names, at * 7919 % 1000 / 1000 + at / lines)) + "\n")
        for seed in range(number):
            run = RunFolder.create(root, "game", seed, run_id=f"s{seed}")
            os.link(file, run.metrics)
            run.write_text("settings.json", json.dumps({"seed": [seed, "command line"]}))
        print(f"{number} runs with {lines:,} lines, {file.stat().st_size / 1e6:,.0f} MB each")
        board = Dashboard([root])
        try:
            with Browser(Path(made) / "browser", high=1400) as browser:
                for _ in range(3):
                    start = time.perf_counter()
                    browser.open(board.address)
                    browser.until("document.body.dataset.ready")
                    browser.press("4")  # to the curves
                    browser.until("document.querySelectorAll('.chart canvas').length > 2")
                    print(f"open after {time.perf_counter() - start:.2f} s")
        finally:
            board.close()


def pictures(which: list[str]) -> None:
    """Pages are opened when the runs are over, so that the browser takes no time from them."""
    sys.path.insert(0, str(ROOT))
    from tests.dashboard.browser import Browser

    run = ["experiment=cartpole", "stop={env_steps: 3_000_000, return: null}", "evaluation.every=300_000", "layout=impala"]
    sweep = ["experiment=cartpole", "stop={env_steps: 60_000, return: null}"]
    for axis in ("algorithm.lr=3e-4,1e-3,3e-3", "sampling.envs=16,32", "seed=1,2,3"):
        sweep += ["--sweep", axis]
    wide, tall = {"wide": 1200, "high": 1130}, {"wide": 390, "high": 1280, "phone": True}
    shots: dict[str, tuple[list[str], dict[str, Any]]] = {
        "run": (run, {"dashboard": wide, "dashboard_phone": tall}),
        "sweep": (sweep, {"dashboard_sweep": {"wide": 1200, "high": 680}}),
    }
    for name in which or shots:
        words, sizes = shots[name]
        with tempfile.TemporaryDirectory() as made:
            subprocess.run([sys.executable, "-m", "srl.launch", *words, "--quiet", "--runs", f"{made}/runs"], check=True)
            board = Dashboard([Path(made) / "runs"])
            try:
                with Browser(Path(made) / "browser") as browser:
                    for file, size in sizes.items():
                        browser.size(**size)
                        browser.open(board.address)
                        browser.until("document.body.dataset.ready")
                        if not size.get("phone"):  # there curves are drawn when they come into view
                            browser.until("document.querySelectorAll('.chart canvas').length > 2")
                        browser.picture(ROOT / "docs" / "pictures" / f"{file}.png")
            finally:
                board.close()


def main() -> None:
    parser = argparse.ArgumentParser(description="what the dashboard costs, how fast its page opens, and pictures of it")
    parser.add_argument("what", choices=("cost", "open", "pictures"))
    parser.add_argument("words", nargs="*")
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--lines", type=int, default=100_000)
    given = parser.parse_args()
    if given.what == "cost":
        cost(given.words or ["experiment=cartpole"], given.seconds, given.rounds)
    elif given.what == "pictures":
        pictures(given.words)
    else:
        opening(given.runs, given.lines)


if __name__ == "__main__":
    main()
