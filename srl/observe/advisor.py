"""One line in words: what limits a run and what could be changed."""

from __future__ import annotations

from collections.abc import Mapping

from srl.observe.report import Report, WorkerRow

BUSY = 0.85
"""A worker kind that works this part of its time is the limit."""

FULL = 0.95
"""Cores in use, as a part of the usable ones, from which on none is free."""

LOSSY = 0.05
"""Part of the records of a stream whose loss is worth a word."""

_MEANT = ("stop", "barrier")
"""What is dropped for these reasons is no loss."""

_NOUNS = {"actor": "actors are", "policy": "inference is", "trainer": "the trainer is", "buffer": "the buffer is"}

_HINTS = {
    "actor": ("more actors", "a faster env or a vectorised one"),
    "policy": ("more policy workers or a larger max_batch", "a smaller network"),
    "trainer": ("more threads for the trainer", "fewer epochs or larger minibatches"),
    "buffer": ("a second buffer", "smaller records"),
}


def advise(report: Report) -> str:
    """What limits this run; empty while there is nothing to judge by."""
    rows = [row for row in report.workers if _role(row) in _NOUNS and row.count]
    if not rows or not any(row.busy or row.waits for row in rows):
        return ""
    limits = [row for row in rows if row.busy >= BUSY]
    free = report.cores - sum(_cores(row) for row in report.workers)
    if limits:
        text = _limit(max(limits, key=lambda row: row.busy), free, report.cores)
    elif free <= (1 - FULL) * report.cores:
        text = _crowded(report)
    else:
        text = _waiting(rows, free)
    return text + _losses(report)


def _limit(row: WorkerRow, free: float, cores: int) -> str:
    """`actors are the limit: CPU-bound 99 %; env step is 71 % of actor time; no core is free`"""
    role = _role(row)
    parts = [f"{'CPU-bound' if row.cpu >= 0.8 * row.busy * row.count else 'busy'} {100 * row.busy:.0f} %"]
    if row.shares:
        what, share = _largest(row.shares)
        parts.append(f"{what} is {100 * share:.0f} % of {role} time")
    more, less = _HINTS[role]
    if free >= max(0.5, (1 - FULL) * cores):
        parts.append(f"{free:.1f} cores are free: try {more}")
    else:
        parts.append(f"no core is free: try {less}")
    return f"{_NOUNS[role]} the limit: {'; '.join(parts)}"


def _crowded(report: Report) -> str:
    users = sorted(report.workers, key=lambda row: -row.cpu)[:2]
    names = " and ".join(f"{row.kind} {row.cpu:.1f}" for row in users)
    return f"the cores are the limit: {sum(row.cpu for row in report.workers):.1f} of {report.cores} in use ({names})"


def _waiting(rows: list[WorkerRow], free: float) -> str:
    waits = []
    for row in rows:
        if row.waits:
            what, part = _largest(row.waits)
            waits.append(f"{row.kind} waits for {what} {100 * part:.0f} %")
    detail = "; ".join(waits) or "; ".join(f"{row.kind} busy {100 * row.busy:.0f} %" for row in rows)
    hint = "more groups per actor or a higher staleness.max would overlap them" if free >= 0.5 else "no core is free"
    return f"nobody is busy all the time, they wait for each other: {detail}; {hint}"


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
    """Cores in use; who works and has not been measured yet (0) uses as many as it works."""
    return row.cpu or row.busy * row.count


def _role(row: WorkerRow) -> str:
    return row.role or row.kind.rstrip("s")
