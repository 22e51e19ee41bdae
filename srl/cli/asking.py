"""`srl stop`, `srl logs` and `srl top`: a run that is under way, by its folder, or from another machine by its `control.json`."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

from srl.cli.parsing import Parser, number
from srl.core.errors import UserError
from srl.core.files import read_json
from srl.core.text import columns, count, size

_EVERY = 1.0
"""Seconds between two questions."""

ADDRESS = "where the controller is reached, if not at the address in control.json"

Ask: TypeAlias = Callable[..., dict[str, Any]]
"""Called with the fields of a `Request`."""


def stop(argv: list[str]) -> int:
    """End a run as Ctrl-C in its terminal would."""
    parser = _parser(
        "srl stop", "end a run: finish complete batches, save, print the command that resumes; as Ctrl-C in its terminal does"
    )
    parser.add_argument("--now", action="store_true", help="end at once, without a new checkpoint")
    parser.add_argument("--no-wait", action="store_true", help="return at once instead of waiting until the run has ended")
    given = parser.parse_args(argv)
    ask = asking(given.run, given.address)
    facts = ask(what="status")
    ask(what="stop", now=given.now)
    print(f"{facts['folder']}: told to {'end at once' if given.now else 'save and end'}", flush=True)
    if given.no_wait:
        return 0
    while facts["state"] == "running":
        threading.Event().wait(_EVERY / 2)
        try:
            facts = ask(what="status")
        except UserError:  # another machine: a run that has ended does not answer
            print("it has ended")
            return 0
    saved = f", saved as {facts['checkpoint']}" if facts.get("checkpoint") else ""
    print(f"it has ended: {facts['state']}{saved}")
    if saved:
        print(f"resume: python -m srl.launch --resume {facts['folder']}")
    return 0


def logs(argv: list[str]) -> int:
    """The last lines of one log, or the last line of each."""
    parser = _parser("srl logs", "show the last line of every log of a run, or the last lines of one worker's")
    parser.add_argument("worker", nargs="?", help="actor/3")
    parser.add_argument("-n", "--lines", type=number, default=20, help="how many lines (default: 20)")
    parser.add_argument(
        "-f", "--follow", action="store_true", help="show new lines as they arrive, until Ctrl-C or the end of the run"
    )
    given = parser.parse_args(argv)
    ask = asking(given.run, given.address)
    if given.worker is None:
        found = ask(what="logs")
        rows = [(name, size(facts["size"]), facts["last"][:100]) for name, facts in found.items()]
        print(columns([("log of", "size", "last line"), *rows], right=(1,)) if rows else "no worker has written anything")
        return 0
    part = ask(what="log", log=given.worker, begin=-(200 * given.lines))
    lines = part["text"].splitlines()[-given.lines :]
    print("\n".join(lines) if lines else f"{given.worker} has written nothing")
    while given.follow and ask(what="status")["state"] == "running":
        threading.Event().wait(_EVERY)
        part = ask(what="log", log=given.worker, begin=part["end"])
        print(part["text"], end="", flush=True)
    return 0


def top(argv: list[str]) -> int:
    """Rates, hosts and processes of a run, renewed every second."""
    parser = _parser("srl top", "show rates, hosts and the busiest processes of a run, every second until Ctrl-C")
    parser.add_argument("--once", action="store_true", help="print once (the default if the output is not a terminal)")
    parser.add_argument("-n", "--processes", type=number, default=20, help="how many processes (default: 20)")
    given = parser.parse_args(argv)
    ask = asking(given.run, given.address)
    live = sys.stdout.isatty() and not given.once
    while True:
        facts = ask(what="status")
        if facts["state"] != "running":
            print(f"{facts['folder']} is not active: {facts['state']}")
            return 0
        text = f"{facts['folder']}\n{_table(ask(what='top'), given.processes)}"
        print(f"\x1b[2J\x1b[H{text}" if live else text, flush=True)
        if not live:
            return 0
        time.sleep(_EVERY)


def asking(run: str, address: str | None) -> Ask:
    """How to ask this run: by its folder, else by the file that has address and token."""
    from srl.control.desk import CONTROL, Request, answer
    from srl.store.run_folder import RunFolder

    path = Path(run)
    if path.is_dir() and address is None:
        folder = RunFolder.open(path)
        return lambda **fields: answer(folder, Request(**fields))
    if path.is_dir():
        path = RunFolder.open(path).path / CONTROL
    if not path.is_file():
        raise UserError(
            f"there is no {path}",
            ("expected", f"a run folder, or {CONTROL} from the folder of a run over several hosts"),
        )
    from srl.cluster.asking import Access, ask

    access, _ = read_json(path, Access)
    return lambda **fields: ask(access, Request(**fields), address)


def _parser(name: str, about: str) -> Parser:
    parser = Parser(prog=name, description=about)
    parser.add_argument(
        "run", help="a run folder, a folder of runs (its newest run), or control.json of a run on another machine"
    )
    parser.add_argument("--address", metavar="HOST:PORT", help=ADDRESS)
    return parser


def _table(found: Mapping[str, Any], most: int) -> str:
    if not found:
        return "it has just begun"
    text = "\n".join(found["screen"])
    if len(found["hosts"]) > 1:
        head = ("host", "processes", "cores", "memory")
        rows = [_host(row) for row in found["hosts"]]
        text += "\n\n" + columns([head, *rows], right=(2, 3))
    rows = [_process(row) for row in found["processes"][:most]]
    text += "\n\n" + columns([("process", "host", "state", "busy", "cores", "memory", "waits for"), *rows], right=(3, 4, 5))
    left = sum(row["processes"] for row in found["hosts"]) - len(rows)
    return text + (f"\n{count(left, 'process')} more" if left > 0 else "")


def _host(row: Mapping[str, Any]) -> tuple[str, ...]:
    running = "" if row["running"] == row["processes"] else f" ({row['running']} running)"
    return (row["host"], f"{row['processes']}{running}", f"{row['cores']:.2f}", size(row["rss"]))


def _process(row: Mapping[str, Any]) -> tuple[str, ...]:
    shown = (f"{100 * row['busy']:.0f} %", f"{row['cores']:.2f}", size(row["rss"]))
    return (row["process"], row["host"], row["phase"], *shown, ", ".join(row["waits"]))
