"""`srl dashboard`: the page about runs in a browser; `srl report`: the same in a file; `srl compare`: runs beside each other."""

from __future__ import annotations

import threading

from srl.cli.parsing import Parser
from srl.core.files import usable_path
from srl.core.progress import Progress
from srl.store.run_folder import RunFolder


def dashboard(argv: list[str]) -> int:
    """Serve the page until Ctrl-C."""
    parser = Parser(
        prog="srl dashboard",
        description="serve a page about one run or all runs in a folder, active or ended."
        " It is served on this host only, and needs the token in the printed address. Ctrl-C ends the page, not the runs.",
    )
    parser.add_argument("folder", nargs="?", default="runs", help="a run folder, or a folder with runs (default: runs)")
    parser.add_argument("--port", type=int, default=0, help="port of the page (default: any free one)")
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


def report(argv: list[str]) -> int:
    """Write the page to a file."""
    parser = Parser(
        prog="srl report",
        description="write the page of srl dashboard, as it is now, to one HTML file that needs no other files."
        " It includes films up to 24 MB in total.",
    )
    parser.add_argument("runs", nargs="+", metavar="RUN", help="run folders, or folders with runs")
    parser.add_argument("--out", metavar="FILE", default="report.html", help="file to write (default: report.html)")
    given = parser.parse_args(argv)
    found = runs_in(given.runs)
    from srl.core.text import count, size
    from srl.dashboard.page import frozen_page
    from srl.dashboard.runs import Runs
    from srl.store.atomic import replace_file

    path = usable_path(given.out)
    with Progress("reading settings") as progress:
        replace_file(path, frozen_page(Runs([run.path for run in found]), progress))
    print(f"{path}: {count(len(found), 'run')}, {size(path.stat().st_size)}")
    return 0


def compare(argv: list[str]) -> int:
    """Print runs beside each other."""
    parser = Parser(
        prog="srl compare",
        description="compare runs: the settings in which they differ, curves, and final figures with 95 % intervals. Runs that"
        " differ in their seed only are one group: its figure is the interquartile mean, its interval a stratified bootstrap.",
    )
    parser.add_argument("runs", nargs="+", metavar="RUN", help="run folders, or folders with runs, such as a sweep")
    parser.add_argument("--png", metavar="FILE", help="also draw the curves with their intervals")
    parser.add_argument("--metric", default="episode/return", help="figure of metrics.jsonl to compare (default: episode/return)")
    given = parser.parse_args(argv)
    found = runs_in(given.runs)
    import shutil

    from srl.dashboard.compare import as_text
    from srl.dashboard.compare import compare as compared
    from srl.dashboard.runs import Runs

    with Progress("reading settings") as progress:
        result = compared(Runs([run.path for run in found]), given.metric, progress)
        progress("comparing")
        text = as_text(result, shutil.get_terminal_size((100, 24)).columns)
        progress.print(text)
        if given.png:
            from srl.dashboard.plot import write_png

            progress("drawing")
            write_png(result, usable_path(given.png))
            progress.print(f"\n{given.png}")
    return 0


def runs_in(folders: list[str]) -> list[RunFolder]:
    """Every run in these folders; UserError if one of them holds none."""
    found: list[RunFolder] = []
    for folder in folders:
        RunFolder.open(folder)
        found += RunFolder.below(usable_path(folder))
    return found
