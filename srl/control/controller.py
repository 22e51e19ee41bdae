"""The controller of a run: it starts processes, connects their streams, watches them, drains and stops them."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from srl.control.backend import UNMEASURED, Backend, InlineBackend
from srl.control.failures import STALL, Ending, Failures, reached
from srl.control.members import Member, Members
from srl.control.processes import ProcessBackend
from srl.control.runlog import RunLog
from srl.control.signals import catch_signals
from srl.core.errors import CannotWrite, SrlError
from srl.core.registry import import_paths
from srl.core.types import HOME
from srl.graph.hosts import is_elastic
from srl.graph.placement import host_of
from srl.graph.spec import Graph
from srl.observe.report import Lines
from srl.observe.result import Kind, RunResult
from srl.observe.sinks.base import Sink
from srl.observe.totals import Totals
from srl.plan.specs import Derived
from srl.store.run_folder import RunFolder
from srl.workers.messages import Message

# Seconds
DRAIN = 10.0  # for a drain
LAST, LAST_PART, LAST_MOST = 5.0, 0.1, 120.0  # for the last evaluation: this part of the run's time, within bounds
GRACE = 5.0  # between `stop` and the kill; a process that may be writing a checkpoint has `DRAIN` more
LATE = 1.0  # the same for a process that did not drain in time and has nothing to save
HURRY = 0.5  # the same after the second signal
QUIET = 2.0  # of waiting before the processes waited for are listed
_TICK = 0.1


class Controller:
    """Runs the processes of one run from start to end."""

    def __init__(
        self,
        graph: Graph,
        *,
        folder: RunFolder | None = None,
        resume: Path | None = None,
        sinks: Iterable[Sink] = (),
        plan: Lines = (),
        derived: Derived,
        backend: Callable[[], Backend] | None = None,
        stall: float = STALL,
    ) -> None:
        self.graph = graph
        self.totals = Totals(graph)
        self.log = RunLog(graph, self.totals, folder, resume, sinks)
        self._plan = plan
        self._folder, self._resume = folder, resume
        self._derived = derived
        self._open_backend = backend or (InlineBackend if graph.mode == "inline" else ProcessBackend)
        self._failures = Failures(graph, self.totals, folder, stall=stall)
        self._members = Members(graph, self.log.incarnation)
        self._ending: Ending | None = None
        self._asked = 0
        self._hurry = False

    def run(self) -> RunResult:
        """Run to the end. Ctrl-C drains and saves, a second Ctrl-C stops at once.

        The processes are killed if the thread that calls this dies.
        """
        try:
            backend = self._backend = self._open_backend()
        except SrlError as error:
            self.log.begin(self._plan)
            return self.log.finish(self._failures.result(Ending("user error", error=error)))
        restore = catch_signals(self._interrupt)
        try:
            self._start()
            while self._ending is None:
                self._receive(_TICK)
                self._advance()
                self._check_end()
            self._drain()
            self._stop()
        except SrlError as error:
            if isinstance(error, CannotWrite):
                self._ending = None  # a run whose log cannot be written has failed
            self._end(Ending("user error" if error.exit_code == 2 else "worker failure", error=error))
        finally:
            try:
                backend.close()
                self._count_killed()
                result = self.log.finish(self._failures.result(self._ending))
            finally:
                restore()
        return result

    def open(self) -> None:
        """Start the run and return when all workers can be polled: for a session."""
        self._backend = self._open_backend()
        self._start()
        while not all(phase == "running" for phase in self._members.phases.values()):
            self._receive(_TICK)
            self._advance()

    def stop(self) -> None:
        """End the run, from any thread: the first call drains and saves, the second stops at once."""
        self._interrupt("done", "stopped")

    # start --------------------------------------------------------------------------------------------------------

    def _start(self) -> None:
        self.log.begin(self._plan)
        self.totals.figures.headline = self._derived.env.headline
        for member in self._members.values():
            self._spawn(member)

    def _spawn(self, member: Member) -> None:
        owner = member.owner
        self._send(
            member,
            "start",
            threads=max(self.graph.node(worker.node).threads for worker in member.workers),
            plugins=list(self.graph.plugins),
            path=import_paths(),
            log=str(self._folder.log(owner.node, owner.index)) if self._folder else None,
        )
        self._send(
            member,
            "assign",
            graph=self.graph,
            derived=self._derived,
            workers=member.workers,
            network=self._backend.network,
            folder=str(self._folder.path) if self._folder else None,
            resume=str(self._resume) if self._resume else None,
        )
        member.phase = "absent" if self._backend.absent(member.name) else "starting"
        member.ends, member.failure, member.doomed = (), None, False

    def _advance(self) -> None:
        """Attach and build new processes once all are bound; let them run once all are ready."""
        phases = set(self._members.phases.values())
        if "starting" in phases:
            return
        if new := self._members.of("bound"):
            self._attach(new)
        if "ready" in phases and not phases & {"bound", "made"}:
            for member in self._members.of("ready"):
                self._send(member, "go")
                member.phase = "running"
            self.log.event("going" if self.totals.restarts else "started")

    def _attach(self, new: list[Member]) -> None:
        vias = {name: spec.via for name, spec in self._derived.streams.items()}
        for name, peers in self._members.new_connections(new, vias).items():
            self._send(self._members[name], "peers", peers=peers)
        for member in new:
            self._send(member, "make")
            member.phase = "made"

    # receive ------------------------------------------------------------------------------------------------------

    def _receive(self, timeout: float) -> None:
        messages = self._backend.poll(timeout)
        self.totals.callers = self._backend.refused
        for message in messages:
            getattr(self, f"_on_{message['type']}")(message)
        if (how := self.log.look(self._members)) and not (how == "save" and self._asked):
            self._interrupt("interrupted", "by srl stop")
            self._hurry |= how == "now"

    def _on_bound(self, message: Message) -> None:
        member = self._members[message["process"]]
        member.ends = message["ends"]
        for end in member.ends:
            self.totals.ends.bound(end)
        member.phase = "bound"
        if host_of(self.graph, member.owner.node, member.owner.index) == HOME:
            self.log.published(member.ends)
        self.log.event("bound", process=member.name, pid=message["pid"])

    def _on_ready(self, message: Message) -> None:
        self._members[message["process"]].phase = "ready"
        for worker, address in message["addresses"].items():
            self.log.found_at(worker, address)

    def _on_report(self, message: Message) -> None:
        for process, entry in message["processes"].items():
            self.totals.take(process, entry)
        self.log.report()

    def _on_detached(self, message: Message) -> None:
        for name, counts in message["ends"].items():
            self.totals.ends.late_counts(message["process"], name, counts)

    def _on_drained(self, message: Message) -> None:
        self._members[message["process"]].phase = "drained"

    def _on_bye(self, message: Message) -> None:
        pass

    def _on_failed(self, message: Message) -> None:
        member = self._members[message["process"]]
        member.failure = member.failure or message

    def _on_exit(self, message: Message) -> None:
        member = self._members[message["process"]]
        spared = self._failures.spared(member)
        was, member.phase = member.phase, "gone"
        counted = message["code"] == 0 or (member.failure is not None and member.failure["counted"])
        message = {**message, "rss": max(message["rss"], self.totals.rss(member.name))}
        self._forget(member, counted=counted)
        if member.doomed:
            self._detach(member)
            if self._ending is None:
                self._spawn(member)
        elif spared and was != "gone" and (message["code"] != 0 or self._ending is None):
            self._detach(member)
            failure = self._failures.failure(member, message)
            self.log.event("died", process=member.name, code=message["code"], how=failure.how, restart=False)
            self.log.event("note", text=f"{failure.worker} {failure.how}: the run continues without it ({failure.cause})")
        elif self._ending is None and message.get("left"):
            self._come_again(member, "its host was told to end")
        elif self._ending is not None:
            self._detach(member)
            if message["code"] != 0:
                failure, self._ending = self._failures.died_at_the_end(member, message, self._ending)
                self.log.event("died", process=member.name, code=message["code"], how=failure.how, restart=False)
        elif was != "gone":
            self._detach(member)
            failure, ending = self._failures.died(member, message)
            self.log.event("died", process=member.name, code=message["code"], how=failure.how, restart=ending is None)
            if ending is not None:
                self._end(ending)
                return
            others = self._restart(member)
            beside = f" and {', '.join(one.name for one in others)}" if others else ""
            self.log.event("note", text=f"{failure.worker} {failure.how}: restarting it{beside} ({failure.cause})")

    def _restart(self, member: Member) -> list[Member]:
        """Start a process again that has ended; those that must start together with it once they have ended too."""
        gang = self._members.gang(member)
        incarnation = 1 + max(one.owner.incarnation for one in gang)
        others = [one for one in gang if one is not member]
        for one in gang:
            one.renew(incarnation)
        for one in others:
            if not one.doomed and one.phase != "gone":
                self._send(one, "kill")
                one.doomed, one.phase = True, "starting"
        self.log.restarted(incarnation)
        self._spawn(member)
        return others

    def _on_lost(self, message: Message) -> None:
        """The host of this process cannot be reached: treat it as the death of the process, without a log."""
        member = self._members[message["process"]]
        if self._ending is None and is_elastic(self.graph, member.name):
            self._forget(member)
            self._come_again(member, message["reason"])
            return
        self._on_exit({**message, "code": -signal.SIGKILL, "log": [message["reason"]], **UNMEASURED})

    def _come_again(self, member: Member, reason: str) -> None:
        """The host of this process has left. The next incarnation waits for it."""
        self._detach(member)
        if member.ends:
            self.log.event("left", process=member.name, why=reason)
        self._restart(member)

    def _on_leaving(self, message: Message) -> None:
        """A host that the run cannot do without was told to end."""
        if not self._asked:
            self._interrupt("preempted", f"a host was told to end by {message['signal']}")

    def _forget(self, dead: Member, *, counted: bool = False) -> None:
        """Keep what its workers counted; unless they have told all of it, others know more of their ends."""
        observers = {} if counted else self._members.observers(dead)
        self.totals.forget(dead.name, [one.name for one in dead.workers], dead.ends, observers)

    def _detach(self, dead: Member) -> None:
        """Detach the ends of a dead process everywhere; the other processes report what they know of its last counts."""
        gone = [end.name for end in dead.ends]
        for other in self._members.values():
            if other is not dead and gone and other.phase not in ("starting", "gone"):
                self._send(other, "detach", gone=gone, reason="died")

    # check --------------------------------------------------------------------------------------------------------

    def _check_end(self) -> None:
        """End the run if a stop condition holds or it has stalled."""
        if self._asked or self._ending is not None:
            return
        silent = self._failures.silent(self._members.phases, waiting=self._backend.waiting)
        if text := self._failures.late(self._members):
            self.log.event("note", text=text)
        if ending := reached(self.graph.stop, self.totals) or silent:
            self._end(ending)

    def _end(self, ending: Ending) -> None:
        """Start to end the run. The first reason is kept."""
        if self._ending is None:
            self._ending = ending

    # end ----------------------------------------------------------------------------------------------------------

    def _drain(self) -> None:
        """Let all workers finish open work, unless the run failed."""
        assert self._ending is not None
        self.totals.resting = True
        self.log.event("draining" if self._ending.drain else "stopping", why=self._ending.kind)
        if not self._ending.drain:
            return
        at_goal = self._ending.kind in ("done", "solved") and not self._asked
        last = min(max(LAST, LAST_PART * self.totals.elapsed), LAST_MOST) if at_goal else 0.0
        for member in self._members.of("running"):
            self._send(member, "drain", last=last)
        longest = DRAIN + max(0.0, last - LAST)

        def late(waited: float) -> list[Member]:
            over = self._hurry or waited > longest or (at_goal and self._asked)
            return [] if over else self._members.undrained(concluding=waited > DRAIN)

        how = "Ctrl-C saves and ends" if at_goal else "another Ctrl-C ends the run"
        self._wait(late, f"to drain, at most {longest:.0f} s; {how} at once")

    def _stop(self) -> None:
        """Stop all processes; the backend kills the ones that do not end."""
        assert self._ending is not None
        save, stalled = not self._hurry, self._ending.kind == "stalled"
        patience = {member.name: self._patience(member) for member in self._members.alive()}

        def late(member: Member, waited: float) -> bool:
            return waited >= (HURRY if self._hurry else patience[member.name]) and (self._hurry or not self._backend.receiving)

        for member in self._members.alive():
            if stalled:
                self._send(member, "stacks")
            self._send(member, "stop", save=save and member.phase in ("running", "drained"))
        self._wait(
            lambda waited: [one for one in self._members.alive() if not late(one, waited)],
            "to save and end",
        )

    def _patience(self, member: Member) -> float:
        """Seconds between `stop` and the kill of this process."""
        assert self._ending is not None
        if self._ending.kind == "stalled":
            return GRACE
        if member.learns:
            return GRACE + DRAIN
        return LATE if self._ending.drain and member.phase == "running" else GRACE

    def _wait(self, late: Callable[[float], list[Member]], what: str) -> None:
        """Receive messages until `late`, called with the seconds waited so far, returns no process."""
        begun, told = time.monotonic(), False
        while slow := late(waited := time.monotonic() - begun):
            if waited > QUIET and not told:
                told = True
                self.log.event("note", text=f"waiting for {', '.join(member.name for member in slow)} {what}")
            self._receive(_TICK)

    def _count_killed(self) -> None:
        """Account for the processes that had to be killed, whose last counts are lost."""
        late = self._members.alive()
        missed = [member.name for member in late if not self._failures.spared(member)]
        if self._ending is not None and self._ending.error is None and self._ending.drain and not self._hurry and missed:
            self.log.event("note", text=f"did not end, killed: {', '.join(missed)}")
        for member in late:
            self._forget(member)

    def _send(self, member: Member, kind: str, **fields: Any) -> None:
        self._backend.send({"type": kind, "process": member.name, **fields})

    def _interrupt(self, kind: Kind, text: str) -> None:
        """Drain and save at the first call, stop at once at the second.

        Schedulers repeat their signals, and batch scripts pass on what the run gets too: these never hurry it.
        """
        self._asked += 1
        if self._asked == 1:
            self._end(Ending(kind, text))
        elif kind != "preempted":
            self._hurry = True
