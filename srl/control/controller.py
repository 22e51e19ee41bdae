"""The controller of a run: assign, bind, attach, make, start, watch, drain, stop. The only meeting point."""

from __future__ import annotations

import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from srl.control.crew import Crew, InlineCrew
from srl.control.lifecycle import OPPOSITE, BoundEnd, ProcessPlan, attachments, bound_ends, peers_of, plan_processes
from srl.control.local import LocalCrew
from srl.control.messages import Message, peers_to_data, seat_to_data
from srl.control.record import Record
from srl.control.watch import Watch
from srl.core.errors import SrlError
from srl.core.load import dump
from srl.core.registry import import_paths
from srl.graph.derive import Derived, derive, derive_in_child
from srl.graph.spec import Graph
from srl.observe.console import Console
from srl.observe.verdict import Failure, Kind, Verdict
from srl.store.run_folder import RunFolder
from srl.streams.base import Counts

Phase = Literal["starting", "assigned", "bound", "made", "ready", "running", "drained", "gone"]

STALL = 120.0
"""Seconds without any progress before a run ends as stalled."""

DRAIN = 10.0
"""Seconds to come to rest."""

GRACE = 5.0
"""Seconds between `stop` and the end of patience; a checkpoint that is being written has `DRAIN` more."""

HURRY = 0.5
"""The same after the second signal."""

_TICK = 0.1
_HOUR = 3600.0
_SIGNALS: Mapping[int, Kind] = {signal.SIGINT: "interrupted", signal.SIGTERM: "interrupted", signal.SIGUSR1: "preempted"}


@dataclass(slots=True)
class Member:
    """One process, as the controller knows it."""

    plan: ProcessPlan
    phase: Phase = "starting"
    incarnation: int = 0
    ends: list[BoundEnd] = field(default_factory=list)
    failure: Message | None = None
    """The `failed` message that came before its exit."""


@dataclass(frozen=True, slots=True)
class _Ending:
    """Why a run ends."""

    kind: Kind
    text: str = ""
    drain: bool = True
    error: SrlError | None = None


def run(
    graph: Graph,
    *,
    folder: RunFolder | None = None,
    resume: Path | None = None,
    console: Console | None = None,
    derived: Derived | Callable[[], Derived] | None = None,
) -> Verdict:
    """Run a graph to its end. Ctrl-C drains and saves, twice stops at once.

    A function for `derived` is called when the processes have been started, which import meanwhile; what it raises is raised.
    """
    return Controller(graph, folder=folder, resume=resume, console=console, derived=derived).run()


