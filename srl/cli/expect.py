"""`srl expect`: run an experiment with several seeds and check that it reaches the return stated in its file."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from srl.cli.parsing import Parser, words_of
from srl.cli.sweep import Outcome, last_row, print_failures, run_each, values
from srl.core.errors import UserError
from srl.core.text import columns
from srl.core.text import figure as rounded
from srl.observe.expectation import RETURN, expected, figure, wanted_returns
from srl.plan.prepare import Prepared, prepare

ABOUT = """\
Run an experiment once per seed and check that it reaches the result in its file:

  expect: {return: 475, env_steps: 300_000}

return is the mean return of the last 100 training episodes when the run ends, the number that the table shows and that
stop.return is compared with. With several teams it is return/TEAM. Evaluations do not count. The expectation holds if
the mean is at least this high. With env_steps, the last mean within this many env steps counts, including the batch that
reaches stop.env_steps. It does not hold for a run that failed.

The table shows the env steps at which the mean was measured, and the duration of the whole run.

exit code: 0 if it holds for every seed, 1 if not, 2 for an error in the file or on the command line"""

DOES_NOT_HOLD = 1


def expect(argv: list[str]) -> int:
    """The command. Returns its exit code."""
    parser = Parser(prog="srl expect", description=ABOUT, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*", help="experiment=NAME and overrides")
    parser.add_argument("--seeds", default="1,2,3", help="one run per seed (default: 1,2,3)")
    parser.add_argument("--jobs", type=int, default=1, help="number of runs at a time (default: 1)")
    parser.add_argument("--runs", default="runs", help="folder for the runs (default: runs)")
    given = parser.parse_intermixed_args(argv)
    experiment, overrides = words_of(given.words)
    seeds = [(word,) for word in values(f"seed={given.seeds}")]
    wanted = _wanted(prepare(experiment, [*overrides, *seeds[0]]))
    outcomes = run_each(experiment, overrides, seeds, kind="expect", jobs=given.jobs, runs=given.runs)
    print(table(outcomes, wanted))
    print_failures(outcomes)
    holding = sum(holds(outcome) for outcome in outcomes)
    print(f"expect  {expected(wanted)}: {holding} of {len(outcomes)} seeds hold")
    return 0 if holding == len(outcomes) else DOES_NOT_HOLD


def table(outcomes: Sequence[Outcome], wanted: dict[str, float]) -> str:
    """One line per seed: the env steps at which the mean was measured, the seconds of the whole run."""
    rows = [("seed", "expected", "reached", "env steps", "seconds", "holds", "folder")]
    for outcome in outcomes:
        reached = outcome.status.get("reached", {})
        row = {**last_row(outcome.folder), **reached}
        found = {name: figure(reached[name]) for name in wanted_returns(wanted) if name in reached}
        alone = len(found) == 1
        rows.append(
            (
                outcome.changes[-1].removeprefix("seed="),
                expected(wanted),
                ", ".join(text if alone else f"{name} {text}" for name, text in found.items()),
                rounded(row.get("env_steps")),
                rounded(row.get("wall")),
                ("yes" if holds(outcome) else "no") + (f" ({outcome.end})" if outcome.exit_code else ""),
                str(outcome.folder or "none"),
            )
        )
    return columns(rows, right=(3, 4))


def holds(outcome: Outcome) -> bool:
    """Whether a run ended well and reached what was expected, by its own status."""
    return outcome.exit_code == 0 and outcome.status.get("held") is True


def _wanted(prepared: Prepared) -> dict[str, float]:
    """What is expected; an error if nothing is, or if the env has no such team."""
    wanted = dict(prepared.graph.expect)
    returns = wanted_returns(wanted)
    if not returns:
        raise UserError(f"experiment '{prepared.graph.name}' has no `expect:` section", ("try", "expect={return: 475}"))
    assert prepared.derived is not None
    teams = list(prepared.derived.env.teams)
    names = [RETURN] if len(teams) == 1 else [f"{RETURN}/{team}" for team in teams]
    if stray := next((name for name in returns if name not in names), None):
        place = prepared.composed.provenance.at(("expect", stray))
        lines = [("from", str(place))] if place is not None else []
        raise UserError(
            f"'expect' names '{stray}', which no run of this env has", *lines, ("returns", ", ".join(names)), code="E02"
        )
    return wanted
