"""Reports: the state of a run at one moment, as plain data for sinks and the advisor."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

Lines: TypeAlias = Iterable[tuple[str, str]]
"""(label, text), as a plan has them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerRow:
    """All workers of one node, or of one kind, added up."""

    kind: str
    """The node's name: actor, trainer, policy, hider_policy ..."""
    role: str = ""
    """What it does (actor, policy, trainer, buffer, evaluator); empty: what its name says."""
    count: int = 1
    busy: float = 0.0
    """0..1: part of the time in which `poll` did work, mean over the workers."""
    cpu: float = 0.0
    """Cores that all of them use together."""
    rss: int = 0
    """Bytes resident, all together."""
    inside: str = ""
    """The role in whose processes they are; empty: they have processes of their own."""
    over: bool = False
    """No process of theirs is alive: `cpu` and `rss` are the last known."""
    waits: Mapping[str, float] = field(default_factory=dict)
    """Part of the time spent waiting, by what for: {"credit": 0.3}."""
    shares: Mapping[str, float] = field(default_factory=dict)
    """Part of the busy time, by what was done: {"env step": 0.71}."""
    restarts: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One worker."""

    name: str
    """`actor/0`"""
    process: str
    """Named after the worker that the others are inside of; `cpu` and `rss` are those of the process."""
    alive: bool = True
    busy: float = 0.0
    cpu: float = 0.0
    rss: int = 0
    waits: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """What it waits for now, and from which workers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamRow:
    """One stream, both ends, or all streams of one kind."""

    name: str
    kind: str = "sample"
    count: int = 1
    items: float = 0.0
    """Per second."""
    bytes: float = 0.0
    """Per second."""
    queue: float = 0.0
    """Records that wait now."""
    slots: int = 0
    """Records that may wait; 0 if unbounded."""
    staleness: tuple[float, float, float] | None = None
    """Smallest, mean and largest, in updates."""
    drops: Mapping[str, int] = field(default_factory=dict)
    """Since the start, by reason."""
    put: int = 0
    """Since the start."""

    @property
    def lost(self) -> dict[str, float]:
        """Fraction of the records put that were dropped, by reason."""
        return {reason: number / self.put for reason, number in self.drops.items() if number and self.put}


@dataclass(frozen=True, slots=True)
class Evaluation:
    """What was measured of one version of the policies."""

    env_steps: int
    """That it was trained for."""
    update: int
    values: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """One moment of a run."""

    experiment: str
    elapsed: float
    """Seconds since the start."""
    env_steps: int
    target: int | None = None
    """Env steps at which the run stops, if it does."""
    fraction: float | None = None
    """0..1: progress, where something else than env steps decides; else computed."""
    update: int = 0
    env_rate: float = 0.0
    """Env steps a second."""
    agent_rate: float = 0.0
    """Agent steps a second (several agents an env step)."""
    policy_rates: Mapping[str, float] = field(default_factory=dict)
    """The same of each policy, where several learn."""
    train_rate: float = 0.0
    """Env steps a second that the learner could read: on-policy in the batches trained, else in a replay. Epochs do not count."""
    update_rate: float = 0.0
    """Steps of the optimizer a second."""
    frame_rate: float = 0.0
    """Rows a second that went through these steps: batch x updates."""
    replay_ratio: float = 0.0
    """Frames for every row that the learner could read: epochs on-policy, updates per step x batch from a replay."""
    lag: Mapping[str, float] = field(default_factory=dict)
    """Of the policy that recorded the rows trained on: `updates` and `ms`, of each the mean and `_p99`."""
    replay: Mapping[str, float] = field(default_factory=dict)
    """Of all replays: `rows` of `size`, and the updates that are `owed` to the env steps that came in."""
    returns: Mapping[str, float] = field(default_factory=dict)
    """Mean return of the last 100 episodes by team; the team of a single agent is ``""``."""
    stats: Mapping[str, float] = field(default_factory=dict)
    """Means of what the env's headline names."""
    training: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """What the algorithm reported last (loss, entropy, KL), by policy; the only one is ``""``."""
    evaluation: Evaluation | None = None
    """The last one: its returns, and the first of the env's headline."""
    episodes: int = 0
    episode_length: float | None = None
    cores: int = 1
    """Cores of this machine that the run may use."""
    idle: float | None = None
    """Idle cores among them; None: unknown."""
    workers: tuple[WorkerRow, ...] = ()
    members: tuple[Member, ...] = ()
    """The same workers, one by one."""
    streams: tuple[StreamRow, ...] = ()
    advice: str = ""
    metrics: Mapping[str, float] = field(default_factory=dict)
    """Every figure by name; means are those since the last report."""
    charts: Mapping[str, float] = field(default_factory=dict)
    """The figures worth a chart, by name."""
    evaluated: tuple[Evaluation, ...] = ()
    """All evaluations since the last report."""
    charted: frozenset[str] = frozenset()
    """Names of those in `evaluated` that are worth a chart."""

    @property
    def progress(self) -> float | None:
        """0..1, or None for a run without an end."""
        if self.fraction is not None:
            return min(1.0, max(0.0, self.fraction))
        return min(1.0, self.env_steps / self.target) if self.target else None

    @property
    def eta(self) -> float | None:
        """Seconds to go at the present rate, or None."""
        if self.target and (rate := self.train_rate or self.env_rate):
            return max(0.0, (self.target - self.env_steps) / rate)
        progress = self.progress
        return self.elapsed * (1 - progress) / progress if progress else None


