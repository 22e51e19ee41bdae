"""`srl bench limit experiment=NAME`: the highest possible rate of this machine for an experiment, and the rate reached."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from srl.cli.parsing import Parser, words_of
from srl.core.errors import UserError
from srl.core.text import columns, count
from srl.plan.prepare import Prepared, prepare

_WARM = 2
"""Updates before anything is timed."""
_SAMPLED = "total/env_steps"


@dataclass(frozen=True, slots=True)
class Costs:
    """Microseconds per env step on one core, each measured by itself."""

    env: float
    act: float
    train: float

    def limit(self, cores: int) -> float:
        """Env steps per second if nothing else took any time."""
        return cores * 1e6 / (self.env + self.act + self.train)

    def mean(self, other: Costs) -> Costs:
        """The mean of two measurements."""
        return Costs((self.env + other.env) / 2, (self.act + other.act) / 2, (self.train + other.train) / 2)


def bench(argv: list[str]) -> int:
    """Measure and print. The ratio can be compared between machines."""
    parser = Parser(prog="srl bench", description="limit experiment=NAME: limit, achieved rate and their ratio")
    parser.add_argument("what", choices=["limit"])
    parser.add_argument("words", nargs="*", help="experiment=NAME and overrides")
    parser.add_argument("--seconds", type=float, default=20.0, help="length of the run; timing the parts adds a third")
    given = parser.parse_intermixed_args(argv)
    experiment, overrides = words_of(given.words)
    endless = [f"stop.{name}=null" for name in ("env_steps", "updates", "return")]
    dropped = ["evaluation=null", *endless, f"stop.seconds={given.seconds}"]
    prepared = prepare(experiment, [*overrides, *dropped])
    before = measure(prepared, given.seconds / 6)
    rate = achieved(prepared)
    costs = before.mean(measure(prepared, given.seconds / 6))  # the machine may have become slower meanwhile
    cores = prepared.machine.cores
    limit = costs.limit(cores)
    rows = [
        ("env step", f"{costs.env:.3f}", "us per env step"),
        ("inference", f"{costs.act:.3f}", "us"),
        ("training", f"{costs.train:.3f}", "us, all epochs"),
        ("limit", f"{limit:,.0f}", f"env steps/s on {count(cores, 'core')}"),
        ("achieved", f"{rate:,.0f}", f"env steps/s, layout {prepared.experiment.layout}, {given.seconds:g} s"),
        ("ratio", f"{rate / limit:.1%}", ""),
    ]
    print(columns(rows, right=(1,)))
    return 0


def measure(prepared: Prepared, seconds: float) -> Costs:
    """Run the same workers in one process and time each part."""
    from srl.session import Session

    session = Session(prepared.graph, None)
    try:
        session.step(_WARM)
        clocks, sampled = _attach(session.workers), session.totals["env_steps"]
        end, updates = time.perf_counter() + seconds, 0
        while time.perf_counter() < end or updates < 4:
            session.step(1)
            updates += 1
        sampled = session.totals["env_steps"] - sampled
    finally:
        session.close()
    return Costs(*(1e6 * spent / sampled for spent in clocks.totals()))


def achieved(prepared: Prepared) -> float:
    """Env steps per second of a run in a temporary folder, from its second update on."""
    from srl.control.controller import Controller
    from srl.run import write_down
    from srl.store.lines import read_numbers

    assert prepared.derived is not None

    with tempfile.TemporaryDirectory() as place:
        folder = write_down(prepared, (), None, Path(place))
        result = Controller(prepared.graph, folder=folder, derived=prepared.derived).run()
        if result.exit_code:
            raise UserError("the run to be timed failed", ("result", result.format()))
        rows = [row for row in read_numbers(folder.metrics) if (row.get("update") or 0) >= _WARM and _SAMPLED in row]
    return _rate(rows)


def _rate(rows: Sequence[dict[str, Any]]) -> float:
    if len(rows) < 2:
        raise UserError("too few updates to time", ("try", "--seconds 60, or a smaller sampling.steps"))
    first, last = rows[0], rows[-1]
    last = next(row for row in reversed(rows) if row[_SAMPLED] < last[_SAMPLED] or row is first)
    if last is first:
        last = rows[-1]
    return float(last[_SAMPLED] - first[_SAMPLED]) / max(1e-9, float(last["wall"]) - float(first["wall"]))


class _Clock:
    """Adds up the CPU time spent in a function, so that other load does not count."""

    def __init__(self) -> None:
        self.total = 0.0

    def around(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*args: Any, **named: Any) -> Any:
            before = time.thread_time()
            result = function(*args, **named)
            self.total += time.thread_time() - before
            return result

        return timed


@dataclass(frozen=True, slots=True)
class _Clocks:
    env: _Clock
    act: _Clock
    train: _Clock

    def totals(self) -> tuple[float, float, float]:
        return self.env.total, self.act.total, self.train.total


def _attach(workers: Any) -> _Clocks:
    """Put clocks around what the workers call: env.step, policy.act, learner.update."""
    clocks = _Clocks(_Clock(), _Clock(), _Clock())
    for worker in workers.values():
        for group in getattr(worker, "groups", ()):
            group.env.step = clocks.env.around(group.env.step)
        if hasattr(worker, "learner"):
            worker.learner.update = clocks.train.around(worker.learner.update)
        elif hasattr(worker, "policy"):
            worker.policy.act = clocks.act.around(worker.policy.act)
    return clocks
