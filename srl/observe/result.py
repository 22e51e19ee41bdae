"""The result of a run in words: what happened, why, what was saved, and how to resume."""

from __future__ import annotations

import signal
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from srl.core.errors import RunError, SrlError, UserError
from srl.core.text import aligned, clock_time
from srl.core.types import Waiting

Kind: TypeAlias = Literal["done", "solved", "submitted", "interrupted", "preempted", "worker failure", "stalled", "user error"]

EXIT_CODES: Mapping[Kind, int] = {
    "done": 0,
    "solved": 0,
    "submitted": 0,
    "user error": 2,
    "worker failure": 3,
    "stalled": 4,
    "preempted": 75,
    "interrupted": 130,
}

_LITTLE = 256 << 20
"""Bytes: a host with less free memory is short of it."""

TAIL = 20
"""Lines of a log that are shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """How one worker failed."""

    worker: str
    """`actor/7`"""
    at: float
    """Seconds after the start of the run."""
    exit_code: int | None = None
    """As in `subprocess`: negative for a signal. None: it raised, and its process is alive."""
    error: str = ""
    """What it raised: a traceback, or a message of `SrlError.format`."""
    log: str = ""
    """Its log file."""
    tail: tuple[str, ...] = ()
    """Last lines of that file."""
    rss: int = 0
    """Largest resident size known, bytes."""
    host_free: int | None = None
    """Memory available on its host then, bytes."""
    out_of_memory: bool = False
    """The kernel or the memory cgroup counted an OOM kill."""
    last_step: int | None = None
    policy: str = ""
    """`workers.actor.on_failure=stop -> stopping`"""

    @property
    def how(self) -> str:
        """`died (signal 9)`, `raised ValueError`, `exited with code 1`."""
        if self.exit_code is not None and self.exit_code < 0:
            return f"died (signal {-self.exit_code})"
        if self.error:
            return f"raised {_raised(self.error)[0].split(':')[0].strip()}"
        if self.exit_code is not None:
            return f"exited with code {self.exit_code}"
        return "exited without an error message"

    @property
    def cause(self) -> str:
        """The most likely reason, and the evidence for it."""
        memory = [f"rss {_gigabytes(self.rss)}"] if self.rss else []
        memory += [f"host free {_gigabytes(self.host_free)}"] if self.host_free is not None else []
        facts = f" ({'; '.join(memory)})" if memory else ""
        if self.exit_code is None or self.exit_code >= 0:
            return "; ".join(_raised(self.error)) if self.error else f"unknown{facts}"
        try:
            name = signal.Signals(-self.exit_code).name
        except ValueError:
            name = f"signal {-self.exit_code}"
        if name in ("SIGSEGV", "SIGBUS", "SIGFPE", "SIGILL", "SIGABRT"):
            return f"crash in native code ({name}){facts}"
        if name != "SIGKILL":
            return f"ended by {name}{facts}"
        # The kernel counts OOM kills for the whole host, and in a container not at all: free memory is evidence too.
        short = self.host_free is not None and self.host_free < self.rss + _LITTLE  # what it held is free again by now
        if self.out_of_memory and (short or self.host_free is None):
            return f"kernel OOM killer{facts}"
        guess = "; memory was short: probably the kernel's OOM killer" if short else ""
        return f"killed from outside (SIGKILL){guess}{facts}"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class RunResult:
    """How a run ended; one per run."""

    kind: Kind
    headline: str = ""
    """What happened; for a worker failure, see `failures`."""
    failures: tuple[Failure, ...] = ()
    run: str = ""
    """The run folder, as a person would type it."""
    checkpoint: str = ""
    """Name of the newest complete checkpoint."""
    summary: tuple[tuple[str, str], ...] = ()
    """Figures of the run: (label, text)."""
    error: SrlError | None = None
    """The error behind a `user error`, or what the run itself raised."""
    waits: Mapping[str, Collection[Waiting]] = field(default_factory=dict)
    """What each worker of a stalled run waits for."""

    def __repr__(self) -> str:
        problem = self.problem()
        text = self.headline if problem is None else problem.headline
        return f"<RunResult {self.kind}: {text}>" if text else f"<RunResult {self.kind}>"

    @property
    def exit_code(self) -> int:
        """0 done, 2 user error, 3 worker failure, 4 stalled, 75 preempted, 130 interrupted."""
        return EXIT_CODES[self.kind]

    @property
    def first(self) -> Failure | None:
        """The worker that failed first; later failures usually follow from it."""
        return min(self.failures, key=lambda failure: failure.at, default=None)

    def resume(self) -> str:
        """The command that resumes the run; empty if nothing was saved."""
        return f"python -m srl.launch --resume {self.run}" if self.run and self.checkpoint else ""

    def format(self) -> str:
        """Everything that is printed at the end."""
        problem = self.problem()
        if problem is None:
            saved = [("checkpoint", f"{self.run}/checkpoints/{self.checkpoint}" if self.run else self.checkpoint)]
            if self.run:
                saved += [("resume", self.resume()), ("watch", f"python -m srl watch {self.run}")]
            return aligned([(self.kind, self.headline), *self.summary, *(saved if self.checkpoint else ())])
        first = self.first
        shown = () if first is None else first.error.rstrip().splitlines() if first.error else first.tail[-TAIL:]
        summary = [aligned(self.summary)] if self.summary else []
        return "\n".join([problem.format(), *(f"  | {line}" for line in shown), *summary])

    def problem(self) -> SrlError | None:
        """What went wrong, as it is raised and printed; None if nothing did."""
        if self.kind == "user error":
            return self.error or UserError(self.headline)
        if self.kind == "worker failure":
            return self._worker_failure()
        if self.kind == "stalled":
            lines = [(worker, f"waits for {'; '.join(map(str, waits))}") for worker, waits in self.waits.items()]
            return RunError(self.headline or "no progress", *lines, *self._next(), code="R02")
        return None

    def _worker_failure(self) -> SrlError:
        first = self.first
        kept = f"checkpoint {self.checkpoint} is complete" if self.checkpoint else "no checkpoint was written"
        if first is None and self.error is not None:
            error = SrlError.from_data(self.error.to_data())
            error.facts += [("saved", kept), *self._next()]
            return error
        if first is None:
            return RunError(self.headline or "a worker failed", *self._next(), code="R01")
        last = f"; last step {first.last_step:,}" if first.last_step is not None else ""
        below = f" (last {min(TAIL, len(first.tail))} lines below)" if first.tail and not first.error else ""
        cause = first.cause + (f"   logs: {first.log}{below}" if first.log else "")
        others = [failure.worker for failure in self.failures if failure is not first]
        return RunError(
            f"{first.worker} {first.how} {clock_time(first.at)} after start{last}",
            ("cause", cause),
            *([("then", f"{', '.join(others)} failed after it")] if others else []),
            ("policy", "; ".join(part for part in (first.policy, kept) if part)),
            *self._next(),
            code="R01",
        )

    def _next(self) -> list[tuple[str, str]]:
        return [("next", self.resume())] if self.resume() else []


def _gigabytes(number: int) -> str:
    return f"{number / 1e9:.1f} GB" if number >= 1e8 else f"{number / 1e6:.0f} MB"


def _raised(text: str) -> list[str]:
    """The lines of a traceback below its last frame: the first of the message, and notes. Of our own errors, the headline."""
    lines = [line.rstrip() for line in text.strip().splitlines() if line.strip()] or [""]
    if headline := next((line for line in lines if line.startswith("error[")), ""):
        return [headline]
    frames = [number for number, line in enumerate(lines) if line.startswith('  File "')]
    below = [line for line in lines[frames[-1] :] if not line.startswith(" ")] if frames else lines[-1:]
    return [below[0], *(line for line in below[1:] if line.startswith("in env "))] if below else lines[-1:]
