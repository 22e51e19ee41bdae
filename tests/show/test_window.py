"""The viewer's window, on a real X server that draws into a file."""

from __future__ import annotations

import shutil
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from srl.show.base import Facts
from srl.show.open import open_show
from srl.show.window import Window
from tests.waiting import until

pytest.importorskip("tkinter", reason="this Python has no Tk")
pytestmark = pytest.mark.skipif(shutil.which("Xvfb") is None, reason="Xvfb is not installed")
COLOUR = (200, 30, 60)


@pytest.fixture
def screen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The file with what the screen shows."""
    words = ["Xvfb", "-displayfd", "1", "-screen", "0", "640x480x24", "-fbdir", str(tmp_path), "-nolisten", "tcp"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
        assert server.stdout is not None
        monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
        monkeypatch.setenv("DISPLAY", f":{server.stdout.readline().strip()}")
        yield tmp_path / "Xvfb_screen0"
        server.terminate()


def coloured(screen: Path) -> int:
    """Pixels of COLOUR; the file is in the format of xwd."""
    data = screen.read_bytes()
    head = struct.unpack(">20I", data[:80])
    start, width, height, line, colours = head[0], head[4], head[5], head[12], head[19]
    rows = np.frombuffer(data, np.uint8, height * line, start + 12 * colours).reshape(height, -1, 4)[:, :width]
    return int((rows[..., 2::-1] == COLOUR).all(-1).sum())


def test_a_window_shows_the_newest_picture_until_it_is_closed(screen: Path) -> None:
    show = open_show("auto", title="x", port=0, films=None, fps=30)
    assert isinstance(show, Window)
    assert show.wanted
    for size in (48, 64):
        frame = np.broadcast_to(np.array(COLOUR, np.uint8), (size, size, 3))
        show.picture(frame, Facts(experiment="x", env_steps=1000))

        def drawn(pixels: int = size * size) -> bool:
            assert show.wanted
            return coloured(screen) == pixels

        until(drawn)
    assert show._root is not None
    show._root.tk.call(*show._root.tk.splitlist(show._root.protocol("WM_DELETE_WINDOW")))  # as its user closes it
    assert show.closed
    assert not show.wanted
    assert coloured(screen) == 0
    show.picture(frame, Facts(experiment="x"))
