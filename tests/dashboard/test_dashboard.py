"""The dashboard over a real socket: the token is needed, news come as they happen, films come in parts."""

from __future__ import annotations

import json
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from srl.core.errors import UserError
from srl.dashboard import server as module
from srl.dashboard.server import Dashboard
from tests.dashboard.test_told import made


@pytest.fixture
def board(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Dashboard]:
    monkeypatch.setattr(module, "EVERY", 0.02)
    run = made(tmp_path)
    (run.videos / "step_000000020.mp4").write_bytes(bytes(range(200)))
    (run.path / "secret.txt").write_text("secret")
    shown = Dashboard([tmp_path])
    yield shown
    shown.close()
    assert not [thread for thread in threading.enumerate() if thread.name == "srl-page"]


def get(address: str, **headers: str) -> tuple[int, bytes, Any]:
    try:
        with urllib.request.urlopen(urllib.request.Request(address, headers=headers), timeout=10) as answer:
            return answer.status, answer.read(), answer.headers
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read(), error.headers


@pytest.mark.parametrize(
    "path", ["", "runs", "run?id=game/a", "curves?id=game/a", "news?id=game/a", "film/step_000000020.mp4?id=game/a"]
)
def test_a_stranger_without_the_token_is_refused(board: Dashboard, path: str) -> None:
    host, token = board.address.rsplit("/", 2)[:2]
    for wrong in ("", f"{token[:-1]}{'a' if token[-1] != 'a' else 'b'}/", f"{token}x/"):
        code, body, _ = get(f"{host}/{wrong}{path}")
        assert code == 403 and b"game" not in body and b"script" not in body


def test_the_page_is_whole_and_asks_nobody_else(board: Dashboard) -> None:
    code, body, headers = get(board.address)
    assert code == 200 and b"uPlot" in body and b"Permission is hereby granted" in body
    assert "default-src 'self'" in headers["Content-Security-Policy"] and headers["Referrer-Policy"] == "no-referrer"
    assert b"/*" + b"DATA" not in body and b"<script src" not in body and b'<link rel="stylesheet' not in body


def test_runs_curves_and_details_are_json(board: Dashboard) -> None:
    assert [one["id"] for one in json.loads(get(board.address + "runs")[1])["runs"]] == ["game/a"]
    assert json.loads(get(board.address + "run?id=game/a")[1])["settings"][0][0] == "algorithm.lr"
    assert json.loads(get(board.address + "curves?id=game/a")[1])["columns"]["wall"] == list(range(10))


@pytest.mark.parametrize(
    "path", ["run?id=nobody", "run", "curves?id=../game/a", "film/secret.txt?id=game/a", "film/..%2Fsecret.txt?id=game/a", "x"]
)
def test_what_is_no_run_and_no_film_is_not_there(board: Dashboard, path: str) -> None:
    code, body, _ = get(board.address + path)
    assert code == 404 and b"secret" not in body


def test_films_come_whole_or_in_the_part_that_is_asked_for(board: Dashboard) -> None:
    address = board.address + "film/step_000000020.mp4?id=game/a"
    assert get(address)[1] == bytes(range(200))
    code, body, headers = get(address, Range="bytes=10-19")
    assert (code, body, headers["Content-Range"]) == (206, bytes(range(10, 20)), "bytes 10-19/200")
    assert get(address, Range="bytes=190-")[1] == bytes(range(190, 200))


def test_news_come_as_they_happen_and_the_last_ones_before_it_closes(board: Dashboard, tmp_path: Path) -> None:
    metrics = tmp_path / "game" / "a" / "metrics.jsonl"
    with urllib.request.urlopen(f"{board.address}news?id=game/a&seen=game/a@{metrics.stat().st_size}", timeout=10) as stream:

        def message() -> tuple[bytes, Any]:
            kind = b"message"
            while not (line := stream.readline()).startswith(b"data: "):
                assert line
                kind = line[7:].strip() if line.startswith(b"event: ") else kind
            return kind, json.loads(line[6:])

        assert "live" in message()[1]
        with metrics.open("a") as file:
            file.write('{"wall":99,"env_steps":990,"update":99,"rate/env":1.0}\n')
        assert message()[1]["rows"][0]["wall"] == 99
        with metrics.open("a") as file:
            file.write('{"wall":100,"env_steps":1000,"update":100,"rate/env":1.0}\n')
        board.close()
        assert message()[1]["rows"][0]["wall"] == 100
        assert message()[0] == b"closed"
        assert not stream.read().strip()


def test_too_many_pages_are_sent_away(board: Dashboard) -> None:
    for _ in range(module.MOST):
        board.room.acquire()
    assert get(board.address + "news?id=game/a")[0] == 503
    for _ in range(module.MOST):
        board.room.release()


def test_a_port_that_is_taken_is_an_error(board: Dashboard, tmp_path: Path) -> None:
    port = int(board.address.split(":")[2].partition("/")[0])
    with pytest.raises(UserError, match=f"the dashboard cannot use port {port}"):
        Dashboard([tmp_path], port=port)
