"""Copies of envs that fail, hang or are slow: what is said about them, and how they are made anew."""

from __future__ import annotations

import contextlib
import signal
import statistics
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np

from srl.api.env import BatchEnv
from srl.core.errors import NotImportable, UserError
from srl.core.load import option
from srl.core.readings import Reading
from srl.core.registry import dotted_path
from srl.core.tree import Array

OnError = Literal["stop", "restart"]
EVERY = 64
"""Ticks between two in which every step is timed."""
EDGES = (0.1, 1.0, 10.0, 100.0, 1000.0)
"""Of the histogram of step times, in milliseconds."""
_SLOW = 3.0
"""A copy is told that takes so many times as long as the median one,"""
_WORTH = 1e-4
"""and as many seconds."""
_HOUR = 3600.0


@dataclass(frozen=True, slots=True)
class Spot:
    """One step of one copy."""

    name: str
    """Name of the env for the user."""
    place: str
    """The worker, such as `actor/3`; may be empty."""
    env: int
    seed: int
    step: int

    def __str__(self) -> str:
        worker = f"{self.place}, " if self.place else ""
        return f"env '{self.name}' ({worker}env {self.env}, seed {self.seed}, step {self.step})"

    @property
    def alone(self) -> str:
        """The command that reproduces it without a run."""
        return f"srl check env {self.name} --seed {self.seed}"


def bad_observation(spot: Spot, key: tuple[str, ...], expected: str, found: Any, likely: str) -> UserError:
    """E05 for one leaf of an observation."""
    return UserError(
        f"{spot} returned an observation outside its space",
        ("key", f"{list(key)}   expected {expected}   got {describe(found)}"),
        ("likely", f"{likely}     check it alone: {spot.alone}"),
        code="E05",
    )


def bad_step(spot: Spot, what: str, likely: str) -> UserError:
    """E05 for anything else that a step returned."""
    return UserError(f"{spot} {what}", ("likely", f"{likely}     check it alone: {spot.alone}"), code="E05")


def is_reward(reward: Any) -> bool:
    """Require one finite number: a single nan would make all weights nan."""
    return np.shape(reward) == () and bool(np.isfinite(reward))


def bad_reward(spot: Spot, reward: Any, whose: str = "") -> UserError:
    """E05 for an invalid reward."""
    return bad_step(spot, f"returned the reward {reward!r}{whose}", "a reward is one finite number")


def bad_answer(spot: Spot, answer: Any) -> UserError:
    """E05 for a `step` that does not return gymnasium's five values."""
    found = f"{len(answer)} values" if isinstance(answer, tuple) else f"a {type(answer).__name__}"
    old = " (before 0.26 it was four: `done` is now told apart)" if isinstance(answer, tuple) and len(answer) == 4 else ""
    return bad_step(spot, f"returned {found} from step()", f"return (observation, reward, terminated, truncated, info){old}")


def describe(found: Any) -> str:
    """`float64 (64,64,3) min -0.12 max 1.03`."""
    try:
        array = np.asarray(found)
    except ValueError:
        return f"a ragged {type(found).__name__}"
    if array.dtype.kind not in "biuf":
        return f"{type(found).__name__} {found!r}"[:80]
    if array.size == 0:
        return f"{array.dtype} {sizes(array.shape)}"
    if array.dtype.kind == "f" and np.isnan(array).any():
        return f"{array.dtype} {sizes(array.shape)} with {int(np.isnan(array).sum())} nan"
    return f"{array.dtype} {sizes(array.shape)} min {array.min():.3g} max {array.max():.3g}"


def sizes(shape: tuple[int, ...]) -> str:
    """`(64,64,3)`."""
    return f"({','.join(map(str, shape))})"


def name_of(made: Any) -> str:
    """Name of an env for the user, as `srl check env` takes it."""
    if isinstance(made, str):
        return made
    try:
        return dotted_path(made)
    except (NotImportable, AttributeError):
        pass  # a notebook's, or no class at all
    return f"{getattr(made, '__module__', '')}:{getattr(made, '__qualname__', type(made).__name__)}".lstrip(":")


