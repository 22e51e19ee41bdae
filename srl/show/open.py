"""Which way of showing fits here."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from srl.core.errors import UserError
from srl.envs.drawing import has_display
from srl.show.base import Show
from srl.show.film import Film
from srl.show.page import Page
from srl.show.window import Window

How = Literal["auto", "window", "page", "film"]


def open_show(how: How, *, title: str, port: int, films: Path | None, fps: float) -> Show:
    """`auto`: a window where there is a display, else a page. `films`: the folder that films are written to."""
    if how == "film":
        if films is None:
            raise UserError("a film needs a folder to be written to", ("try", "show: page"))
        return Film(films, fps=fps)
    if how == "window":
        return Window(title)
    if how == "auto" and has_display():
        try:
            return Window(title)
        except UserError:  # a display that cannot be reached
            pass
    return Page(port=port)