class Controller:
    """Drives one crew through one run."""

    def __init__(
        self,
        graph: Graph,
        *,
        folder: RunFolder | None = None,
        resume: Path | None = None,
        console: Console | None = None,
        derived: Derived | Callable[[], Derived] | None = None,
        crew: Callable[[], Crew] | None = None,
        stall: float = STALL,
    ) -> None:
        self.graph = graph
        self.watch = Watch(graph)
        self.record = Record(graph, self.watch, folder, console, resume)
        self._folder, self._resume = folder, resume
        self._given = callable(derived)
        self._derived = None if callable(derived) else derived
        self._refused: SrlError | None = None
        self._derive = derived if callable(derived) else lambda: (derive if graph.mode == "inline" else derive_in_child)(graph)
        self._open_crew = crew or (InlineCrew if graph.mode == "inline" else LocalCrew)
        self._stall = stall
        self._members = self._plan(self.record.incarnation)
        self._restarts: dict[str, deque[float]] = {}
        self._failures: list[Failure] = []
        self._ending: _Ending | None = None
        self._asked = 0
        self._hurry = False
        self._moved = (0.0, time.monotonic())

    def run(self) -> Verdict:
        """From the first process to the verdict. Processes die with the thread that calls this."""
        crew = self._crew = self._open_crew()
        restore = self._catch_signals()
        try:
            self._start()
            while self._ending is None:
                self._hear(_TICK)
                self._advance()
                self._judge()
            self._drain()
            self._stop()
        except SrlError as error:
            self._end(_Ending("user error" if error.exit_code == 2 else "worker failure", error=error))
        finally:
            crew.close()
            restore()
            self._give_up()
            if self._refused is not None:
                self.record.close()
                raise self._refused
            verdict = self.record.finish(self._verdict())
        return verdict

    def stop(self) -> None:
        """Ask for the end, from any thread: the first time drain and save, the second time at once."""
        self._interrupt("done", "stopped")

    # start --------------------------------------------------------------------------------------------------------

    def _plan(self, incarnation: int) -> dict[str, Member]:
        plans = plan_processes(self.graph, incarnation)
        return {plan.name: Member(plan, incarnation=incarnation) for plan in plans}

    def _start(self) -> None:
        for member in self._members.values():
            self._spawn(member)
        if self._derived is None:
            self._look()
        for member in self._members.values():
            self._assign(member)

    def _look(self) -> None:
        """Derive the specs while the processes import."""
        try:
            self._derived = self._derive()
        except SrlError as error:
            self._refused = error if self._given and not self._asked else None
            raise

    def _spawn(self, member: Member) -> None:
        owner = member.plan.owner
        self._tell(
            member,
            "start",
            threads=member.plan.threads,
            plugins=list(self.graph.plugins),
            kinds=sorted({self.graph.node(seat.node).worker for seat in member.plan.seats}),
            path=import_paths(),
            log=str(self._folder.log(owner.node, owner.index)) if self._folder else None,
        )
        member.phase, member.ends, member.failure = "starting", [], None

    def _assign(self, member: Member) -> None:
        assert self._derived is not None
        self._tell(
            member,
            "assign",
            graph=dump(self.graph),
            derived=self._derived.to_data(),
            seats=[seat_to_data(seat) for seat in member.plan.seats],
            place=self._crew.place,
            folder=str(self._folder.path) if self._folder else None,
            resume=str(self._resume) if self._resume else None,
        )
        member.phase = "assigned"

    def _advance(self) -> None:
        """Once all are bound, attach and build those that are not; once all are ready, let them go."""
        phases = {member.phase for member in self._members.values()}
        if phases & {"starting", "assigned"}:
            return
        if new := [member for member in self._members.values() if member.phase == "bound"]:
            self._attach(new)
        if "ready" in phases and not phases & {"bound", "made"}:
            for member in self._members.values():
                if member.phase == "ready":
                    self._tell(member, "go")
                    member.phase = "running"
            self.record.event("started" if not self._restarts else "going")

    def _attach(self, new: list[Member]) -> None:
        """The new ones to everybody, everybody to the new ones."""
        assert self._derived is not None
        fresh = {member.plan.name for member in new}
        vias = {name: spec.via for name, spec in self._derived.streams.items()}
        pairs = peers_of(self.graph, [end for member in self._members.values() for end in member.ends], vias)
        for name, own in pairs.items():
            due = [(end, peer) for end, peer in own if name in fresh or peer.process in fresh]
            if due:
                self._tell(self._members[name], "peers", peers=peers_to_data(attachments(due)))
        for member in new:
            self._tell(member, "make")
            member.phase = "made"

    # hear ---------------------------------------------------------------------------------------------------------

    def _hear(self, timeout: float) -> None:
        for message in self._crew.poll(timeout):
            getattr(self, f"_on_{message['type']}")(message)

    def _on_bound(self, message: Message) -> None:
        member = self._members[message["process"]]
        member.ends = bound_ends(self.graph, member.plan, message["ends"])
        for end in member.ends:
            self.watch.bound(end)
        member.phase = "bound"
        self.record.event("bound", process=member.plan.name, pid=message["pid"])

    def _on_ready(self, message: Message) -> None:
        self._members[message["process"]].phase = "ready"

    def _on_report(self, message: Message) -> None:
        for process, entry in message["processes"].items():
            self.watch.take(process, entry)
        self.record.report()

    def _on_detached(self, message: Message) -> None:
        for name, numbers in message["ends"].items():
            self.watch.testify(message["process"], name, Counts(*numbers))

    def _on_drained(self, message: Message) -> None:
        self._members[message["process"]].phase = "drained"

    def _on_bye(self, message: Message) -> None:
        pass

    def _on_failed(self, message: Message) -> None:
        member = self._members[message["process"]]
        member.failure = member.failure or message

    def _on_exit(self, message: Message) -> None:
        member = self._members[message["process"]]
        was, member.phase = member.phase, "gone"
        workers = [seat.name for seat in member.plan.seats]
        counted = message["code"] == 0 or (member.failure is not None and member.failure["counted"])
        self.watch.forget(member.plan.name, workers, member.ends, {} if counted else self._witnesses(member))
        if self._ending is not None:
            self._detach(member)
            if message["code"] != 0:
                self._died_at_the_end(member, message)
            return
        if was == "gone":
            return
        self._detach(member)
        obstacle = self._obstacle(member)
        restart = not obstacle
        failure = self._failure(member, message, obstacle)
        self.record.event("died", process=member.plan.name, code=message["code"], how=failure.how, restart=restart)
        if restart:
            self._restart(member, failure)
        else:
            self._failures.append(failure)
            error = member.failure and member.failure["error"]
            known = SrlError.from_data(error) if error else None
            kind: Kind = "user error" if known is not None and known.exit_code == 2 else "worker failure"
            self._end(_Ending(kind, failure.how, drain=False, error=known))

    def _died_at_the_end(self, member: Member, message: Message) -> None:
        """A run that could not come to rest or save did not end well. After a failure it is a victim, which is told too."""
        assert self._ending is not None
        self._failures.append(self._failure(member, message, "the run was ending"))
        self.record.event("died", process=member.plan.name, code=message["code"], how=self._failures[-1].how, restart=False)
        if self._ending.kind in ("done", "solved", "interrupted", "preempted"):
            self._ending = _Ending("worker failure", f"while the run came to its end: {self._ending.text}")

    def _on_lost(self, message: Message) -> None:
        """The host of this process is gone: the same as its death, without last words."""
        self._on_exit({**message, "code": -signal.SIGKILL, "log": [message["reason"]], "rss": 0, "out_of_memory": False})

    # failure ------------------------------------------------------------------------------------------------------

    def _failure(self, member: Member, message: Message, obstacle: str) -> Failure:
        said, owner = member.failure, member.plan.owner
        node = self.graph.node(owner.node)
        error = said["error"] if said else None
        steps = self.watch.env_steps
        return Failure(
            worker=said["worker"] if said else member.plan.name,
            at=self.watch.elapsed,
            exit_code=None if said else message["code"],
            error=(SrlError.from_data(error).format() if error else said["trace"]) if said else "",
            log=str(self._folder.log(owner.node, owner.index)) if self._folder and self.graph.mode != "inline" else "",
            tail=tuple(message["log"]),
            rss=message["rss"],
            host_free=_free_memory(),
            out_of_memory=message["out_of_memory"],
            last_step=steps or None,
            policy=f"{obstacle} -> stopping" if obstacle else f"{node.name}.on_failure=restart -> restarting",
        )

    def _witnesses(self, dead: Member) -> dict[str, set[str]]:
        """Each end of a process that died uncounted -> the other processes that must say what they know of it."""
        others = [end for other in self._members.values() if other is not dead for end in other.ends]
        return {
            own.name: {end.process for end in others if end.stream == own.stream and end.side == OPPOSITE[own.side]}
            for own in dead.ends
        }

    def _detach(self, dead: Member) -> None:
        """Everybody forgets the ends of a process that died, and says what became of what was under way."""
        gone = [end.name for end in dead.ends]
        for other in self._members.values():
            if other is not dead and gone and other.phase not in ("starting", "assigned", "gone"):
                self._tell(other, "detach", gone=gone, reason="died")

    def _obstacle(self, member: Member) -> str:
        """Why a process that died is not started again; empty if it is. What the user must change is not tried again."""
        error = member.failure and member.failure["error"]
        if self.graph.mode == "inline":
            return "mode=inline"
        if error and error["exit"] == 2:
            return "something to change"
        now = time.monotonic()
        for name in dict.fromkeys(seat.node for seat in (member.plan.owner, *member.plan.seats)):
            node = self.graph.node(name)
            times = self._restarts.setdefault(name, deque())
            while times and now - times[0] > _HOUR:
                times.popleft()
            if node.on_failure != "restart":
                return f"{name}.on_failure={node.on_failure}"
            if len(times) >= node.restarts:
                return f"{name}.on_failure=restart, but {name}.restarts={node.restarts} an hour are used up"
        return ""

    def _restart(self, member: Member, failure: Failure) -> None:
        """A new incarnation, started as at the beginning."""
        for node in {seat.node for seat in member.plan.seats}:
            self._restarts.setdefault(node, deque()).append(time.monotonic())
            self.watch.restarts[node] += 1
        member.incarnation += 1
        self.record.restarted(member.incarnation)
        seats = tuple(replace(seat, incarnation=member.incarnation) for seat in member.plan.seats)
        member.plan = replace(member.plan, seats=seats)
        self.record.say(f"{failure.worker} {failure.how}: restarting it ({failure.cause})")
        self._spawn(member)
        if self._derived is not None:
            self._assign(member)
        self._moved = (-1.0, time.monotonic())

    # judge --------------------------------------------------------------------------------------------------------

    def _judge(self) -> None:
        """End the run if it is time to."""
        if self._asked or self._ending is not None:
            return
        stop, watch = self.graph.stop, self.watch
        mean = watch.episode_return
        if watch.finished:
            self._end(_Ending("done", self._reached()))
        elif stop.episode_return is not None and mean is not None and mean >= stop.episode_return:
            self._end(_Ending("solved", f"mean return {mean:.1f} over the last 100 episodes"))
        elif stop.seconds is not None and watch.elapsed >= stop.seconds:
            self._end(_Ending("done", f"{stop.seconds:g} seconds are over"))
        else:
            self._judge_stall()

    def _judge_stall(self) -> None:
        now = time.monotonic()
        mark = self.watch.progress + sum(len(member.phase) for member in self._members.values()) / 1e6
        if mark != self._moved[0]:
            self._moved = (mark, now)
        elif now - self._moved[1] > self._stall:
            late = [member.plan.name for member in self._members.values() if member.phase != "running"]
            what = f"not ready: {', '.join(late)}" if late else "all workers live"
            self._end(_Ending("stalled", f"no progress for {self._stall:g} seconds; {what}", drain=False))

    def _reached(self) -> str:
        return f"{self.watch.env_steps:,} env steps, {int(self.watch.total('updates')):,} updates"

    def _end(self, ending: _Ending) -> None:
        """The first reason counts."""
        if self._ending is None:
            self._ending = ending

    # end ----------------------------------------------------------------------------------------------------------

    def _drain(self) -> None:
        """Let everybody come to rest, if it is that kind of end."""
        assert self._ending is not None
        self.watch.resting = True
        self.record.event("draining" if self._ending.drain else "stopping", why=self._ending.kind)
        if not self._ending.drain:
            return
        end = time.monotonic() + DRAIN
        for member in self._members.values():
            if member.phase == "running":
                self._tell(member, "drain")
        while not self._hurry and time.monotonic() < end and self._in("running"):
            self._hear(_TICK)

    def _stop(self) -> None:
        """Stop all; those that do not go are ended by the crew's `close`."""
        assert self._ending is not None
        save, stalled = not self._hurry, self._ending.kind == "stalled"
        for member in self._members.values():
            if member.phase != "gone":
                if stalled:
                    self._tell(member, "stacks")
                self._tell(member, "stop", save=save and member.phase in ("running", "drained"))
        begun = time.monotonic()
        while not all(member.phase == "gone" for member in self._members.values()):
            patience = HURRY if self._hurry else GRACE if stalled else GRACE + DRAIN
            if time.monotonic() > begun + patience:
                break
            self._hear(_TICK)

    def _give_up(self) -> None:
        """Those that did not end by themselves were ended by the crew: nobody heard their last counts."""
        for member in self._members.values():
            if member.phase != "gone":
                workers = [seat.name for seat in member.plan.seats]
                self.watch.forget(member.plan.name, workers, member.ends, self._witnesses(member))

    def _in(self, phase: Phase) -> bool:
        return any(member.phase == phase for member in self._members.values())

    def _verdict(self) -> Verdict:
        ending = self._ending or _Ending("worker failure", "the controller itself failed")
        waits = self.watch.waits() if ending.kind == "stalled" else {}
        failures = () if ending.kind == "user error" else tuple(self._failures)
        return Verdict(kind=ending.kind, headline=ending.text, failures=failures, error=ending.error, waits=waits)

    def _tell(self, member: Member, kind: str, **fields: Any) -> None:
        self._crew.send({"type": kind, "process": member.plan.name, **fields})

    def _interrupt(self, kind: Kind, text: str) -> None:
        self._asked += 1
        if self._asked == 1:
            self._end(_Ending(kind, text))
        else:
            self._hurry = True

    def _catch_signals(self) -> Callable[[], None]:
        """First signal: drain and save; second: at once. Only the main thread may listen."""
        if threading.current_thread() is not threading.main_thread():
            return lambda: None

        def caught(number: int, _: Any) -> None:
            self._interrupt(_SIGNALS[number], f"by {signal.Signals(number).name}")

        before = {number: signal.signal(number, caught) for number in _SIGNALS}

        def restore() -> None:
            for number, handler in before.items():
                signal.signal(number, handler)

        return restore


def _free_memory() -> int | None:
    """Bytes that this host could still give."""
    with open("/proc/meminfo") as file:
        return next((1024 * int(line.split()[1]) for line in file if line.startswith("MemAvailable:")), None)
