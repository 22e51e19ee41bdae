"""What a run leaves behind while it goes on: metrics, TensorBoard, events, status, table; at the end ledger and result."""

from __future__ import annotations

import contextlib
import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from srl.core.errors import CannotWrite
from srl.graph.spec import Graph
from srl.observe.console import Console
from srl.observe.expectation import Expectation
from srl.observe.ledger import table
from srl.observe.metrics import MetricsWriter, last_wall, read_metrics
from srl.observe.result import RunResult
from srl.observe.tensorboard import EventWriter
from srl.observe.totals import Totals
from srl.store import checkpoint
from srl.store.run_folder import RunFolder
from srl.workers.loop import checkpoint_folders

ROW_EVERY = 1.0
"""Seconds between two lines of metrics.jsonl."""

INLINE_ROW_EVERY = 0.05
"""The same inline, where every update is reported. Nothing is decided by what is written."""


STATUS_EVERY = 1.0
"""Seconds between two writes of status.json: each waits for the disk."""


class RunLog:
    """Everything that is written for people. Without a run folder only the console."""

    def __init__(
        self, graph: Graph, totals: Totals, folder: RunFolder | None, console: Console | None, resume: Path | None
    ) -> None:
        self._graph, self._totals, self._folder, self._console = graph, totals, folder, console
        self._metrics = self._events = None
        self._due = self._status_due = 0.0
        self.incarnation = 0
        """Of the workers that start now: one more than any that this run ever had."""
        if folder is not None:
            folder.hold()
        earlier = RunFolder(resume).read_status() if resume is not None else {}
        if resume is not None:
            self.incarnation = int(earlier.get("incarnation", 0)) + 1
            totals.earlier = _counted_before(resume, graph)
        if folder is not None:
            self._metrics = MetricsWriter(folder.metrics, wall=last_wall(folder.metrics))
            steps = int(earlier["env_steps"]) if "env_steps" in earlier else None
            self._events = EventWriter(folder.tb, resume_at=steps)
        self._expectation = Expectation(graph.expect, stop=graph.stop.env_steps, reached=earlier.get("reached"))
        self._top = self.incarnation
        self._state = "running"
        self._before = float(earlier.get("seconds", 0.0))
        self._remarked = False
        self._solved: float | None = None
        self._status()

    def report(self) -> None:
        """A report has come: show it, and write a line if it is time to."""
        self._remark()
        now = time.monotonic()
        if now < self._due:
            return
        self._due = now + (ROW_EVERY if self._graph.mode != "inline" else INLINE_ROW_EVERY)
        if self._console is not None:
            self._console.update(self._totals.report())
        self._row()
        if now >= self._status_due:
            self._status_due = now + STATUS_EVERY
            self._status()

    def event(self, what: str, /, **fields: Any) -> None:
        """One line in events.jsonl."""
        if what == "draining" and fields["why"] == "solved":
            self._row()  # the return that ended the run, before episodes of the drain change it
            self._solved = self._totals.episode_return
            self._expectation.settle()
        if self._folder is not None:
            self._folder.append_event(what, **fields)

    def say(self, text: str) -> None:
        """One line that stays on the console."""
        if self._console is not None:
            self._console.message(text)

    def restarted(self, incarnation: int) -> None:
        """Remember it before the new incarnation lives: none may ever be used twice."""
        self._top = max(self._top, incarnation)
        self._status()

    def finish(self, result: RunResult) -> RunResult:
        """Last line, ledger and result; closes the files. Returns the result with what was saved.

        Where the disk is full, all that still can be written is, and the result is told anyway.
        """
        try:
            self._row()
        except CannotWrite as error:
            if result.problem() is None:
                result = replace(result, kind="worker failure", error=error)
        if self._folder is not None:
            self._folder.sweep()
        last = self._last_checkpoint()
        result = replace(
            result,
            run=str(self._folder.path) if self._folder is not None else "",
            checkpoint=last,
            summary=() if result.kind == "user error" else (*result.summary, *self._summary(result)),
        )
        self._state = result.kind
        held = {"held": self._expectation.holds} if self._expectation.wanted else {}
        with contextlib.suppress(CannotWrite):
            self._status(exit_code=result.exit_code, checkpoint=result.checkpoint, **held)
        with contextlib.suppress(CannotWrite):
            self.event("ended", why=result.kind, exit_code=result.exit_code)
        if self._console is not None:
            self._console.finish(self._totals.report(), result.format())
        self.close()
        return result

    def close(self) -> None:
        """Close all files, without a result. Idempotent."""
        for file in (self._metrics, self._events, self._folder):
            if file is not None:
                file.close()

    def _remark(self) -> None:
        """Once: an env gives what it does not declare. The actor's log has the figures."""
        if not self._remarked and (actors := self._totals.who("env/outside_bounds")):
            self._remarked = True
            self.say(
                f"note: observations leave the bounds that the env declares; the log of {actors[0]} says which, and by how much"
            )
            self.event("outside_bounds", worker=actors[0])

    def _row(self) -> None:
        self._expectation.see(self._totals.env_steps, self._totals.episode_returns)
        if self._metrics is None or self._events is None:
            return
        for one in self._totals.evaluations():
            self._metrics.write(one.env_steps, one.update, one.values)
            self._events.write(one.env_steps, one.values)
        steps, updates = self._totals.env_steps, int(self._totals.total("updates"))
        values = self._totals.row()
        self._metrics.write(steps, updates, values)
        self._events.write(steps, values)

    def _summary(self, result: RunResult) -> list[tuple[str, str]]:
        totals = self._totals
        facts = [("env steps", f"{totals.env_steps:,}"), ("updates", f"{int(totals.total('updates')):,}")]
        if returns := totals.episode_returns:
            text = ", ".join(f"{team} {mean:.2f}".strip() for team, mean in returns.items())
            facts.append(("return", f"{text} (last 100 episodes)"))
        if self._expectation.wanted and self._at_stop(result):
            facts.append(("expect", self._expectation.text()))
        ledgers = totals.ledgers()
        return facts + ([("ledger", table(ledgers))] if ledgers else [])

    def _at_stop(self, result: RunResult) -> bool:
        """The run went as far as its `stop` says: nobody ended it earlier."""
        totals, seconds = self._totals, self._graph.stop.seconds
        return result.kind == "solved" or (
            result.kind == "done" and (totals.finished or (seconds is not None and totals.elapsed >= seconds))
        )

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
        if (mean := self._totals.episode_return) is not None:
            own["mean_return"] = mean
        if self._solved is not None:
            own["solved"] = self._solved
        if self._expectation.wanted:
            own["reached"] = self._expectation.reached
        self._folder.write_status({**before, **own, **more})

    def _last_checkpoint(self) -> str:
        """The newest whole one that a resume goes on from, below `checkpoints`: `step_000100000`, `hider/step_000100000`."""
        found = _newest_checkpoint(self._folder.path, self._graph) if self._folder is not None else None
        return str(found.relative_to(self._folder.checkpoints)) if self._folder is not None and found is not None else ""


def _newest_checkpoint(run: Path, graph: Graph) -> Path | None:
    found = [path for place in checkpoint_folders(run, graph) if (path := checkpoint.latest(place)) is not None]
    return max(found, key=checkpoint.step_of, default=None)


def _counted_before(run: Path, graph: Graph) -> dict[str, float]:
    """The totals of the run when the checkpoint was written that it goes on from: of the last line up to that step."""
    newest = _newest_checkpoint(run, graph)
    step = checkpoint.step_of(newest) if newest is not None else 0
    for row in reversed(read_metrics(RunFolder(run).metrics)):
        found = {name.removeprefix("total/"): value for name, value in row.items() if name.startswith("total/")}
        if found and row["env_steps"] <= step:
            return {name: float(value) for name, value in found.items() if value is not None}
    return {}
