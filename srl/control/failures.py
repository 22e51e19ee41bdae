"""Why a run ends: a stop condition, a stall, or a failure after which no process is restarted."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from srl.control.members import Member
from srl.core.errors import SrlError
from srl.core.text import count
from srl.core.types import Stop
from srl.graph.spec import Graph
from srl.observe.expectation import figure
from srl.observe.result import Failure, Kind, RunResult
from srl.observe.totals import Totals
from srl.store.run_folder import RunFolder
from srl.workers.messages import Message

STALL = 120.0
"""Seconds without any progress before a run ends as stalled."""
SLOW = 10.0
"""Seconds without any progress before the processes that are not ready are listed."""

_LONGEST_TURN = 5.0
"""Seconds that one turn of the controller counts at most."""
_HOUR = 3600.0


@dataclass(frozen=True, slots=True)
class Ending:
    """Why a run ends."""

    kind: Kind
    text: str = ""
    drain: bool = True
    error: SrlError | None = None
    counted: bool = False
    """The text says what was done, which may be more when the run is over."""


def reached(stop: Stop, totals: Totals) -> Ending | None:
    """The first stop condition that holds, or None."""
    mean = totals.episode_return
    if totals.finished:
        return Ending("done", _done(totals), counted=True)
    if stop.episode_return is not None and mean is not None and mean >= stop.episode_return:
        return Ending("solved", f"mean return {figure(mean)} over the last 100 episodes")
    if stop.seconds is not None and totals.elapsed >= stop.seconds:
        return Ending("done", f"reached stop.seconds={stop.seconds:g}")
    return None


def _done(totals: Totals) -> str:
    return f"{totals.env_steps:,} env steps, {int(totals.total('updates')):,} updates"


class Failures:
    """Decides how a run reacts to failures. The controller carries it out."""

    def __init__(
        self,
        graph: Graph,
        totals: Totals,
        folder: RunFolder | None,
        *,
        stall: float = STALL,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._graph, self._totals, self._folder = graph, totals, folder
        self._stall, self._clock = stall, clock
        self._restarts: dict[str, deque[float]] = {}
        self._fatal: list[Failure] = []
        self._mark: Any = None
        self._silence, self._looked = 0.0, clock()
        self._listed: Any = None
        """The mark at which the late processes were listed."""

    def died(self, member: Member, exit: Message) -> tuple[Failure, Ending | None]:
        """A process ended while the run was under way. No ending: restart it, which counts against the limit."""
        error, must_change = _error(member), _must_change(member)
        at = exit.get("at", self._clock())
        obstacle = self._obstacle(member, must_change, at)
        failure = self.failure(member, exit, obstacle)
        if not obstacle:
            for name in _nodes(member):
                if at not in (times := self._restarts[name]):
                    times.append(at)
                self._totals.restarts[name] += 1
            self._mark = None
            return failure, None
        self._fatal.append(failure)
        return failure, Ending("user error" if must_change else "worker failure", failure.how, drain=False, error=error)

    def spared(self, member: Member) -> bool:
        """Whether the run continues without this process, which no worker waits for. A user error at the start still ends it."""
        leave = all(self._graph.node(name).on_failure == "leave" for name in _nodes(member))
        return (
            leave and self._graph.mode != "inline" and not (_must_change(member) and member.phase not in ("running", "drained"))
        )

    def died_at_the_end(self, member: Member, exit: Message, ending: Ending) -> tuple[Failure, Ending]:
        """A process failed during the end of the run: a run that could not drain or save has failed."""
        failure = self.failure(member, exit, "the run was ending")
        self._fatal.append(failure)
        if ending.kind in ("done", "solved", "interrupted", "preempted"):
            ending = Ending("worker failure", f"during the end of the run: {ending.text}")
        return failure, ending

    def silent(self, phases: Mapping[str, str], *, waiting: bool = False) -> Ending | None:
        """The end of a stalled run: no change of totals or phases for too long. Called in every turn.

        Time in which the controller itself was stopped (Ctrl-Z, a debugger) does not count, nor does `waiting` for hosts.
        """
        now, mark = self._clock(), (self._totals.progress, tuple(phases.values()))
        self._silence += min(now - self._looked, _LONGEST_TURN)
        self._looked = now
        if mark != self._mark or waiting:
            self._mark, self._silence = mark, 0.0
        elif self._silence > self._stall:
            late = [name for name, phase in phases.items() if phase != "running"]
            what = f"not ready: {', '.join(late)}" if late else "all workers are alive"
            return Ending("stalled", f"no progress for {self._stall:g} seconds; {what}", drain=False)
        return None

    def late(self, members: Mapping[str, Member]) -> str:
        """What to say, once, of processes that are not ready although nothing has happened for a while; called after `silent`."""
        late = [member for member in members.values() if member.phase in ("starting", "made")]
        if not late or self._silence < SLOW or self._listed == self._mark:
            return ""
        self._listed = self._mark
        more = f" and {count(len(late) - 1, 'other')}" if len(late) > 1 else ""
        log = self._log(late[0])
        at = f" ({log})" if log else ""
        return f"waiting for {late[0].name}{more} to make envs, policies or an algorithm{at}"

    def result(self, ending: Ending | None) -> RunResult:
        """How the run ended, with everything that failed."""
        ending = ending or Ending("worker failure", "the controller itself failed")
        waits = self._totals.waits() if ending.kind == "stalled" else {}
        failures = () if ending.kind == "user error" else tuple(self._fatal)
        text = _done(self._totals) if ending.counted else ending.text
        return RunResult(kind=ending.kind, headline=text, failures=failures, error=ending.error, waits=waits)

    def failure(self, member: Member, exit: Message, obstacle: str = "") -> Failure:
        """How a process ended. `obstacle`: why the run cannot continue."""
        said, error = member.failure, _error(member)
        return Failure(
            worker=said["worker"] if said else member.name,
            at=self._totals.elapsed,
            exit_code=None if said else exit["code"],
            error=(error.format() if error else said["trace"]) if said else "",
            log=self._log(member),
            tail=tuple(exit["log"]),
            rss=exit["rss"],
            host_free=exit["free"],
            out_of_memory=exit["out_of_memory"],
            last_step=self._totals.env_steps or None,
            policy=f"{obstacle} -> stopping" if obstacle else f"workers.{member.owner.node}.on_failure=restart -> restarting",
        )

    def _log(self, member: Member) -> str:
        """Its log file, if it has one."""
        owner = member.owner
        return str(self._folder.log(owner.node, owner.index)) if self._folder and self._graph.mode != "inline" else ""

    def _obstacle(self, member: Member, must_change: bool, at: float) -> str:
        """Why a process that died at this time is not restarted; empty if it is. What is lost at the same moment counts once."""
        if self._graph.mode == "inline" or must_change:
            return "mode=inline" if self._graph.mode == "inline" else "something to change"
        for name in _nodes(member):
            node = self._graph.node(name)
            times = self._restarts.setdefault(name, deque())
            while times and at - times[0] > _HOUR:
                times.popleft()
            if node.on_failure != "restart":
                return f"workers.{name}.on_failure={node.on_failure}"
            if len(times) >= node.restarts and at not in times:
                return f"workers.{name}.on_failure=restart, but restarts={node.restarts} an hour are used up"
        return ""


def _error(member: Member) -> SrlError | None:
    """The error that it raised, if it is one of this package."""
    data = member.failure and member.failure["error"]
    return SrlError.from_data(data) if data else None


def _must_change(member: Member) -> bool:
    """It ended by a user error, which is not retried."""
    error = _error(member)
    return error is not None and error.exit_code == 2


def _nodes(member: Member) -> Collection[str]:
    """The nodes whose workers live in a process, its owner's first."""
    return dict.fromkeys(worker.node for worker in (member.owner, *member.workers))
