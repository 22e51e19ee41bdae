"""Figures that workers report only once: means, episodes and evaluations."""

from __future__ import annotations

from collections import defaultdict, deque
from dataclasses import replace

from srl.core.readings import RETURN, TRAIN, Metric
from srl.observe.report import Evaluation

EPISODES = 100
"""The return of a run is the mean over so many episodes."""


class Figures:
    """These figures, over all workers."""

    def __init__(self) -> None:
        self.headline: tuple[str, ...] = ()
        """Statistics of the env that a person follows."""
        self.last: dict[str, float] = {}
        """Every mean of the last report that had it."""
        self._since: dict[str, Metric] = {}
        self._episodes: dict[str, deque[tuple[float, float]]] = {}
        """The newest sums and numbers that hold 100 episodes together."""
        self._points: dict[str, Metric] = {}
        self._fresh: set[str] = set()
        self._settled = False

    def take(self, name: str, metric: Metric) -> None:
        """One metric of one worker's report."""
        if metric.rule in ("mean", "spread"):
            if name in self._since:
                self._since[name].merge(metric)
            else:
                self._since[name] = replace(metric)
        elif metric.rule == "episode" and not self._settled and metric.number > 0:
            chunks = self._episodes.setdefault(name, deque())
            chunks.append((metric.value, metric.number))
            held = sum(number for _, number in chunks)
            while held - chunks[0][1] >= EPISODES:
                held -= chunks.popleft()[1]
        elif metric.rule == "point":
            self._points[name] = metric
            self._fresh.add(name)

    def settle(self) -> None:
        """Freeze the returns: the run ends because of them, and episodes that end during the drain do not count."""
        self._settled = True

    def lately(self) -> dict[str, float]:
        """Means since the last call."""
        values = {}
        for name, metric in self._since.items():
            if metric.shown is not None:
                self.last[name] = metric.shown
                values[f"{name}_mean" if metric.rule == "spread" else name] = metric.shown
        self._since = {}
        return values

    def recent(self) -> dict[str, float]:
        """Means over the last 100 episodes, or as many as there were."""
        return {
            name: sum(value for value, _ in chunks) / sum(number for _, number in chunks)
            for name, chunks in self._episodes.items()
            if chunks
        }

    def returns(self, least: int = 1) -> dict[str, float]:
        """The returns among them by team, of at least so many episodes; the team of a single agent is ``""``."""
        return {
            name.removeprefix(RETURN).strip("/"): mean
            for name, mean in self.recent().items()
            if f"{name}/".startswith(f"{RETURN}/") and sum(number for _, number in self._episodes[name]) >= least
        }

    def episodes(self) -> int:
        """How many episodes the returns are means of: 100, or as many as there were."""
        names = [name for name in self._episodes if f"{name}/".startswith(f"{RETURN}/")]
        held = [sum(number for _, number in self._episodes[name]) for name in names]
        return int(min([EPISODES, *held]))

    def training(self) -> dict[str, dict[str, float]]:
        """What algorithms reported last, by policy; the only one is ``""``."""
        found: defaultdict[str, dict[str, float]] = defaultdict(dict)
        for name, value in self.last.items():
            if name.startswith(TRAIN):
                policy, _, figure = name.removeprefix(TRAIN).rpartition("/")
                found[policy][figure] = value
        return found

    def evaluations(self) -> tuple[Evaluation, ...]:
        """What was measured since the last call, by the version that it was measured of."""
        found: dict[tuple[int, int], dict[str, float]] = {}
        for name in sorted(self._fresh):
            metric = self._points[name]
            found.setdefault((int(metric.number), int(metric.low)), {})[name] = metric.value
        self._fresh.clear()
        return tuple(Evaluation(env_steps, update, values) for (env_steps, update), values in sorted(found.items()))

    def evaluation(self) -> Evaluation | None:
        """The last one: its returns, and the first of the env's headline."""
        if not self._points:
            return None
        newest = max(self._points.values(), key=lambda point: point.number)
        shown = {}
        for name, point in self._points.items():
            parts = name.split("/")
            if point.number == newest.number and (parts[1:2] == ["return"] or parts[-1] in self.headline[:1]):
                shown[name] = point.value
        return Evaluation(int(newest.number), int(newest.low), shown)

    def followed(self, name: str) -> bool:
        """Whether it is worth a chart: returns, and the env's headline statistics (outside training only the first)."""
        parts = name.split("/")
        if parts[0] == "episode" and parts[-1] in (*self.headline, "length"):
            return True
        return "return" in parts or parts[-1] in self.headline[:1]