@dataclass(frozen=True, kw_only=True)
class FaultConfig:
    """Settings of envs whose copies can be created again."""

    on_error: OnError = option(
        "stop", "if a copy raises or is too slow: end the run, or create the copy again and drop its episode"
    )
    restarts: int = option(10, "with on_error: restart, the maximum per hour in a group of envs", low=1)
    step_timeout: float | None = option(None, "maximum seconds for a step or a reset; null: no limit", above=0)


class Lost(NamedTuple):
    """An episode that a failure cut off."""

    env: int
    tick: int
    """Of the step that failed."""
    steps: int
    """With that one."""


class Copies:
    """What happened to the copies of one group."""

    def __init__(self, config: FaultConfig, first: int) -> None:
        self.on_error, self.restarts, self.timeout = config.on_error, config.restarts, config.step_timeout
        self.lost: list[Lost] = []
        self._first = first
        self._times: deque[float] = deque()
        """When copies were restarted."""
        self._fresh = 0
        self._seconds: dict[int, list[float]] = {}

    def limited(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """The same call, ended by a TimeoutError when it lasts longer than the timeout. Only Python code can be interrupted."""
        seconds = self.timeout
        if seconds is None:
            return call

        def within(*args: Any, **keywords: Any) -> Any:
            with _limit(seconds):
                return call(*args, **keywords)

        return within

    def timed(self, env: int, call: Callable[..., Any]) -> Callable[..., Any]:
        """The same call, whose time is kept."""

        def measured(action: Any) -> Any:
            before = time.perf_counter()
            answer = call(action)
            self._seconds.setdefault(env, []).append(time.perf_counter() - before)
            return answer

        return measured

    def restarted(self, spot: Spot, problem: BaseException) -> bool:
        """Whether the copy that failed is to be made anew. Says so in the log of the worker; else the error names the copy."""
        now = time.monotonic()
        while self._times and now - self._times[0] > _HOUR:
            self._times.popleft()
        if self.on_error == "stop" or len(self._times) >= self.restarts:
            limit = f" (restarted {len(self._times)} times within an hour)" if self._times else ""
            problem.add_note(f"in {spot}{limit}")
            return False
        self._times.append(now)
        self._fresh += 1
        told = f"{type(problem).__name__}: {problem}" if str(problem) else type(problem).__name__
        number = f"restart {len(self._times)} of {self.restarts} within an hour"
        print(f"{spot} failed and is created again ({number}): {told}", file=sys.stderr, flush=True)
        return True

    def report(self, reading: Reading) -> None:
        """Restarts, the histogram of step times, and the slowest copy if it is much slower than the others."""
        if self._fresh:
            reading.count("env/restarts", self._fresh)
            self._fresh = 0
        if not self._seconds:
            return
        every = [1e3 * one for times in self._seconds.values() for one in times]
        reading.spread("env/step_ms", sum(every), len(every), min(every), max(every))
        for low, high in zip((0.0, *EDGES), (*EDGES, float("inf")), strict=True):
            if number := sum(low <= one < high for one in every):
                reading.count(f"env/step_ms/{f'below_{high:g}' if high < float('inf') else f'from_{low:g}'}", number)
        means = {env: sum(times) / len(times) for env, times in self._seconds.items()}
        slowest, usual = max(means, key=lambda env: means[env]), statistics.median(means.values())
        if len(means) > 1 and means[slowest] > max(_SLOW * usual, usual + _WORTH):
            reading.mean(f"env/slow/{self._first + slowest}", means[slowest] / usual)
        self._seconds = {}


class RestartableEnv(BatchEnv):
    """Copies that fail are created again, and the engine is told which episodes were cut off."""

    _copies: Copies
    _tick: int
    """Of the present step, counted from 1."""

    def whole(self, ended: Array) -> Array:
        now = [lost.env for lost in self._copies.lost if lost.tick == self._tick]
        if not now:
            return ended
        kept = ended.copy()
        kept[now] = False
        return kept

    def lost(self) -> list[tuple[int, int, int]]:
        return [(one.env, self._tick - one.tick, one.steps) for one in self._copies.lost]

    def report(self, reading: Reading) -> None:
        self._copies.lost.clear()
        self._copies.report(reading)


@contextlib.contextmanager
def _limit(seconds: float) -> Iterator[None]:
    """Interrupts the main thread after so many seconds. In another thread there is no limit."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def late(*_: Any) -> None:
        raise TimeoutError(f"it took longer than env.step_timeout, {seconds:g} seconds")

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)
