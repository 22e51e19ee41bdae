"""The log of a run: reports and events for the sinks, status.json, at the end ledger and result."""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from srl.control import desk
from srl.control.members import Members
from srl.core.errors import CannotWrite
from srl.core.text import count
from srl.core.types import FOREIGN, BoundEnd
from srl.graph.spec import Graph
from srl.observe.expectation import Expectation, figure
from srl.observe.ledger import table
from srl.observe.live import Live
from srl.observe.report import Lines, Report
from srl.observe.result import RunResult
from srl.observe.screen import lag, learning, rates, shares, sides
from srl.observe.sinks.base import Sink, make_sink
from srl.observe.sinks.jsonl import JsonLines
from srl.observe.sinks.tensorboard import TensorBoard
from srl.observe.totals import Totals
from srl.store import checkpoint
from srl.store.lines import read_numbers
from srl.store.run_folder import RunFolder
from srl.workers.loop import checkpoint_folders
from srl.workers.newest import places

REPORT_EVERY = 1.0
"""Seconds between two reports to the sinks."""

INLINE_REPORT_EVERY = 0.05
"""Seconds between two reports of an inline run, whose workers report every update."""

LOOK_EVERY = 0.5
"""Seconds between two looks for requests."""

STATUS_EVERY = 1.0
"""Seconds between two writes of status.json: each waits for the disk."""


