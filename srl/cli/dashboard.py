"""`srl dashboard [RUN | FOLDER]`: the page about runs in a browser, and `srl report`: the same page in a file."""

from __future__ import annotations

import threading

from srl.cli.parsing import Parser
from srl.core.files import usable_path
from srl.store.run_folder import RunFolder


def dashboard(argv: list[str]) -> int:
    """Serve the page until Ctrl-C."""
    parser = Parser(
        prog="srl dashboard",
        description="serve a page about one run, or about all runs in a folder, whether they are under way or have ended."
        " It is served on this host only, and needs the token in the address that is printed. Ctrl-C ends it, not the runs.",
    )
    parser.add_argument("folder", nargs="?", default="runs", help="a run folder, or a folder with runs (default: runs)")
    parser.add_argument("--port", type=int, default=0, help="port of the page (default: any that is free)")
    given = parser.parse_args(argv)
    found = runs_in([given.folder])
    from srl.dashboard.server import Dashboard

    board = Dashboard([usable_path(given.folder)], port=given.port)
    print(f"{given.folder} ({len(found)} {'run' if len(found) == 1 else 'runs'}): {board.address}   Ctrl-C ends this", flush=True)
    try:
        threading.Event().wait()
    except KeyboardInterrupt:
        pass
    finally:
        board.close()
    return 0


def runs_in(folders: list[str]) -> list[RunFolder]:
    """Every run in these folders; UserError if one of them holds none."""
    found: list[RunFolder] = []
    for folder in folders:
        RunFolder.open(folder)
        found += RunFolder.below(usable_path(folder))
    return found
