"""Advice in one line: what limits a run, and what could be changed."""

from __future__ import annotations

from collections.abc import Mapping

from srl.core.registry import REGISTRIES
from srl.observe.report import Report, WorkerRow, by_role
from srl.workers.base import Worker

BUSY = 0.85  # a kind of worker that works this part of its time is the limit
FULL = 0.95  # from this part of the usable cores on, none is free
FOREIGN = 0.25  # from this part of the usable cores on, other programs are named
LOSSY = 0.05  # the loss of this part of a stream's records is worth a word
SLOW = "env/slow/"
"""Begins the metric of a copy that is much slower than the others."""
_MEANT = ("stop", "barrier")  # what is dropped for these reasons is no loss


def advise(report: Report) -> str:
    """What limits this run; empty while there is nothing to judge by."""
    rows = [row for row in by_role(report.workers) if _kind(row).advice is not None]
    if not rows or not any(row.busy or row.waits for row in rows):
        return ""
    own, cores = sum(_cores(row) for row in by_role(report.workers)), report.cores
    others = 0.0 if report.idle is None else max(0.0, cores - own - report.idle)
    free = max(0.0, cores - own - others)
    room = f"{free:.1f} cores are free" if free >= max(0.5, (1 - FULL) * cores) else "no core is free"
    if others >= FOREIGN * cores:
        room += f" (other programs use {others:.1f} of {cores})"
    limits = [row for row in rows if row.busy >= BUSY]
    if others > own and "no core" in room:
        text = f"the machine is the limit: other programs use {others:.1f} of {cores} cores, this run {own:.1f}"
    elif limits:
        text = _limit(max(limits, key=lambda row: row.busy), room, from_replay=bool(report.replay))
    elif free <= (1 - FULL) * cores:
        text = _crowded(report, own, others)
    else:
        text = _waiting(rows, room, from_replay=bool(report.replay))
    return text + _slow(report) + _losses(report)


def _limit(row: WorkerRow, room: str, *, from_replay: bool) -> str:
    """`actors are the limit: CPU-bound 99 %; env step is 71 % of actor time; no core is free: try a faster env`"""
    kind, role = _kind(row), row.role or row.kind
    parts = [f"{'CPU-bound' if row.cpu >= 0.8 * row.busy * row.count else 'busy'} {100 * row.busy:.0f} %"]
    if row.shares:
        what, share = _largest(row.shares)
        parts.append(f"{what} is {100 * share:.0f} % of {role} time")
    more, less = kind.advice or ("", "")
    if from_replay and role == "trainer":
        less = "a smaller replay.updates_per_step"
    parts.append(f"{room}: try {less if room.startswith('no') else more}")
    subject = f"the {kind.noun} is" if row.count == 1 else f"{kind.noun}s are"
    return f"{subject} the limit: {'; '.join(parts)}"


def _crowded(report: Report, own: float, others: float) -> str:
    users = [f"{row.kind} {row.cpu:.1f}" for row in sorted(by_role(report.workers), key=lambda row: -row.cpu)[:2]]
    users += [f"other programs {others:.1f}"] if others >= FOREIGN * report.cores else []
    return f"the cores are the limit: {own + others:.1f} of {report.cores} in use ({', '.join(users)})"


def _waiting(rows: list[WorkerRow], room: str, *, from_replay: bool) -> str:
    waits = []
    for row in rows:
        if row.waits:
            what, part = _largest(row.waits)
            waits.append(f"{row.kind} waits for {what} {100 * part:.0f} %")
    detail = "; ".join(waits) or "; ".join(f"{row.kind} busy {100 * row.busy:.0f} %" for row in rows)
    bound = "a larger replay.ahead" if from_replay else "a higher staleness.max"
    hint = room if room.startswith("no") else f"try more groups per actor or {bound}"
    return f"no worker is saturated: {detail}; {hint}"


def _slow(report: Report) -> str:
    """The slowest copy of an env, if there is one that others wait for."""
    found = {name: ratio for name, ratio in report.metrics.items() if name.startswith(SLOW)}
    if not found:
        return ""
    name, ratio = _largest(found)
    return f"; env {name.removeprefix(SLOW)} takes {ratio:.0f} times as long as the others"


def _losses(report: Report) -> str:
    for stream in report.streams:
        lost = {reason: number for reason, number in stream.drops.items() if number and reason not in _MEANT}
        if stream.put and sum(lost.values()) >= LOSSY * stream.put:
            reason, number = _largest(lost)
            return f"; {stream.name} lost {100 * sum(lost.values()) / stream.put:.0f} % of its records ({reason} {number:,})"
    return ""


def _largest(parts: Mapping[str, float]) -> tuple[str, float]:
    return max(parts.items(), key=lambda item: item[1])


def _cores(row: WorkerRow) -> float:
    """Cores in use; workers that have not been measured yet use as many as they are busy."""
    return 0.0 if row.inside else row.cpu or row.busy * row.count


def _kind(row: WorkerRow) -> type[Worker]:
    kind: type[Worker] = REGISTRIES["worker"].resolve(row.role)
    return kind
