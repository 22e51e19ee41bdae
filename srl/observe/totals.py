"""What the controller knows of a run: reports added up into totals, means, rates, rows of the table and ledgers."""

from __future__ import annotations

import os
import re
import time
from collections import Counter, deque
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from srl.core.types import Counts
from srl.graph.spec import Graph, Node
from srl.observe.advisor import advise
from srl.observe.ledger import Ledger, Side
from srl.observe.metrics import Rate
from srl.observe.report import Report, StreamRow, WorkerRow
from srl.observe.staleness import Staleness
from srl.workers.base import Reading
from srl.workers.reports import WorkerReport, report_from_data

_LEVELS = {
    "updates": min,
    "trained_steps": min,
    "progress": min,
    "staleness_min": min,
    "staleness_max": max,
    "version": max,
    "eval/env_steps": max,
}
"""Totals that say where a worker stands: over workers they are compared, not added, and a restarted one stands there again."""

_SHARES = {"time/env": "env step", "time/infer": "inference", "time/train": "training"}
_RETURN = "episode/return"
EPISODES = 100


@dataclass(slots=True)
class _Seen:
    """One worker, as it last reported."""

    report: WorkerReport
    lived: Reading = field(default_factory=Reading)
    """Totals of its earlier incarnations."""
    waited: Counter[str] = field(default_factory=Counter)
    busy: Rate = field(default_factory=Rate)
    """Part of the time, lately."""


@dataclass(slots=True)
class _Process:
    cores: Rate = field(default_factory=Rate)
    rss: int = 0


@dataclass(frozen=True, slots=True)
class _End:
    """One end of a sample stream."""

    side: Side
    port: str
    slots: int


@dataclass(slots=True)
class _Gone:
    """One end of an incarnation that is over."""

    name: str
    side: Side
    slots: int
    reported: Counts
    uncounted: bool
    """Its last report came some time before its end."""
    unheard: set[str]
    """Processes that have not yet said what they know of it."""
    known: Counts = field(default_factory=Counts)
    """What the survivors know, added up."""

    @property
    def counts(self) -> Counts:
        """The later of both."""
        told, known = self.reported, self.known
        dropped = {
            reason: max(told.dropped.get(reason, 0), known.dropped.get(reason, 0)) for reason in told.dropped | known.dropped
        }
        discarded = sum(told.dropped.values()) if self.side == "consumer" else 0  # the others saw them taken
        return Counts(
            max(told.put, known.put), max(told.taken, known.taken - discarded), max(told.released, known.released), 0, dropped
        )