def by_role(rows: Iterable[WorkerRow]) -> list[WorkerRow]:
    """One row for each kind of worker."""
    groups: dict[str, list[WorkerRow]] = {}
    for row in rows:
        own = not row.role or ":" in row.role  # a path: the name of the node says more
        groups.setdefault(row.kind if own else row.role, []).append(row)
    return [_joined(role, members) for role, members in groups.items()]


def by_kind(rows: Iterable[StreamRow]) -> list[StreamRow]:
    """One row for each kind of stream."""
    groups: dict[str, list[StreamRow]] = {}
    for row in rows:
        groups.setdefault(row.kind, []).append(row)
    return [_joined_streams(kind, members) for kind, members in groups.items()]


def _joined(role: str, rows: list[WorkerRow]) -> WorkerRow:
    count = sum(row.count for row in rows)
    own = [row for row in rows if not row.inside]

    def mean(values: Iterable[Mapping[str, float]]) -> dict[str, float]:
        summed: defaultdict[str, float] = defaultdict(float)
        for row, parts in zip(rows, values, strict=True):
            for name, part in parts.items():
                summed[name] += part * row.count / count
        return summed

    return WorkerRow(
        kind=role,
        role=rows[0].role,
        count=count,
        busy=sum(row.busy * row.count for row in rows) / count,
        cpu=sum(row.cpu for row in own),
        rss=sum(row.rss for row in own),
        inside="" if own else rows[0].inside,
        over=all(row.over for row in own),
        waits=mean(row.waits for row in rows),
        shares=mean(row.shares for row in rows),
        restarts=sum(row.restarts for row in rows),
    )


def _joined_streams(kind: str, rows: list[StreamRow]) -> StreamRow:
    lags = [row.staleness for row in rows if row.staleness is not None]
    lows, means, highs = zip(*lags, strict=True) if lags else ((), (), ())
    return StreamRow(
        name=kind,
        kind=kind,
        count=len(rows),
        items=sum(row.items for row in rows),
        bytes=sum(row.bytes for row in rows),
        queue=sum(row.queue for row in rows),
        slots=sum(row.slots for row in rows),
        staleness=(min(lows), sum(means) / len(means), max(highs)) if lags else None,
        drops=sum((Counter(row.drops) for row in rows), Counter()),
        put=sum(row.put for row in rows),
    )
