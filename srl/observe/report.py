"""What the controller knows about a run at one moment: plain data that the table, the log and the advisor read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerRow:
    """All workers of one node, added up."""

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
    over: bool = False
    """No process of theirs is alive: `cpu` and `rss` are the last known."""
    waits: Mapping[str, float] = field(default_factory=dict)
    """Part of the time spent waiting, by what for: {"credit": 0.3}."""
    shares: Mapping[str, float] = field(default_factory=dict)
    """Part of the busy time, by what was done: {"env step": 0.71}."""
    restarts: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamRow:
    """One stream, both ends."""

    name: str
    kind: str = "sample"
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
    """Rows trained a second, epochs not counted."""
    returns: Mapping[str, float] = field(default_factory=dict)
    """Mean return by team; the team of a single agent is ``""``."""
    stats: Mapping[str, float] = field(default_factory=dict)
    """Means of what the env's headline names, and of its first at the last evaluation against initial policies."""
    episodes: int = 0
    episode_length: float | None = None
    best: float | None = None
    """Best evaluation so far."""
    cores: int = 1
    """Usable cores of all hosts."""
    workers: tuple[WorkerRow, ...] = ()
    streams: tuple[StreamRow, ...] = ()
    advice: str = ""

    @property
    def progress(self) -> float | None:
        """0..1, or None for a run without an end."""
        if self.fraction is not None:
            return min(1.0, max(0.0, self.fraction))
        return min(1.0, self.env_steps / self.target) if self.target else None

    @property
    def eta(self) -> float | None:
        """Seconds to go at the present rate, or None."""
        if self.target and self.env_rate > 0:
            return max(0.0, (self.target - self.env_steps) / self.env_rate)
        progress = self.progress
        return self.elapsed * (1 - progress) / progress if progress else None
