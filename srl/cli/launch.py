"""`python -m srl.launch experiment=NAME key=value ...`: run an experiment."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from srl.cli.guard import guarded
from srl.cli.parsing import Parser, add_hints, number, words_of
from srl.core.errors import UserError


def main(argv: Sequence[str] | None = None) -> int:
    """The command. Returns its exit code."""
    return guarded(run_command, sys.argv[1:] if argv is None else argv)


def run_command(argv: list[str]) -> int:
    """The same without the handling of errors."""
    try:
        return _run(argv)
    except UserError as error:
        add_hints(error, argv)
        raise


def _run(argv: list[str]) -> int:
    if not argv or "--help" in argv or "-h" in argv:
        return _help(argv)
    given = _parser().parse_intermixed_args(argv)
    experiment, overrides = words_of(given.words)
    if given.sweep:
        from srl.cli.sweep import sweep

        how = {"trials": given.trials, "halving": given.halving, "metric": given.metric}
        return sweep(experiment, overrides, given.sweep, jobs=given.jobs, runs=given.runs, **how)
    if given.halving or given.trials is not None:
        raise UserError("--trials and --halving need --sweep", ("try", "--sweep 'algorithm.lr=log(1e-5,1e-2)'"), code="E12")
    if given.print_config or given.dry_run:
        return _show(experiment, overrides, given)
    from srl.observe.sinks.console import Console
    from srl.run import make_run

    run = make_run(
        experiment,
        overrides,
        resume=given.resume,
        resume_or_start=given.resume_or_start,
        runs=given.runs,
        console=Console(quiet=given.quiet),
    )
    return run.finish().exit_code


def _show(experiment: str | None, overrides: Sequence[str], given: argparse.Namespace) -> int:
    """Print the configuration or the plan, and start nothing."""
    from srl.core.text import aligned
    from srl.observe.sinks.console import Console
    from srl.resume import resumable
    from srl.run import prepare_run

    resumed = resumable(given.resume, read_only=True)
    prepared = prepare_run(experiment, overrides, resumed=resumed, inspect=not given.print_config)
    if given.print_config:
        print(prepared.config_text(provenance=True).rstrip())
        return 0
    print(aligned(prepared.lines(), Console().width))
    if prepared.graph.hosts:
        from srl.launchers.base import Submitter, launcher_of

        launcher = launcher_of(prepared.graph)
        files = launcher.render(prepared.text_for(launcher.there)) if isinstance(launcher, Submitter) else launcher.render()
        for name, text in files.items():
            print(f"\n--- {name}\n{text}")
        try:
            launcher.check()
        except UserError as error:  # the files can be shown on any machine
            print(f"\nit could not be started from here: {error}")
    return 0


def _help(argv: list[str]) -> int:
    from srl.cli.help import launch_help, section_help

    topics = [word.removeprefix("algorithm=").removeprefix("policy=") for word in argv if not word.startswith("-")]
    print("\n\n".join(section_help(topic) for topic in topics) if topics else launch_help())
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = Parser(prog="python -m srl.launch", add_help=False)
    parser.add_argument("words", nargs="*")
    parser.add_argument("--resume")
    parser.add_argument("--resume-or-start", metavar="ID")
    parser.add_argument("--dry-run", action="store_true")
    parser.add_argument("--print-config", action="store_true")
    parser.add_argument("--sweep", action="append", default=[])
    parser.add_argument("--trials", type=number)
    parser.add_argument("--halving", action="store_true")
    parser.add_argument("--metric", default="episode/return")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--runs", default="runs")
    parser.add_argument("--quiet", action="store_true")
    return parser
