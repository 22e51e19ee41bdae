"""Films of whole episodes, and which way of showing is taken."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from srl.core.errors import UserError
from srl.show.base import Facts
from srl.show.film import Film
from srl.show.open import open_show
from srl.show.page import Page


def test_each_episode_is_a_film_named_by_its_env_steps(tmp_path: Path) -> None:
    film = Film(tmp_path, fps=10)
    for steps in (1000, 2000):
        for number in range(4):
            film.picture(np.full((32, 32, 3), 40 * number, np.uint8), Facts(experiment="x", env_steps=steps))
        film.ended(Facts(experiment="x", env_steps=steps))
    film.ended(Facts(experiment="x", env_steps=3000))
    assert sorted(path.stem for path in tmp_path.iterdir()) == ["view_000001000", "view_000002000"]


def test_without_a_display_a_page_is_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    for display in (None, ":987"):  # none, and one that does not answer
        monkeypatch.delenv("DISPLAY", raising=False) if display is None else monkeypatch.setenv("DISPLAY", display)
        show = open_show("auto", title="x", port=0, films=None, fps=30)
        assert isinstance(show, Page)
        show.close()
    with pytest.raises(UserError, match="no window can be opened here"):
        open_show("window", title="x", port=0, films=None, fps=30)
