"""Metrics of workers. Each metric carries the rule by which its values are merged over time and over workers.

count     adds up over workers and restarts           env steps, episodes
gauge     the state now, added up over live workers   records held
min, max  where a worker is, compared over workers    updates, version
mean      of the values since the last report         loss, entropy
spread    mean since the last report, extremes of     staleness
          the whole run
episode   of the last 100 episodes                    return
point     measured at an env step of its own          evaluation
time      what busy time was spent on, in seconds     env step
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias

Rule: TypeAlias = Literal["count", "gauge", "min", "max", "mean", "spread", "episode", "point", "time"]

_FLOW = ("mean", "spread", "episode", "point")
"""Sent once: their values are reset with every report."""

TRAIN = "train/"
"""Begins the names of what an algorithm reports: `train/loss`, `train/POLICY/loss` where several learn."""

RETURN = "episode/return"
"""Of a team: `episode/return/TEAM`, where there are several."""


@dataclass(slots=True)
class Metric:
    """One value, or the sum of several."""

    rule: Rule
    value: float = 0.0
    number: float = 0.0
    """How many values `value` is the sum of; of a point: the env step it was measured at."""
    low: float = 0.0
    """Smallest of a spread; updates of a point."""
    high: float = 0.0
    """Largest of a spread."""

    @property
    def shown(self) -> float | None:
        """The figure itself; None if there are no values yet."""
        if self.rule in ("mean", "spread", "episode"):
            return self.value / self.number if self.number else None
        return self.value

    def merge(self, other: Metric) -> None:
        """Add what another worker, or the same one later, has measured."""
        if self.rule == "min":
            self.value = min(self.value, other.value)
        elif self.rule == "max":
            self.value = max(self.value, other.value)
        elif self.rule == "point":
            self.value, self.number, self.low = other.value, other.number, other.low
        else:
            self.value += other.value
            self.number += other.number
            if self.rule == "spread":
                self.low, self.high = min(self.low, other.low), max(self.high, other.high)

    def to_plain(self) -> list[Any]:
        """`[rule, value, ...]`, without numpy scalars and without what the rule does not use."""
        data = [self.rule, float(self.value)]
        if self.rule in _FLOW:
            data.append(float(self.number))
        return [*data, float(self.low), float(self.high)] if self.rule in ("spread", "point") else data


@dataclass(slots=True)
class Reading:
    """The metrics of one worker by name."""

    metrics: dict[str, Metric] = field(default_factory=dict)

    def count(self, name: str, number: float = 1.0) -> None:
        """Let a total grow."""
        self._get(name, "count").value += number

    def gauge(self, name: str, value: float) -> None:
        """The state now; the run's is the sum over its workers."""
        self._get(name, "gauge").value = value

    def minimum(self, name: str, value: float) -> None:
        """Where this worker is; the run is where the last one is."""
        self._get(name, "min").value = value

    def maximum(self, name: str, value: float) -> None:
        """Where this worker is; the run is where the first one is."""
        self._get(name, "max").value = value

    def mean(self, name: str, value: float, number: float = 1.0) -> None:
        """One more value of a mean, or `number` values that add up to `value`."""
        metric = self._get(name, "mean")
        metric.value += value
        metric.number += number

    def episode(self, name: str, value: float, number: float = 1.0) -> None:
        """`number` episodes whose values add up to `value`; shown is the mean of the last 100."""
        metric = self._get(name, "episode")
        metric.value += value
        metric.number += number

    def spread(self, name: str, total: float, number: float, low: float, high: float) -> None:
        """`number` values between `low` and `high` that add up to `total`."""
        self.merge(Reading({name: Metric("spread", total, number, low, high)}))

    def point(self, name: str, value: float, env_steps: int, updates: int) -> None:
        """A value of the version that was trained for so many env steps and updates."""
        self.metrics[name] = Metric("point", value, env_steps, updates)

    def time(self, activity: str, seconds: float) -> None:
        """Seconds of busy time that went into `activity`."""
        self._get(activity, "time").value += seconds

    def merge(self, other: Reading) -> None:
        """Add another worker's reading to this one."""
        for name, metric in other.metrics.items():
            if name in self.metrics:
                self.metrics[name].merge(metric)
            else:
                self.metrics[name] = replace(metric)

    def shown(self, *rules: Rule) -> dict[str, float]:
        """The figures of these rules by name, or all of them."""
        found = ((name, metric.shown) for name, metric in self.metrics.items() if not rules or metric.rule in rules)
        return {name: value for name, value in found if value is not None}

    def __getitem__(self, name: str) -> float:
        """One figure; 0 while nothing has been measured."""
        metric = self.metrics.get(name)
        return (metric.shown or 0.0) if metric is not None else 0.0

    def __iter__(self) -> Iterator[str]:
        return iter(self.metrics)

    def flush(self) -> Reading:
        """The metrics to send now. Means, episodes and points are reset, extremes are kept."""
        sent = Reading()
        for name, metric in list(self.metrics.items()):
            sent.metrics[name] = replace(metric)
            if metric.rule == "spread":
                metric.value = metric.number = 0.0
            elif metric.rule in _FLOW:
                del self.metrics[name]
        return sent

    def follow(self, earlier: Reading) -> None:
        """Take over what is sent only once from an earlier reading that was not passed on."""
        for name, metric in earlier.metrics.items():
            if metric.rule in _FLOW and name not in self.metrics:
                self.metrics[name] = replace(metric)
            elif metric.rule in _FLOW and metric.rule != "point":
                self.metrics[name].merge(metric)

    def to_plain(self) -> dict[str, list[Any]]:
        """The form of a message."""
        return {name: metric.to_plain() for name, metric in self.metrics.items()}

    @classmethod
    def from_plain(cls, data: dict[str, list[Any]]) -> Reading:
        """The reading in a message."""
        return cls({name: Metric(*numbers) for name, numbers in data.items()})

    def _get(self, name: str, rule: Rule) -> Metric:
        metric = self.metrics.get(name)
        if metric is None:
            metric = self.metrics[name] = Metric(rule)
        elif metric.rule != rule:
            raise ValueError(f"metric '{name}' is a {metric.rule} and cannot be a {rule} as well")
        return metric
