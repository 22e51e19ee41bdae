"""The reports of all workers of a run, added up: totals, means, rates, rows of the table."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from srl.core.readings import Metric, Reading
from srl.core.types import FOREIGN, BoundEnd, Counts, Waiting
from srl.graph.spec import Graph, Node
from srl.observe.advisor import advise
from srl.observe.figures import EPISODES, Figures
from srl.observe.ledger import Ledger, Ledgers
from srl.observe.metrics import Processors, Rate
from srl.observe.report import Member, Report, StreamRow, WorkerRow, by_role
from srl.workers.messages import ProcessReport, WorkerReport

_OF_REPLAYS = ("rows", "size", "owed")


@dataclass(slots=True)
class _Seen:
    """One worker, as it last reported."""

    report: WorkerReport
    lived: Reading = field(default_factory=Reading)
    """What its earlier incarnations counted."""
    waited: Counter[str] = field(default_factory=Counter)
    busy: Rate = field(default_factory=Rate)
    """Part of the time, lately."""
    process: str = ""


@dataclass(slots=True)
class _Process:
    cores: Rate = field(default_factory=Rate)
    rss: int = 0
    alive: bool = True


@dataclass(frozen=True, slots=True)
class Load:
    """What one process uses."""

    cores: float
    rss: int
    busy: float
    """Part of the time, of its first worker."""
    waits: list[str]


class Totals:
    """Merges each metric by its own rule."""

    def __init__(self, graph: Graph, *, cores: int | None = None) -> None:
        self.graph = graph
        self.restarts: Counter[str] = Counter()
        self.resting = False
        """The run is ending: rates and advice are frozen."""
        self.earlier: Mapping[str, float] = {}
        """Counts of the sessions before this one, by metric."""
        self.callers: Mapping[str, int] = {}
        """Callers of the control plane that were sent away, by reason."""
        self._foreign: Counter[tuple[str, str]] = Counter()
        self._cores = cores or len(os.sched_getaffinity(0))
        self._start = time.monotonic()
        self.figures = Figures()
        self.ends = Ledgers(graph)
        self._workers: dict[str, _Seen] = {}
        self._processes: dict[str, _Process] = {}
        self._rates: dict[str, Rate] = {}
        self._processors = Processors()
        self._advice = ""

    # in -----------------------------------------------------------------------------------------------------------

    def take(self, process: str, entry: ProcessReport) -> None:
        """One process's part of a report."""
        known = self._processes.setdefault(process, _Process())
        if not known.alive:
            known = self._processes[process] = _Process()
        if not self.resting:
            known.cores.update(entry.cpu, entry.time)
        known.rss = entry.rss
        for name, report in entry.workers.items():
            self._worker(name, report, entry.time)
            self._workers[name].process = process

    def forget(
        self, process: str, workers: Iterable[str], ends: Iterable[BoundEnd], observers: Mapping[str, Collection[str]]
    ) -> None:
        """A process has ended: keep what its workers counted.

        `observers`: each end whose last counts were not reported -> the processes that know of it.
        """
        if process in self._processes:
            self._processes[process].alive = False
        for end in ends:
            seen = self._workers.get(end.worker)
            self._foreign.update(_foreign(end.stream, seen.report.counts.get(end.port)) if seen is not None else {})
            self.ends.forget(end, seen.report.counts if seen is not None else {}, observers.get(end.name))
        for name in workers:
            if (seen := self._workers.get(name)) is not None:
                kept = Reading()
                for key, metric in seen.report.reading.metrics.items():
                    if metric.rule in ("min", "max"):
                        kept.metrics[key] = metric
                    elif metric.rule in ("count", "time", "spread"):
                        seen.lived.merge(Reading({key: metric}))
                seen.report = WorkerReport(kept, 0.0, (), seen.report.finished, {})

    # out ----------------------------------------------------------------------------------------------------------

    @property
    def elapsed(self) -> float:
        return time.monotonic() - self._start

    def total(self, name: str) -> float:
        """A metric merged over all workers and incarnations; 0 while there is none."""
        metric = self._merged(name)
        return metric.value if metric is not None else 0.0

    @property
    def refused(self) -> dict[str, dict[str, int]]:
        """Who or what was sent away: `control plane` or a stream -> reason -> how often."""
        found = Counter(self._foreign)
        for stream in self.graph.streams:
            for _, counts in self._counts(stream.name):
                found.update(_foreign(stream.name, counts))
        places: dict[str, dict[str, int]] = {"control plane": dict(self.callers)} if self.callers else {}
        for (name, reason), number in sorted(found.items()):
            places.setdefault(name, {})[reason] = number
        return places

    def who(self, name: str) -> list[str]:
        """The workers that have counted something under this name."""
        return [worker for worker, seen in self._workers.items() if seen.report.reading[name]]

    @property
    def env_steps(self) -> int:
        """Valid rows trained on; rows stepped in a run without a trainer."""
        return int(self.total("trained_steps" if self.ends.trains else "env_steps"))

    @property
    def progress(self) -> float:
        """A number that changes whenever a worker does anything: a live process may still be stuck."""
        readings = [reading for seen in self._workers.values() for reading in (seen.report.reading, seen.lived)]
        done = sum(sum(reading.shown("count", "min", "max", "time").values()) for reading in readings)
        return done + sum(c.put + c.taken for seen in self._workers.values() for c in seen.report.counts.values())

    @property
    def episode_return(self) -> float | None:
        """Mean over the last 100 episodes (of the first team); None before as many have ended."""
        first = next(iter(self.figures.returns()), None)
        return None if first is None else self.episode_returns.get(first)

    @property
    def episode_returns(self) -> dict[str, float]:
        """The same by team; the team of a single agent is ``""``."""
        return self.figures.returns(least=EPISODES)

    @property
    def finished(self) -> bool:
        """Some worker has finished its task: a trainer then gives no more credit, so the others cannot continue."""
        return any(seen.report.finished for seen in self._workers.values())

    def rss(self, process: str) -> int:
        """Bytes resident in a live process, when it last reported."""
        known = self._processes.get(process)
        return known.rss if known is not None and known.alive else 0

    def load(self, process: str) -> Load:
        """What a process uses now, and what the worker does that it is named after."""
        known, seen = self._processes.get(process), self._workers.get(process)
        busy, waits = (seen.busy.value, [one.what for one in seen.report.waits]) if seen is not None else (0.0, [])
        if known is None or not known.alive:
            return Load(0.0, 0, busy, waits)
        return Load(known.cores.value, known.rss, busy, waits)

    def waits(self) -> dict[str, tuple[Waiting, ...]]:
        """Worker -> what it waits for."""
        return {name: seen.report.waits for name, seen in self._workers.items() if seen.report.waits}

    def report(self) -> Report:
        """A report for the sinks. Means and evaluations are reset."""
        now = time.monotonic()
        stop = self.graph.stop
        fraction = self.elapsed / stop.seconds if stop.seconds and not stop.env_steps else None
        if stop.updates and not stop.env_steps:
            fraction = max(fraction or 0.0, self.total("progress"))
        figures, headline = self.figures, self.figures.headline
        lately, recent, evaluated = figures.lately(), figures.recent(), figures.evaluations()
        report = Report(
            experiment=self.graph.name,
            elapsed=self.elapsed,
            env_steps=self.env_steps,
            target=stop.env_steps,
            fraction=fraction,
            update=int(self.total("updates")),
            env_rate=self._rate("env_steps", now),
            agent_rate=self._rate("trained_rows", now),
            policy_rates={
                policy: self._rate(f"trained_rows/{policy}", now)
                for policy in self.graph.policies
                if self._merged(f"trained_rows/{policy}") is not None
            },
            train_rate=self._rate("trained_steps", now),
            update_rate=self._rate("optimizer_steps", now),
            frame_rate=self._rate("frames", now),
            replay={name: self.total(f"replay/{name}") for name in _OF_REPLAYS if self._merged(f"replay/{name}") is not None},
            lag={name.removeprefix("lag/"): value for name, value in figures.last.items() if name.startswith("lag/")},
            returns=figures.returns(),
            stats={name: recent[f"episode/{name}"] for name in headline if f"episode/{name}" in recent},
            training=figures.training(),
            evaluation=figures.evaluation(),
            episodes=int(self.total("episodes")),
            episode_length=recent.get("episode/length"),
            cores=self._cores,
            idle=self._processors.idle(now),
            workers=tuple(self._worker_row(node) for node in self.graph.nodes),
            members=tuple(self._member(name, seen) for name, seen in sorted(self._workers.items())),
            streams=tuple(self._stream_row(stream.name, now) for stream in self.graph.streams),
            charted=frozenset(name for one in evaluated for name in one.values if figures.followed(name)),
            evaluated=evaluated,
        )
        if rows := report.agent_rate or report.train_rate:
            report = replace(report, replay_ratio=report.frame_rate / rows)
        if not self.resting:
            self._advice = advise(report)
        rates = {"rate/env": report.env_rate, "rate/train": report.train_rate}
        rates |= {"rate/updates": report.update_rate, "rate/frames": report.frame_rate, "replay_ratio": report.replay_ratio}
        rates |= {f"rate/train/{policy}": rate for policy, rate in report.policy_rates.items()}
        if report.idle is not None:
            rates["cores_idle"] = report.idle
        refused = {f"refused/{place}": float(sum(reasons.values())) for place, reasons in self.refused.items()}
        lost = {f"lost/{row.name}/{reason}": part for row in report.streams for reason, part in row.lost.items()}
        return replace(
            report,
            advice=self._advice,
            metrics={
                **self._merged_figures(),
                **lately,
                **recent,
                **rates,
                **_load(report.workers, "cpu", "rss"),
                **lost,
                **refused,
            },
            charts={
                **lately,
                **{name: mean for name, mean in recent.items() if figures.followed(name)},
                **rates,
                **_load(by_role(report.workers), "cores", "memory"),
                **lost,
            },
        )

    def ledgers(self) -> list[Ledger]:
        """The ledger of each sample stream."""
        return [self._ledger(stream.name) for stream in self.graph.streams if stream.kind == "sample"]

    # inside -------------------------------------------------------------------------------------------------------

    def _worker(self, name: str, report: WorkerReport, now: float) -> None:
        seen = self._workers.setdefault(name, _Seen(report))
        if not self.resting:
            seen.busy.update(report.busy, now)
            seen.waited.update(waiting.what for waiting in report.waits)
        seen.report = report
        for key, metric in report.reading.metrics.items():
            self.figures.take(key, metric)

    def _merged(self, name: str) -> Metric | None:
        """Over all workers; counts and extremes also over the dead ones, counts also over earlier sessions."""
        merged: Metric | None = None
        for seen in self._workers.values():
            for reading in (seen.lived, seen.report.reading):
                metric = reading.metrics.get(name)
                if metric is None:
                    continue
                if merged is None:
                    merged = replace(metric)
                else:
                    merged.merge(metric)
        if merged is not None and merged.rule == "count":
            merged.value += self.earlier.get(name, 0.0)
        return merged

    def _merged_figures(self) -> dict[str, float]:
        """Totals and extremes."""
        values = {}
        for name in sorted({name for seen in self._workers.values() for name in (*seen.report.reading, *seen.lived)}):
            metric = self._merged(name)
            if metric is not None and metric.rule in ("count", "gauge", "min", "max"):
                values[f"total/{name}"] = metric.value
            elif metric is not None and metric.rule == "spread":
                values |= {
                    f"{name}_min": metric.low,
                    f"{name}_mean": self.figures.last.get(name, 0.0),
                    f"{name}_max": metric.high,
                }
        return values

    def _worker_row(self, node: Node) -> WorkerRow:
        names = [name for index in range(node.count) if (name := f"{node.name}/{index}") in self._workers]
        members = [self._workers[name] for name in names]
        processes = [self._processes[name] for name in names if name in self._processes]
        alive = [process for process in processes if process.alive]
        shown = alive or (processes if self.resting else [])
        waited: Counter[str] = sum((seen.waited for seen in members), Counter())
        busy = min(1.0, sum(seen.busy.value for seen in members) / len(members)) if members else 0.0
        spent: Counter[str] = Counter()
        for seen in members:
            spent.update({key: metric.value for key, metric in seen.report.reading.metrics.items() if metric.rule == "time"})
        host = self.graph.node(node.inside) if node.inside is not None else node
        host = self.graph.nodes[0] if self.graph.mode == "inline" else host
        whole = sum(seen.report.busy for seen in members)
        return WorkerRow(
            kind=node.name,
            role=node.worker,
            count=node.count,
            busy=busy,
            cpu=sum(process.cores.value for process in shown),
            rss=sum(process.rss for process in shown),
            inside=host.worker if host is not node else "",
            over=not alive,
            waits={what: (1 - busy) * number / waited.total() for what, number in waited.most_common(3)},
            shares={activity: min(1.0, seconds / whole) for activity, seconds in spent.items() if whole and seconds},
            restarts=self.restarts[node.name],
        )

    def _member(self, name: str, seen: _Seen) -> Member:
        process = self._processes[seen.process]
        return Member(
            name=name,
            process=seen.process,
            alive=process.alive,
            busy=min(1.0, seen.busy.value),
            cpu=process.cores.value,
            rss=process.rss,
            waits={waiting.what: waiting.workers for waiting in seen.report.waits},
        )

    def _stream_row(self, name: str, now: float) -> StreamRow:
        stream = self.graph.stream(name)
        counts = [c for _, c in self._counts(name)]
        put = sum(c.put for c in counts)
        ledger = self._ledger(name)
        lag = self._merged(f"stream/{name}/staleness")
        return StreamRow(
            name=name,
            kind=stream.kind,
            items=self._speed(f"{name}/items", put, now),
            bytes=self._speed(f"{name}/bytes", sum(c.bytes for c in counts if c.put), now),
            queue=max(0, min(ledger.in_flight, ledger.slots)) if stream.kind == "sample" else 0,  # both ends report in turn
            slots=ledger.slots,
            staleness=(lag.low, self.figures.last.get(f"stream/{name}/staleness", 0.0), lag.high) if lag is not None else None,
            drops=dict(ledger.dropped),
            put=ledger.put if stream.kind == "sample" else put,
        )

    def _counts(self, stream: str) -> Iterable[tuple[str, Counts]]:
        """Worker -> what its live end of this stream counted."""
        for worker, seen in self._workers.items():
            for port, counts in seen.report.counts.items():
                if self.graph.node(worker.rpartition("/")[0]).ports[port] == stream:
                    yield worker, counts

    def _ledger(self, name: str) -> Ledger:
        return self.ends.of(name, self._counts(name))

    def _rate(self, name: str, now: float) -> float:
        """Of a metric; 0 until a worker has reported it."""
        metric = self._merged(name)
        return self._speed(name, metric.value, now) if metric is not None else 0.0

    def _speed(self, name: str, counter: float, now: float) -> float:
        rate = self._rates.setdefault(name, Rate(level=True))
        return rate.value if self.resting else rate.update(counter, now)


def _foreign(stream: str, counts: Counts | None) -> dict[tuple[str, str], int]:
    """What came to an end from no peer of it."""
    known = counts.dropped if counts is not None else {}
    return {(stream, words): known[reason] for reason, words in FOREIGN.items() if known.get(reason, 0) > 0}


def _load(rows: Iterable[WorkerRow], cpu: str, rss: str) -> dict[str, float]:
    """How busy workers are, what they wait for and, while they live, what they use."""
    values = {}
    for row in rows:
        values[f"busy/{row.kind}"] = row.busy
        values |= {f"waits/{row.kind}/{what}": part for what, part in row.waits.items()}
        if row.rss and not row.over:
            values |= {f"{cpu}/{row.kind}": row.cpu, f"{rss}/{row.kind}": float(row.rss)}
    return values
