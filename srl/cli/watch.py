"""`srl watch RUN`: the newest policy of a run at play, from another terminal. The run takes no notice."""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Collection
from typing import TYPE_CHECKING

from srl.cli.parsing import Parser

if TYPE_CHECKING:
    from srl.store.run_folder import RunFolder
    from srl.workers.newest import Newest

MOST, LEAST = 0.5, 0.03
"""Part of one core that it may use: half of what is idle, within these bounds. The scheduler weighs terminals against each other,
so priorities alone would let it take as much as the run."""


def watch(argv: list[str]) -> int:
    """Show a run that is under way, or one that has ended, until Ctrl-C.

    Another process plays. It runs on idle cores only, so on a busy machine it would take minutes to notice Ctrl-C and to end.
    """
    _parsed(argv)
    player = subprocess.Popen([sys.executable, "-m", "srl.cli.watch", str(os.getpid()), *argv])
    try:
        return player.wait()
    except KeyboardInterrupt:
        return 0
    finally:
        player.kill()


def _parsed(argv: list[str]) -> argparse.Namespace:
    parser = Parser(
        prog="srl watch",
        description="watch the newest policy of a run play, in a window or on a page of this host. Ctrl-C ends it,"
        " and the run continues. If the run has ended, or keeps its parameters to itself (mode=inline),"
        " the newest checkpoint is shown.",
    )
    parser.add_argument("run", help="a run folder, or a folder of runs for its newest run")
    parser.add_argument("--show", choices=("auto", "window", "page"), default="auto", help="auto: a window if there is a display")
    parser.add_argument("--port", type=int, default=0, help="port of the page (default: any free one)")
    parser.add_argument("--fps", type=_positive, help="steps a second (default: real time)")
    sampled = "sample actions, as in training (default: as the run is evaluated)"
    parser.add_argument("--sampled", dest="greedy", action="store_const", const=False, help=sampled)
    return parser.parse_args(argv)


def _play(argv: list[str]) -> int:
    """Play until the window is closed."""
    given = _parsed(argv)
    from srl.core.machine import leave_cores
    from srl.loaded import load_run
    from srl.observe.metrics import Processors
    from srl.show.open import open_show
    from srl.store.run_folder import RunFolder
    from srl.workers.newest import Newest, trained_streams
    from srl.workers.viewing import Viewing

    run = load_run(given.run)
    folder, graph, derived = RunFolder(run.folder), run.graph, run.derived
    newest = {name: Newest(folder, graph, derived, name, stream) for name, stream in trained_streams(graph).items()}
    if not folder.is_live:
        run.sources("latest")  # without a checkpoint there is nothing to show
    os.nice(19)
    show = open_show(given.show, title=f"{graph.name} - srl watch", port=given.port, films=None, fps=derived.env.fps)
    greedy = run.greedy if given.greedy is None else given.greedy
    viewing = Viewing(graph, derived, newest, show, fps=given.fps, share=LEAST, greedy=greedy)
    leave_cores()
    print(f"{run.folder}: {show.address}   Ctrl-C ends this, not the run", flush=True)
    said, rest, processors, due = "", threading.Event(), Processors(), 0.0
    try:
        while not show.closed:
            now = time.monotonic()
            if now >= due:
                due = now + 1.0
                viewing.share = min(MOST, max(LEAST, (processors.idle(now) or 0.0) / 2))
                for one in newest.values():
                    one.look()
            viewing.poll()
            viewing.facts.source = ", ".join(dict.fromkeys(one.source for one in newest.values() if one.source))
            if (text := _state(folder, newest.values())) != said:
                print(text, flush=True)
                said = text
            rest.wait(max(0.0, viewing.wake_at - time.monotonic()))
    finally:
        viewing.close()
    return 0


def _state(folder: RunFolder, newest: Collection[Newest]) -> str:
    """Whose policy plays."""
    if all(one.live for one in newest):
        return "the run is active: this is its newest policy"
    saved = ", ".join(dict.fromkeys(one.source for one in newest if one.source))
    if any(one.running for one in newest):
        return f"the run keeps its parameters to itself: its newest checkpoint plays{saved and f' ({saved})'}"
    return f"the run has ended ({folder.state}): its last policy plays{saved and f' ({saved})'}"


def _positive(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < 1e4:
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive number")
    return number


def _main() -> int:
    """The process that plays, with the pid of the command. It is killed when the command ends."""
    from srl.cli.guard import guarded
    from srl.core.machine import die_with

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the command
    die_with(int(sys.argv[1]))
    return guarded(_play, sys.argv[2:])


if __name__ == "__main__":
    sys.exit(_main())
