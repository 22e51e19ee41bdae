"""The page over a real socket: pictures arrive, a wrong token is refused, slow and gone browsers hold nobody up."""

from __future__ import annotations

import contextlib
import io
import json
import socket
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from PIL import Image

from srl.core.errors import UserError
from srl.show import page as module
from srl.show import site
from srl.show.base import Facts, rgb
from srl.show.page import Page
from srl.show.png import png
from tests.waiting import until

FRAME = np.random.default_rng(0).integers(0, 256, (40, 60, 3), np.uint8)


@pytest.fixture
def page() -> Iterator[Page]:
    shown = Page()
    yield shown
    shown.close()
    assert not [thread for thread in threading.enumerate() if thread.name == "srl-page"]


def get(address: str) -> tuple[bytes, Any]:
    with urllib.request.urlopen(address, timeout=10) as answer:
        return answer.read(), answer.headers


def refused(address: str) -> tuple[int, bytes]:
    with pytest.raises(urllib.error.HTTPError) as error:
        get(address)
    with error.value as answer:
        return answer.code, answer.read()


def part(stream: Any) -> np.ndarray[Any, Any]:
    """The next picture of a stream, as a browser reads it."""
    while not (line := stream.readline()).startswith(b"Content-Length"):
        assert line
    size = int(line.split()[1])
    assert stream.readline() == b"\r\n"
    return np.asarray(Image.open(io.BytesIO(stream.read(size))))


@pytest.mark.parametrize("shape", [(1, 1), (7, 3), (400, 600)])
def test_png_is_read_back_equal(shape: tuple[int, int]) -> None:
    frame = np.random.default_rng(1).integers(0, 256, (*shape, 3), np.uint8)
    assert (np.asarray(Image.open(io.BytesIO(png(frame)))) == frame).all()


def test_grey_pictures_become_rgb_and_what_is_no_picture_is_refused() -> None:
    assert (rgb(FRAME[:, :, 0]) == FRAME[:, :, :1]).all()
    assert (rgb(FRAME[:, :, :1]) == FRAME[:, :, :1]).all()
    for wrong in (FRAME / 255.0, FRAME[0, 0], np.zeros((4, 4, 4), np.uint8)):
        with pytest.raises(ValueError, match="a picture must be uint8"):
            rgb(wrong)


def test_a_browser_gets_the_page_the_pictures_and_the_facts(page: Page) -> None:
    facts = Facts(experiment="cartpole", env_steps=1200, update=7, version=7, episode=3, step=71, returned={"": 71.0})
    assert not page.wanted
    page.picture(FRAME, facts)
    body, headers = get(page.address)
    assert b"pictures" in body and "nonce-" in headers["Content-Security-Policy"] and b"http" not in body
    assert b"pictures" in get(page.address.rstrip("/"))[0]
    assert json.loads(get(page.address + "state")[0]) == facts.plain()
    with urllib.request.urlopen(page.address + "pictures", timeout=10) as stream:
        assert (part(stream) == FRAME).all()
        until(lambda: page.wanted, 10)
        page.picture(255 - FRAME, facts)
        for _ in range(5):  # the same picture may have come once more before
            if (part(stream) == 255 - FRAME).all():
                break
        else:
            raise AssertionError("the second picture did not come")
    page.picture(FRAME, facts)
    until(lambda: not page.wanted, 10)


@pytest.mark.parametrize("tail", ["", "pictures", "state", "other"])
def test_a_wrong_token_is_refused(page: Page, tail: str) -> None:
    page.picture(FRAME, Facts(experiment="cartpole"))
    right = page.address.rstrip("/")
    wrong = right[:-1] + ("a" if right[-1] != "a" else "b")
    for address in (f"{wrong}/{tail}", f"{right.rpartition('/')[0]}/{tail}", f"{right}x/{tail}"):
        code, body = refused(address)
        assert code == 403 and b"PNG" not in body
    assert not page.wanted


def test_only_this_host_can_connect(page: Page) -> None:
    assert page._site.server.server_address[0] == "127.0.0.1"


def test_a_browser_that_takes_nothing_is_dropped_and_holds_nobody_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PATIENCE", 1.5)
    page = Page()
    big = np.random.default_rng(0).integers(0, 256, (320, 320, 3), np.uint8)
    facts = Facts(experiment="cartpole")
    page.picture(big, facts)
    host, _, port = page.address.split("/")[2].partition(":")
    with socket.create_connection((host, int(port))) as idle, socket.create_connection((host, int(port))) as slow:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow.sendall(f"GET /{page.address.split('/')[3]}/pictures HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
        until(lambda: page.wanted, 10)
        with urllib.request.urlopen(page.address + "pictures", timeout=10) as stream:
            for number in range(20):  # the other browser sees the newest picture all the time
                page.picture(np.full_like(big, number), facts)
                while part(stream)[0, 0, 0] != number:
                    pass
            until(lambda: (page.picture(big, facts), page._looking == 1)[1])  # type: ignore[func-returns-value]
        idle.settimeout(10)
        assert idle.recv(1) == b""  # one that never asks is dropped too
    page.close()


def test_too_many_browsers_are_sent_away(page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST", 1)
    page.picture(FRAME, Facts(experiment="cartpole"))
    with urllib.request.urlopen(page.address + "pictures", timeout=10) as stream:
        part(stream)
        assert refused(page.address + "pictures")[0] == 503


def test_a_flood_of_connections_is_refused(page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(site, "_THREADS", threading.active_count() + 2)
    page.picture(FRAME, Facts(experiment="cartpole"))
    host, _, port = page.address.split("/")[2].partition(":")
    with contextlib.ExitStack() as held:
        idle = [held.enter_context(socket.create_connection((host, int(port)))) for _ in range(6)]
        idle[-1].settimeout(10)
        assert idle[-1].recv(1) == b""
    until(lambda: len(threading.enumerate()) < site._THREADS, 10)
    assert get(page.address + "state")[0]


def test_a_port_in_use_is_an_error_that_says_so(page: Page) -> None:
    with pytest.raises(UserError, match="cannot use port"):
        Page(port=page._site.server.server_port)