class Totals:
    """Adds up reports."""

    def __init__(self, graph: Graph, *, cores: int | None = None) -> None:
        self.graph = graph
        self.means: dict[str, tuple[float, float]] = {}
        """Since the last `row`."""
        self.restarts: Counter[str] = Counter()
        self.headline: tuple[str, ...] = ()
        """Statistics of the env that the table shows."""
        self.resting = False
        """The run comes to its end: what limits it is judged no more."""
        self._cores = cores or len(os.sched_getaffinity(0))
        self._start = time.monotonic()
        self._workers: dict[str, _Seen] = {}
        self._processes: dict[str, _Process] = {}
        self._returns: dict[str, deque[tuple[float, float]]] = {}
        self._lengths: deque[tuple[float, float]] = deque()
        self._stats: dict[str, deque[tuple[float, float]]] = {}
        self._crossed: dict[str, float] = {}
        self._rates: dict[str, Rate] = {}
        self._gone: dict[str, list[_Gone]] = {}
        self._staleness = Staleness()
        self._advice = ""
        self._trains = False
        self._sides: dict[str, _End] = {}

    # in -----------------------------------------------------------------------------------------------------------

    def bound(self, end: str, port: str, side: str, slots: int) -> None:
        """An end (`stream:worker`) is open."""
        self._trains |= side in ("publisher", "consumer")
        if side in ("producer", "consumer"):
            self._sides[end] = _End("producer" if side == "producer" else "consumer", port, slots)

    def take(self, process: str, entry: Mapping[str, Any]) -> None:
        """One process's part of a report."""
        known = self._processes.setdefault(process, _Process())
        known.cores.update(entry["cpu"], entry["time"])
        known.rss = entry["rss"]
        for name, data in entry["workers"].items():
            self._worker(name, report_from_data(data), entry["time"])

    def forget(self, process: str, workers: Iterable[str], ends: Iterable[str], witnesses: Mapping[str, Collection[str]]) -> None:
        """A process has ended: what its workers counted stays, its incarnation is over.

        `witnesses`: each end whose last counts were not reported -> the processes that know of it.
        """
        self._processes.pop(process, None)
        for end in ends:
            if about := self._sides.get(end):
                stream, _, worker = end.partition(":")
                reported = self._workers[worker].report.counts.get(about.port) if worker in self._workers else None
                gone = _Gone(
                    name=end,
                    side=about.side,
                    slots=about.slots,
                    reported=reported or Counts(),
                    uncounted=end in witnesses,
                    unheard=set(witnesses.get(end, ())),
                )
                self._gone.setdefault(stream, []).append(gone)
        for name in workers:
            seen = self._workers.get(name)
            if seen is None:
                continue
            for key, value in seen.report.reading.totals.items():
                if key not in _LEVELS:
                    seen.lived.count(key, value)
            levels = {key: value for key, value in seen.report.reading.totals.items() if key in _LEVELS}
            seen.report = WorkerReport(Reading(levels), 0.0, "", seen.report.finished, {})

    def testify(self, process: str, end: str, counts: Counts) -> None:
        """What one survivor knows of an end that died; its last report may be half a second old."""
        for gone in reversed(self._gone.get(end.partition(":")[0], [])):
            if gone.name == end:
                gone.known.add(counts)
                gone.unheard.discard(process)
                return

    # out ----------------------------------------------------------------------------------------------------------

    @property
    def elapsed(self) -> float:
        return time.monotonic() - self._start

    def total(self, name: str) -> float:
        """A total over all workers and incarnations."""
        values = [
            seen.report.reading.totals.get(name, 0.0) + seen.lived.totals.get(name, 0.0)
            for seen in self._workers.values()
            if name in seen.report.reading.totals or name in seen.lived.totals
        ]
        return _LEVELS.get(name, sum)(values) if values else 0.0

    def who(self, name: str) -> list[str]:
        """The workers that have counted something under this name."""
        return [worker for worker, seen in self._workers.items() if seen.report.reading.totals.get(name)]

    @property
    def env_steps(self) -> int:
        """Valid rows trained on; rows stepped where nobody trains."""
        return int(self.total("trained_steps" if self._trains else "env_steps"))

    @property
    def progress(self) -> float:
        """Changes whenever anybody has done anything: alive is not progressing."""
        totals = sum(sum(s.report.reading.totals.values()) + sum(s.lived.totals.values()) for s in self._workers.values())
        return totals + sum(c.put + c.taken for seen in self._workers.values() for c in seen.report.counts.values())

    @property
    def episode_return(self) -> float | None:
        """Mean over the last 100 episodes (of the first team); None before as many have ended."""
        first = next(iter(self._returns), None)
        return None if first is None else self.episode_returns.get(_team(first))

    @property
    def episode_returns(self) -> dict[str, float]:
        """The same by team; the team of a single agent is ``""``."""
        enough = {name: c for name, c in self._returns.items() if sum(number for _, number in c) >= EPISODES}
        return {_team(name): mean for name, chunks in enough.items() if (mean := _mean(chunks)) is not None}

    @property
    def finished(self) -> bool:
        """Some worker has reached its end: a trainer that has credits no more, so the others could not go on beside it."""
        return any(seen.report.finished for seen in self._workers.values())

    def rss(self, process: str) -> int:
        """Bytes resident in a process that lives, when it last reported."""
        return self._processes[process].rss if process in self._processes else 0

    def waits(self) -> dict[str, str]:
        """Worker -> what it waits for."""
        return {name: seen.report.waits for name, seen in self._workers.items() if seen.report.waits}

    def row(self) -> dict[str, float]:
        """Figures for metrics.jsonl; means start anew."""
        values = {f"total/{name}": self.total(name) for name in self._names() if not name.startswith("time/")}
        values |= {name: value / number for name, (value, number) in self.means.items() if number}
        values |= {name: mean for name, chunks in self._returns.items() if (mean := _mean(chunks)) is not None}
        values |= self._staleness.row()
        self.means = {}
        report = self.report()
        values |= {"rate/env": report.env_rate, "rate/train": report.train_rate}
        values |= {f"rate/train/{policy}": rate for policy, rate in report.policy_rates.items()}
        for row in report.workers:
            values[f"busy/{row.kind}"] = row.busy
            if row.rss:  # it has a process, which lives
                values |= {f"cpu/{row.kind}": row.cpu, f"rss/{row.kind}": float(row.rss)}
        return values

    def report(self) -> Report:
        """This moment, for the table."""
        now = time.monotonic()
        stop = self.graph.stop
        fraction = self.elapsed / stop.seconds if stop.seconds and not stop.env_steps else None
        if stop.updates and not stop.env_steps:
            fraction = max(fraction or 0.0, self.total("progress"))
        report = Report(
            experiment=self.graph.name,
            elapsed=self.elapsed,
            env_steps=self.env_steps,
            target=stop.env_steps,
            fraction=fraction,
            update=int(self.total("updates")),
            env_rate=self._rate("env", self.total("env_steps"), now),
            agent_rate=self._rate("agent", self.total("trained_rows"), now),
            policy_rates={
                _last(name): self._rate(name, self.total(name), now) for name in self._names() if name.startswith("trained_rows/")
            },
            train_rate=self._rate("trained", self.total("trained_steps"), now),
            returns={_team(name): mean for name, c in self._returns.items() if (mean := _mean(c)) is not None},
            stats=self._shown(),
            episodes=int(self.total("episodes")),
            episode_length=_mean(self._lengths),
            cores=self._cores,
            workers=tuple(self._worker_row(node) for node in self.graph.nodes),
            streams=tuple(self._stream_row(stream.name, now) for stream in self.graph.streams),
        )
        if not self.resting:
            self._advice = advise(report)
        return replace(report, advice=self._advice)

    def ledgers(self) -> list[Ledger]:
        """What became of everything that was put into each stream."""
        return [self._ledger(stream.name) for stream in self.graph.streams if stream.kind == "sample"]

    # inside -------------------------------------------------------------------------------------------------------

    def _worker(self, name: str, report: WorkerReport, now: float) -> None:
        seen = self._workers.setdefault(name, _Seen(report))
        seen.busy.update(report.busy, now)
        if report.waits:
            seen.waited[_brief(report.waits)] += 1
        seen.report = report
        for port in report.counts:
            stream = self._node(name).ports[port]
            if (end := self._sides.get(f"{stream}:{name}")) and end.side == "consumer":
                self._staleness.take(stream, report.reading)
        for key, (value, number) in report.reading.means.items():
            total, count = self.means.get(key, (0.0, 0.0))
            self.means[key] = (total + value, count + number)
            if key == _RETURN or key.startswith(f"{_RETURN}/"):
                _push(self._returns.setdefault(key, deque()), value, number)
            elif key == "episode/length":
                _push(self._lengths, value, number)
            elif key.removeprefix("episode/") in self.headline:
                _push(self._stats.setdefault(key.removeprefix("episode/"), deque()), value, number)
            elif number and key.startswith("cross/") and key.endswith(f"/{next(iter(self.headline), '')}"):
                self._crossed[key] = value / number

    def _shown(self) -> dict[str, float]:
        means = {name: mean for name in self.headline if (mean := _mean(self._stats.get(name, ()))) is not None}
        return means | self._crossed

    def _names(self) -> list[str]:
        return sorted({key for seen in self._workers.values() for key in (*seen.report.reading.totals, *seen.lived.totals)})

    def _node(self, worker: str) -> Node:
        return self.graph.node(worker.rpartition("/")[0])

    def _of(self, node: Node) -> list[tuple[str, _Seen]]:
        names = (f"{node.name}/{index}" for index in range(node.count))
        return [(name, self._workers[name]) for name in names if name in self._workers]

    def _worker_row(self, node: Node) -> WorkerRow:
        members = self._of(node)
        processes = [self._processes[name] for name, _ in members if name in self._processes]
        waited: Counter[str] = sum((seen.waited for _, seen in members), Counter())
        busy = min(1.0, sum(seen.busy.value for _, seen in members) / len(members)) if members else 0.0
        times = {words: sum(s.report.reading.totals.get(key, 0.0) for _, s in members) for key, words in _SHARES.items()}
        whole = sum(seen.report.busy for _, seen in members)
        return WorkerRow(
            kind=node.name,
            role=node.worker,
            count=node.count,
            busy=busy,
            cpu=sum(process.cores.value for process in processes),
            rss=sum(process.rss for process in processes),
            waits={text: (1 - busy) * number / waited.total() for text, number in waited.most_common(3)},
            shares={words: min(1.0, spent / whole) for words, spent in times.items() if whole and spent},
            restarts=self.restarts[node.name],
        )

    def _stream_row(self, name: str, now: float) -> StreamRow:
        stream = self.graph.stream(name)
        counts = [
            c for worker, seen in self._workers.items() for port, c in seen.report.counts.items() if self._on(worker, port, name)
        ]
        put = sum(c.put for c in counts)
        ledger = self._ledger(name)
        return StreamRow(
            name=name,
            kind=stream.kind,
            items=self._rate(f"{name}/items", put, now),
            bytes=self._rate(f"{name}/bytes", sum(c.bytes for c in counts if c.put), now),
            queue=ledger.in_flight if stream.kind == "sample" else 0,
            slots=ledger.slots,
            staleness=self._staleness.of(name),
            drops=dict(ledger.dropped),
            put=ledger.put if stream.kind == "sample" else put,
        )

    def _on(self, worker: str, port: str, stream: str) -> bool:
        return self._node(worker).ports[port] == stream

    def _ledger(self, name: str) -> Ledger:
        """Every end of a sample stream that ever was."""
        stream = self.graph.stream(name)
        ends = {end: about for end, about in self._sides.items() if end.startswith(f"{name}:")}
        copies = sum(end.side == "consumer" for end in ends.values()) if stream.route == "broadcast" else 1
        ledger = Ledger(name, slots=sum(end.slots for end in ends.values()), copies=copies)
        for gone in self._gone.get(name, []):
            ledger.add(gone.side, _plain(gone.counts))
            if gone.unheard or (gone.uncounted and stream.via in ("zmq", "ipc")):  # over zmq nobody else holds its words
                ledger.lose(gone.side, gone.name)
                ledger.slots += gone.slots
        for worker, seen in self._workers.items():
            for port, counts in seen.report.counts.items():
                if self._on(worker, port, name) and (end := f"{name}:{worker}") in ends:
                    ledger.add(ends[end].side, _plain(counts))
        return ledger

    def _rate(self, name: str, counter: float, now: float) -> float:
        rate = self._rates.setdefault(name, Rate())
        return rate.update(counter, now)


def _brief(waits: str) -> str:
    """What for, without who: `samples:actor/1 waits for 1 credits of ...` is `credits`."""
    if waits.startswith("group "):
        return "answers"
    found = re.match(r"\S+:\S+ waits for (?:the |[\d,]+ )?(kept version|\w+)", waits)
    return found[1] if found else waits[:40]


def _last(name: str) -> str:
    return name.rpartition("/")[2]


def _team(name: str) -> str:
    """`episode/return/hider` is the hider's."""
    return name.removeprefix(_RETURN).strip("/")


def _plain(counts: Counts) -> dict[str, Any]:
    return {"put": counts.put, "taken": counts.taken, "released": counts.released, "dropped": counts.dropped}


def _push(chunks: deque[tuple[float, float]], value: float, number: float) -> None:
    """Keep the newest chunks that hold 100 episodes together."""
    if number <= 0:
        return
    chunks.append((value, number))
    held = sum(n for _, n in chunks)
    while held - chunks[0][1] >= EPISODES:
        held -= chunks.popleft()[1]


def _mean(chunks: Iterable[tuple[float, float]]) -> float | None:
    pairs = list(chunks)
    number = sum(n for _, n in pairs)
    return sum(value for value, _ in pairs) / number if number else None
