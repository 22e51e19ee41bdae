"""Run an experiment: `python -m srl.launch experiment=NAME key=value ...`, or `srl.launch("NAME", key=value)` from Python."""

from __future__ import annotations

import argparse
import sys
import types
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from srl.cli.guard import guarded

if TYPE_CHECKING:
    from pathlib import Path

    from srl.cli.runs import Run

RUNS = "runs"


def main(argv: Sequence[str] | None = None) -> int:
    """The command. Returns its exit code."""
    return guarded(_main, sys.argv[1:] if argv is None else argv)


def launch(
    experiment: str | Path | None = None,
    *,
    overrides: Sequence[str] = (),
    resume: str | Path | None = None,
    runs: str | Path = RUNS,
    wait: bool = True,
    quiet: bool = False,
    **settings: Any,
) -> Run:
    """Run an experiment from Python; keywords are settings, as in the file: `algorithm={"lr": 1e-3}`.

    `wait=False` returns at once: `run.wait()`, `run.stop()`, `run.metrics()`. A run that failed raises its error in `wait`.
    """
    from srl.cli.runs import start
    from srl.core.registry import stop_if_imported

    stop_if_imported()
    run = start(experiment, overrides, settings=settings, resume=resume, runs=runs, quiet=quiet)
    if wait:
        run.wait()
    else:
        run.start()
    return run


def _main(argv: list[str]) -> int:
    if not argv or "--help" in argv or "-h" in argv:
        return _help(argv)
    given = _parser().parse_intermixed_args(argv)
    from srl.cli.parsing import words_of

    experiment, overrides = words_of(given.words)
    if given.sweep:
        from srl.cli.sweep import sweep

        return sweep(experiment, overrides, given.sweep, jobs=given.jobs, runs=given.runs)
    from srl.cli.runs import command

    return command(experiment, overrides, given)


def _help(argv: list[str]) -> int:
    from srl.cli.help import launch_help, section_help

    topics = [word.removeprefix("algorithm=").removeprefix("policy=") for word in argv if not word.startswith("-")]
    print("\n\n".join(section_help(topic) for topic in topics) if topics else launch_help())
    return 0


def _parser() -> argparse.ArgumentParser:
    from srl.cli.parsing import Parser

    parser = Parser(prog="python -m srl.launch", add_help=False)
    parser.add_argument("words", nargs="*")
    parser.add_argument("--resume")
    parser.add_argument("--dry-run", action="store_true")
    parser.add_argument("--print-config", action="store_true")
    parser.add_argument("--sweep", action="append", default=[])
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--runs", default=RUNS)
    parser.add_argument("--quiet", action="store_true")
    return parser


class _Callable(types.ModuleType):
    """This module can be called: `srl.launch("cartpole")`."""

    def __call__(self, *args: Any, **settings: Any) -> Run:
        return launch(*args, **settings)


sys.modules[__name__].__class__ = _Callable

if __name__ == "__main__":
    sys.exit(main())
