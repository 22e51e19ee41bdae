"""One self-contained page: its styles and scripts are in it, and in a frozen one the data too."""

from __future__ import annotations

import base64
import functools
import json
from importlib.resources import files
from typing import Any

from srl.core.progress import Tell, silent
from srl.dashboard.curves import read_curves
from srl.dashboard.runs import FILMS, Runs

STYLES = ("uPlot.min.css", "style.css")
SCRIPTS = ("uPlot.iife.min.js", "words.js", "draw.js", "graph.js", "curves.js", "tables.js", "runs.js", "main.js")
FILM_BYTES = 24 << 20
"""Films of a frozen page together, at most; the newest of each run come first."""


@functools.cache
def part(name: str) -> str:
    """One of the files that the page is made of."""
    return (files("srl.dashboard") / "page" / name).read_text(encoding="utf-8")


@functools.cache
def template() -> str:
    """The page without data; the word NONCE stands in the tags of its styles and scripts."""
    html = part("index.html")
    html = html.replace("/*STYLES*/", "\n".join(map(part, STYLES)))
    library, *own = (part(name) for name in SCRIPTS)
    licence = f"/* uPlot, MIT licence\n{part('uPlot.LICENSE')}*/\n"
    return html.replace("/*SCRIPTS*/", licence + library + '\n(() => {\n"use strict";\n' + "\n".join(own) + "\n})();\n")


def live_page() -> str:
    """The page that asks the server for everything."""
    return template().replace("/*DATA*/", "null")


def frozen_page(runs: Runs, tell: Tell = silent) -> str:
    """The page with everything in it, as it is now."""
    found, room = runs.summaries(), FILM_BYTES
    details: dict[str, Any] = {}
    curves: dict[str, Any] = {}
    films: dict[str, str] = {}
    for number, (name, run) in enumerate(runs.all().items()):
        tell("runs", number, len(runs.all()))
        details[name], curves[name] = runs.detail(name, run), read_curves(run)
        for film in details[name]["films"]:
            if film["bytes"] <= room:
                room -= film["bytes"]
                path = run.videos / film["name"]
                kind, data = FILMS[path.suffix], base64.b64encode(path.read_bytes()).decode()
                films[f"{name}/{film['name']}"] = f"data:{kind};base64,{data}"
    found["shown"] = list(dict.fromkeys([*found["shown"], *details]))
    everything = {**found, "details": details, "curves": curves, "films": films}
    return template().replace("/*DATA*/", in_script(everything)).replace(' nonce="NONCE"', "")


def in_script(data: Any) -> str:
    """JSON that may stand inside a script: no text in it can end the script."""
    return (
        json.dumps(data, separators=(",", ":")).replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
    )
