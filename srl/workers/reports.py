"""What the workers of a process report to the controller, and its form in a message."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from srl.core.readings import Reading
from srl.core.types import Counts, Waiting


@dataclass(slots=True)
class WorkerReport:
    """The report of one worker."""

    reading: Reading
    busy: float
    """Seconds spent in polls that did something, since the start."""
    waits: tuple[Waiting, ...]
    finished: bool
    counts: Mapping[str, Counts]
    """Port -> totals of its end."""


def report_to_data(report: WorkerReport) -> dict[str, Any]:
    """The form of a message."""
    return {
        "reading": report.reading.to_data(),
        "busy": float(report.busy),
        "waits": [[waiting.what, list(waiting.whom)] for waiting in report.waits],
        "finished": bool(report.finished),
        "counts": {port: counts_to_data(counts) for port, counts in report.counts.items()},
    }


def report_from_data(data: Mapping[str, Any]) -> WorkerReport:
    return WorkerReport(
        reading=Reading.from_data(data["reading"]),
        busy=data["busy"],
        waits=tuple(Waiting(str(what), tuple(whom)) for what, whom in data["waits"]),
        finished=data["finished"],
        counts={port: Counts(*numbers) for port, numbers in data["counts"].items()},
    )


def counts_to_data(counts: Counts) -> list[Any]:
    dropped = {str(reason): int(number) for reason, number in counts.dropped.items()}
    return [int(counts.put), int(counts.taken), int(counts.released), int(counts.bytes), dropped]
