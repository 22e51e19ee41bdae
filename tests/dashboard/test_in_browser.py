"""The page in a headless Chromium: a run starts, numbers move, a killed worker turns red, a film plays, a stranger is refused."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from srl.dashboard.page import frozen_page
from srl.dashboard.runs import Runs
from srl.dashboard.server import Dashboard
from srl.envs.video import write_video
from srl.store.lines import read_lines
from srl.store.run_folder import RunFolder
from tests.dashboard.browser import Browser
from tests.dashboard.test_compare import learned
from tests.dashboard.test_told import made, swept
from tests.waiting import until


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with Browser(tmp_path_factory.mktemp("browser")) as opened:
        yield opened


@pytest.fixture
def run(tmp_path: Path) -> Iterator[tuple[Any, RunFolder]]:
    """A run of its own, with its dashboard, that goes on until it is stopped."""
    words = ["experiment=cartpole", "layout=impala", "dashboard=true", "sampling.workers=1"]
    words += ["stop={env_steps: 100_000_000, return: null}", "evaluation={every: 10_000_000, episodes: 1}"]
    words += ["--runs", str(tmp_path), "--quiet"]
    process = subprocess.Popen([sys.executable, "-m", "srl.launch", *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        until(lambda: any(one.read_status().get("dashboard") for one in RunFolder.below(tmp_path)))
        yield process, RunFolder.below(tmp_path)[0]
    finally:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def test_a_run_starts_numbers_move_and_a_killed_worker_turns_red(browser: Browser, run: tuple[Any, RunFolder]) -> None:
    process, folder = run
    browser.open(folder.read_status()["dashboard"])
    browser.until("document.querySelector('#state').textContent === 'running'")
    browser.until("document.querySelectorAll('#graph .node').length === 4")
    browser.there('.chart[data-figure="rate/env"]')
    steps = "parseInt(document.querySelector('#clock').textContent.replaceAll(',', ''))"
    first = browser.until(f"{steps} > 0 && {steps}")
    browser.until(f"{steps} > {first}")
    assert browser.run("document.querySelectorAll('.box.bad').length") == 0
    assert "Does it learn?" in browser.text("#brief")
    pids = {one["process"]: one["pid"] for one in read_lines(folder.events) if one["event"] == "bound"}
    os.kill(pids["trainer/0"], signal.SIGKILL)
    browser.there("#graph [data-node=trainer] .box.bad")
    browser.there('tr.bad[data-worker="trainer/0"]')
    assert "died (signal 9)" in browser.text('tr[data-worker="trainer/0"] .state')
    until(lambda: process.poll() == 3)
    browser.until("document.querySelector('#link').textContent.includes('has ended')")
    assert browser.text("#state") == "failed"
    assert browser.run("document.querySelectorAll('tr.bad[data-worker]').length") == 1, "the others ended, they did not die"
    assert not browser.said


def test_a_film_plays_and_a_stranger_is_refused(browser: Browser, tmp_path: Path) -> None:
    folder = made(tmp_path)
    frames = [np.full((48, 64, 3), 5 * number, np.uint8) for number in range(40)]
    write_video(folder.videos / "step_000000020.mp4", frames, fps=20)
    board = Dashboard([tmp_path])
    try:
        browser.open(board.address)
        browser.until("document.body.dataset.ready")
        browser.run("(v => { v.scrollIntoView(); return v.play(); })(document.querySelector('video'))")
        browser.until("document.querySelector('video').currentTime > 0.3")
        browser.open(board.address[:-3])
        assert "token" in browser.text("body") and "game" not in browser.text("body")
    finally:
        board.close()


def test_a_frozen_page_shows_the_same_from_a_file_in_the_dark_and_on_a_phone(browser: Browser, tmp_path: Path) -> None:
    folder = made(tmp_path)
    folder.write_text("live.json", json.dumps(LIVE))
    page = tmp_path / "page.html"
    page.write_text(frozen_page(Runs([folder.path])))
    browser.media(prefers_color_scheme="dark")
    browser.size(390, 800, phone=True)
    try:
        browser.open(page.as_uri())
        browser.until("document.body.dataset.ready")
        assert browser.run("document.documentElement.dataset.theme") == "dark"
        assert browser.run("document.documentElement.scrollWidth") <= 390
        assert browser.run("document.querySelectorAll('#graph .node').length") == 3
    finally:
        browser.size(1360, 900)
        browser.media(prefers_color_scheme="light")


def test_runs_lie_over_one_another_and_keys_change_what_is_seen(browser: Browser, tmp_path: Path) -> None:
    for lr, seed, top in [(0.1, 1, 90.0), (0.1, 2, 110.0), (0.2, 1, 50.0), (0.2, 2, 70.0)]:
        learned(tmp_path / "runs", lr, seed, top)
    page = tmp_path / "page.html"
    page.write_text(frozen_page(Runs([tmp_path / "runs"])))
    browser.open(page.as_uri())
    browser.until("document.body.dataset.ready")
    assert browser.run("document.querySelectorAll('.parallel path').length") == 4, "settings against return"
    browser.press("4")
    browser.there('.chart[data-figure="episode/return"] canvas')
    assert browser.run("document.querySelectorAll('.chips button').length") == 4
    browser.press("b")
    browser.until("document.querySelectorAll('.chips button').length === 2")
    assert "lr 0.1 (2 runs)" in browser.text(".chips")
    browser.press("x")
    browser.until("document.querySelector('[data-axis=wall]').classList.contains('on')")
    before = browser.run("document.documentElement.dataset.theme")
    browser.press("t")
    browser.until(f"document.documentElement.dataset.theme !== '{before}'")
    browser.press("/")
    browser.until("document.activeElement.id === 'filter'")
    assert not browser.said


def test_the_page_of_a_sweep_shows_its_table_and_each_line_leads_to_its_run(browser: Browser, tmp_path: Path) -> None:
    swept(tmp_path, a=3.0, bbb=7.0, cc=5.0)
    page = tmp_path / "page.html"
    page.write_text(frozen_page(Runs([tmp_path])))
    browser.open(page.as_uri())
    browser.until("document.body.dataset.ready")
    assert browser.text(".parallel text") == "algorithm.lr" and "eval/return" in browser.text(".parallel")
    rows = browser.run("[...document.querySelectorAll('#runs tbody tr')].map(row => row.textContent)")
    assert ["bbb" in rows[0], "cc" in rows[1], "stopped early" in rows[2]] == [True] * 3, rows
    assert browser.run("document.querySelector('tr.here').dataset.run").endswith("bbb")
    assert "1 run of the sweep did not start" in browser.text("#runs")
    browser.run("document.querySelector('.parallel path').dispatchEvent(new MouseEvent('click'))")  # the worst is drawn first
    browser.until("document.querySelector('tr.here').dataset.run.endsWith('/a')")
    assert not browser.said


LIVE: dict[str, Any] = {
    "env_steps": 90, "elapsed": 9.0, "progress": 0.5, "advice": "the trainer is the limit: busy 91 %; no core is free",
    "graph": {
        "mode": "local",
        "nodes": [{"name": name, "worker": name, "count": 1, "inside": None} for name in ("actor", "trainer", "evaluator")],
        "streams": [
            {"name": "samples", "kind": "sample", "gives": ["actor"], "takes": ["trainer"]},
            {"name": "params", "kind": "param", "gives": ["trainer"], "takes": ["actor", "evaluator"]},
        ],
    },
}  # fmt: skip
"""A report without workers: what a run that has just begun says."""


@pytest.mark.parametrize(("goal", "says"), [(90.0, "Yes, it reached its goal"), (None, "Not yet"), (150.0, "Not yet")])
def test_a_run_that_is_soon_at_its_goal_has_learned(browser: Browser, tmp_path: Path, goal: float | None, says: str) -> None:
    run = learned(tmp_path, 0.1, 1, 100.0)
    figures = [{"rate/env": 1.0, "episode/return": 95.0 + 5.0 * (n % 2)} for n in range(50)]
    rows = [{"wall": n, "env_steps": 100 * n, "update": n, **one} for n, one in enumerate(figures)]
    run.metrics.write_text("".join(json.dumps(row) + "\n" for row in rows))
    run.write_text("settings.json", json.dumps({"expect.return": [goal, "cartpole.yaml:9"]}))
    page = tmp_path / "page.html"
    page.write_text(frozen_page(Runs([tmp_path])))
    browser.open(page.as_uri())
    browser.until("document.body.dataset.ready")
    assert says in browser.text("#brief")
    assert "Did it learn?" in browser.text("#brief"), "the run is over"
