"""`srl bench limit experiment=NAME`: the highest possible rate of this machine for an experiment, and the rate reached."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from srl.cli.parsing import Parser, words_of
from srl.core.errors import UserError
from srl.core.learner import split_config
from srl.core.progress import Progress
from srl.core.text import columns, count
from srl.graph.spec import Node
from srl.plan.prepare import Prepared, prepare

_WARM = 2
"""Updates before anything is timed."""
_SAMPLED = "total/env_steps"


_PARTS = {
    "env step": "us per env step",
    "inference": "us",
    "inserting": "us, rows into the replay",
    "sampling": "us, batches out of the replay",
    "training": "us, all epochs or updates",
}


@dataclass(frozen=True, slots=True)
class Costs:
    """Microseconds per env step on one core, each part measured by itself."""

    parts: Mapping[str, float]

    def limit(self, cores: int) -> float:
        """Env steps per second if nothing else took any time."""
        return cores * 1e6 / sum(self.parts.values())


def bench(argv: list[str]) -> int:
    """Measure and print. The ratio can be compared between machines."""
    if not argv:
        raise UserError(
            "srl bench needs limit or scale", ("try", "srl bench limit experiment=cartpole"), ("all", "srl bench --help")
        )
    if argv[:1] == ["scale"]:
        from srl.cli.scale import scale

        return scale(argv[1:])
    parser = Parser(
        prog="srl bench",
        description="limit experiment=NAME: measure the limit, the achieved rate and their ratio",
    )
    parser.add_argument("what", choices=["limit"])
    parser.add_argument("words", nargs="*", help="experiment=NAME and overrides")
    parser.add_argument(
        "--seconds", type=float, default=20.0, help="length of the run in seconds; timing the parts takes a third longer"
    )
    if argv[:1] in (["--help"], ["-h"]):
        from srl.cli.scale import scale_parser

        print(f"{parser.format_help()}\n{scale_parser().format_help()}")
        return 0
    given = parser.parse_intermixed_args(argv)
    experiment, overrides = words_of(given.words)
    endless = [f"stop.{name}=null" for name in ("env_steps", "updates", "return")]
    dropped = ["evaluation=null", *endless, f"stop.seconds={given.seconds}"]
    prepared = prepare(experiment, [*overrides, *dropped])
    alone = [f"workers.{node.name}.count=1" for node in prepared.graph.nodes if node.worker == "trainer" and node.count > 1]
    parts = prepare(experiment, [*overrides, *dropped, *alone]) if alone else prepared
    with Progress("preparing") as progress:
        progress.lasting("timing the parts", given.seconds / 6)
        before = measure(parts, given.seconds / 6)
        progress.lasting("the run", given.seconds)
        rate = achieved(prepared)
        progress.lasting("timing the parts again", given.seconds / 6)
        after = measure(parts, given.seconds / 6)  # the machine may have become slower meanwhile
    costs = Costs({name: (before.parts[name] + after.parts[name]) / 2 for name in before.parts})
    cores = prepared.machine.cores
    limit = costs.limit(cores)
    rows = [
        *((name, f"{cost:.3f}", _PARTS[name]) for name, cost in costs.parts.items()),
        ("limit", f"{limit:,.0f}", f"env steps/s on {count(cores, 'core')}"),
        ("achieved", f"{rate:,.0f}", f"env steps/s, layout {prepared.experiment.layout}, {given.seconds:g} s"),
        ("ratio", f"{rate / limit:.1%}", ""),
    ]
    print(columns(rows, right=(1,)))
    return 0


def measure(prepared: Prepared, seconds: float) -> Costs:
    """Run the same workers in one process, on one thread, and time each part."""
    from srl.session import Session

    graph = prepared.graph
    env = replace(graph.env, args={**graph.env.args, **({"threads": 1} if "threads" in graph.env.args else {})})
    session = Session(replace(graph, env=env, nodes=tuple(_on_one_core(node) for node in graph.nodes)))
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
    return Costs({name: 1e6 * clock.total / sampled for name, clock in clocks.items() if clock.total})


def _on_one_core(node: Node) -> Node:
    """With one thread, and without the second process of a split learner: only the CPU time of this process is counted."""
    learner = getattr(node.loaded, "learner", None)
    apart = learner is not None and split_config(learner) is not None
    return replace(node, threads=1, args={name: one for name, one in node.args.items() if not (apart and name == "learner")})


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
        rows: list[dict[str, Any]] = [
            row for row in read_numbers(folder.metrics) if (row.get("update") or 0) >= _WARM and _SAMPLED in row
        ]
    if len(rows) < 2:
        raise UserError("too few updates to time", ("try", "--seconds 60, or a smaller sampling.steps"))
    first, last = rows[0], rows[-1]
    last = next((row for row in reversed(rows[1:]) if row[_SAMPLED] < last[_SAMPLED]), last)
    return float(last[_SAMPLED] - first[_SAMPLED]) / max(1e-9, float(last["wall"]) - float(first["wall"]))


class _Clock:
    """Adds up the CPU time spent in a function, so that other load does not count; with that of threads of an env."""

    def __init__(self) -> None:
        self.total = 0.0

    def around(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*args: Any, **named: Any) -> Any:
            before = time.process_time()
            result = function(*args, **named)
            self.total += time.process_time() - before
            return result

        return timed


def _attach(workers: Any) -> dict[str, _Clock]:
    """Put clocks around what the workers call: the env, the policy, the replay and the learner."""
    clocks = {name: _Clock() for name in _PARTS}

    def attach(part: str, holder: Any, name: str) -> None:
        setattr(holder, name, clocks[part].around(getattr(holder, name)))

    for worker in workers.values():
        for group in getattr(worker, "groups", ()):
            attach("env step", group.env, "step")
        if hasattr(worker, "batches"):
            attach("inserting", worker.store, "insert")
            attach("sampling", worker.batches, "sample")
        elif hasattr(worker, "learner"):
            attach("training", worker.learner, "update")
        elif hasattr(worker, "policy"):
            attach("inference", worker.policy, "act")
    return clocks