class RunLog:
    """Passes reports and events to every sink, and writes status.json, from which a resume starts."""

    def __init__(
        self, graph: Graph, totals: Totals, folder: RunFolder | None, resume: Path | None, sinks: Iterable[Sink] = ()
    ) -> None:
        self._graph, self._totals, self._folder = graph, totals, folder
        self._due = self._status_due = self._look_due = 0.0
        self.incarnation = 0
        """Incarnation of the workers that start now: greater than any that this run has used."""
        if folder is not None:
            folder.hold()
            folder.params.unlink(missing_ok=True)  # of a session that was killed
            desk.forget(folder.path)
        earlier = RunFolder(resume).read_status() if resume is not None else {}
        if resume is not None:
            self.incarnation = int(earlier.get("incarnation", 0)) + 1
            totals.earlier = _counted_before(resume, graph)
        self._sinks: list[Sink] = []
        if folder is not None:
            resume_at = int(earlier["env_steps"]) if "env_steps" in earlier else None
            self._sinks = [JsonLines(folder), TensorBoard(folder, resume_at=resume_at)]
            self._sinks += [make_sink(wanted, folder.path) for wanted in graph.sinks]
        self._sinks += sinks
        self._expectation = Expectation(graph.expect, stop=graph.stop.env_steps, reached=earlier.get("reached"))
        self._top = self.incarnation
        self._state = "running"
        self._before = float(earlier.get("seconds", 0.0))
        self._remarked = False
        self._refused: set[str] = set()
        self._last: Report | None = None
        self._live: Live | None = None
        self._addresses: dict[str, str] = {}
        self._ends: dict[str, BoundEnd] = {}
        self._solved: float | None = None
        self._status()

    def begin(self, plan: Lines) -> None:
        """The run starts."""
        if self._folder is not None:
            self._live = Live(self._folder, self._graph, plan)
        self._give(lambda sink: sink.begin(self._graph, plan))
        for sink in self._sinks:
            if sink.address:
                self.event("note", text=f"{type(sink).__name__.lower()}: {sink.address}")

    def report(self) -> None:
        """A report has arrived: pass it to the sinks if one is due."""
        self._remark()
        now = time.monotonic()
        if now < self._due:
            return
        self._due = now + (REPORT_EVERY if self._graph.mode != "inline" else INLINE_REPORT_EVERY)
        self._report()
        if now >= self._status_due:
            self._status_due = now + STATUS_EVERY
            self._status()

    def look(self, members: Members) -> str:
        """Now and then: renew live.json, and see whether somebody has asked the run to stop (`save`, `now`)."""
        now = time.monotonic()
        if self._folder is None or now < self._look_due:
            return ""
        self._look_due = now + LOOK_EVERY
        if self._live is not None and self._last is not None:
            self._live.report(self._last, lambda: desk.loads(self._graph, self._totals, members))
        return desk.asked_to_stop(self._folder.path)

    def event(self, what: str, /, **facts: Any) -> None:
        """Something happened."""
        if what == "draining" and facts["why"] == "solved":
            self._report()  # the return that ended the run, before episodes of the drain change it
            self._solved = self._totals.episode_return
            self._totals.figures.settle()
            self._expectation.settle()
        self._give(lambda sink: sink.event(what, **facts))

    def found_at(self, worker: str, address: str) -> None:
        """Where a person finds a worker: printed, and in status.json while the run lives."""
        self._addresses[worker] = address
        self.event("note", text=f"{worker.partition('/')[0]}: {address}")
        self._status()

    def published(self, ends: Iterable[BoundEnd]) -> None:
        """These ends are open now: `srl watch` finds the parameters of the run by what is written down of them."""
        self._ends = {**self._ends, **{end.name: end for end in ends if end.side == "publisher"}}
        if self._folder is not None and (found := places(list(self._ends.values())))["params"]:
            self._folder.write_text(self._folder.params.name, json.dumps(found))

    def restarted(self, incarnation: int) -> None:
        """Save the incarnation before its process starts, so that none is used twice."""
        self._top = max(self._top, incarnation)
        self._status()

    def finish(self, result: RunResult) -> RunResult:
        """Write the last report, the ledger and the result, and close the sinks. Returns the result with what was saved.

        With a full disk, whatever can still be written is written, and the result is shown.
        """
        try:
            self._report()
        except CannotWrite as error:
            if result.problem() is None:
                result = replace(result, kind="worker failure", error=error)
        if self._folder is not None:
            self._folder.params.unlink(missing_ok=True)
            desk.forget(self._folder.path)
            self._folder.sweep()
        found = _newest_checkpoint(self._folder.path, self._graph) if self._folder is not None else None
        result = replace(
            result,
            run=str(self._folder.path) if self._folder is not None else "",
            checkpoint=str(found.relative_to(self._folder.checkpoints)) if self._folder is not None and found is not None else "",
            summary=() if result.kind == "user error" else (*result.summary, *self._summary(result)),
        )
        self._state = result.kind
        held = {"held": self._expectation.holds} if self._expectation.wanted else {}
        with contextlib.suppress(CannotWrite):
            self._status(exit_code=result.exit_code, checkpoint=result.checkpoint, **held)
        with contextlib.suppress(CannotWrite):
            self.event("ended", why=result.kind, exit_code=result.exit_code)
        if self._live is not None:
            with contextlib.suppress(CannotWrite):
                self._live.end(self._last, result)
        for sink in self._sinks:
            with contextlib.suppress(CannotWrite):
                sink.end(result)
        if self._folder is not None:
            self._folder.close()
        return result

    def _remark(self) -> None:
        """Note once that an env exceeds its declared bounds (the log of the actor has the numbers), and who was refused."""
        if not self._remarked and (actors := self._totals.who("env/outside_bounds")):
            self._remarked = True
            self.event("note", text=f"note: observations exceed the env's declared bounds (details in the log of {actors[0]})")
            self.event("outside_bounds", worker=actors[0])

        for place, reasons in self._totals.refused.items():
            for reason in reasons:
                if (what := f"{place}: {reason}") not in self._refused and reason != FOREIGN["handshake"]:
                    self._refused.add(what)
                    self.event("note", text=f"note: somebody who is no part of this run was refused at {what}")

    def _report(self) -> None:
        self._expectation.see(self._totals.env_steps, self._totals.episode_returns)
        report = self._last = self._totals.report()
        self._give(lambda sink: sink.report(report))

    def _give(self, call: Callable[[Sink], None]) -> None:
        """Call every sink. One that fails is dropped and the run continues, unless files of the run itself cannot be written."""
        for sink in list(self._sinks):
            try:
                call(sink)
            except CannotWrite:
                raise
            except Exception as error:
                self._sinks.remove(sink)
                cause = f"{type(error).__name__}: {error}"
                self.event("note", text=f"note: sink {type(sink).__name__} failed and gets no more reports: {cause}")

    def _summary(self, result: RunResult) -> list[tuple[str, str]]:
        totals = self._totals
        facts = [("env steps", f"{totals.env_steps:,}"), ("updates", f"{int(totals.total('updates')):,}")]
        if returns := totals.figures.returns():
            text = ", ".join(f"{team} {figure(mean)}".strip() for team, mean in returns.items())
            facts.append(("return", f"{text} (last {count(totals.figures.episodes(), 'episode')})"))
        seconds = self._graph.stop.seconds
        at_stop = totals.finished or (seconds is not None and totals.elapsed >= seconds)
        if self._expectation.wanted and (result.kind == "solved" or (result.kind == "done" and at_stop)):
            facts.append(("expect", self._expectation.text()))
        if (report := self._last) is not None:
            speed = ", ".join(filter(None, [rates(report), learning(report)])) if report.env_rate else ""
            told = (("rates", speed), ("lag", lag(report)), ("sides", sides(report)), ("busy", shares(report)))
            facts += [(label, text) for label, text in told if text]
        if refused := totals.refused:
            counted = [f"{place}: {', '.join(f'{why} {n:,}' for why, n in found.items())}" for place, found in refused.items()]
            facts.append(("refused", "\n".join(counted)))
        ledgers = totals.ledgers()
        return facts + ([("ledger", table(ledgers))] if ledgers else [])

    def _status(self, **more: Any) -> None:
        if self._folder is None:
            return
        before = self._folder.read_status()
        steps = self._totals.env_steps or int(before.get("env_steps", 0))
        own = {
            "state": self._state,
            "pid": os.getpid(),
            "incarnation": self._top,
            "env_steps": steps,
            "experiment": self._graph.name,
            "seed": self._graph.seed,
            "seconds": round(self._before + self._totals.elapsed, 3),
        }
        if returns := self._totals.figures.returns():
            own["mean_return"] = next(iter(returns.values()))
        if self._solved is not None:
            own["solved"] = self._solved
        if self._expectation.wanted:
            own["reached"] = self._expectation.reached
        if self._addresses and self._state == "running":
            own["viewer"] = ", ".join(self._addresses.values())
        else:
            before.pop("viewer", None)
        if self._state != "running":
            before.pop("dashboard", None)
        self._folder.write_status({**before, **own, **more})


def _newest_checkpoint(run: Path, graph: Graph) -> Path | None:
    """The checkpoint that a resume starts from."""
    found = [path for place in checkpoint_folders(run, graph) if (path := checkpoint.latest(place)) is not None]
    return max(found, key=checkpoint.step_of, default=None)


def _counted_before(run: Path, graph: Graph) -> dict[str, float]:
    """Totals of the run at the checkpoint that it resumes from: the last line of metrics.jsonl up to that step."""
    newest = _newest_checkpoint(run, graph)
    step = checkpoint.step_of(newest) if newest is not None else 0
    for row in reversed(list(read_numbers(RunFolder(run).metrics))):
        found = {name.removeprefix("total/"): value for name, value in row.items() if name.startswith("total/")}
        if found and (row.get("env_steps") or 0) <= step:
            return {name: float(value) for name, value in found.items() if value is not None}
    return {}
