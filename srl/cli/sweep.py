"""Several runs of one experiment: a folder for all, sweep.json in it, a table at the end."""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Lock
from typing import Any

from srl.cli.search import Range, budgets, drawn, halve
from srl.config.yaml import parse
from srl.core.errors import UserError
from srl.core.progress import Progress
from srl.core.readings import RETURN
from srl.core.text import columns, count, figure, mean_and_spread
from srl.plan.prepare import prepare
from srl.store.atomic import replace_file
from srl.store.lines import read_numbers
from srl.store.run_folder import SWEEP, RunFolder

PREEMPTED = 75
_LOOK = 0.1
"""Seconds between two looks at how far a run is."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one run of a sweep ended."""

    changes: tuple[str, ...]
    exit_code: int
    folder: Path | None
    text: str
    """What it printed: its result, or the error it was refused with."""
    round: int | None = None
    """Of successive halving: the last one that it took part in."""

    @property
    def status(self) -> dict[str, Any]:
        """The last status of the run."""
        return RunFolder(self.folder).read_status() if self.folder is not None else {}

    @property
    def end(self) -> str:
        """`ok`, or `exit 3`."""
        paused = self.round is not None and self.exit_code == PREEMPTED
        return "ok" if self.exit_code == 0 else "stopped early" if paused else f"exit {self.exit_code}"


def sweep(
    experiment: str | None,
    overrides: Sequence[str],
    axes: Sequence[str],
    *,
    jobs: int,
    runs: str,
    trials: int | None = None,
    halving: bool = False,
    metric: str = RETURN,
) -> int:
    """Run every combination, or trials drawn from ranges, `jobs` side by side.

    0 if all went well, else the first exit code that is not.
    """
    lists = [values(axis) for axis in axes]
    searching = halving or trials is not None or any(Range.read(axis) for axis in axes)
    seeds = [place for place, axis in enumerate(axes) if axis.startswith("seed=") and Range.read(axis) is None]
    seeded = list(itertools.product(*(lists[place] for place in seeds)))
    if not searching:
        combinations = list(itertools.product(*lists))
    else:
        searched = [place for place in range(len(axes)) if place not in seeds]
        picks = drawn([axes[place] for place in searched], [lists[place] for place in searched], trials or 16)
        combinations = [(*pick, *one) for pick in picks for one in seeded]
    outcomes = run_each(
        experiment,
        overrides,
        combinations,
        kind="sweep",
        jobs=jobs,
        runs=runs,
        search="halving" if halving else "random" if searching else "grid",
        metric=metric,
        axes=axes,
        halving=len(seeded) if halving else 0,
    )
    print(table(outcomes, metric, best_first=searching))
    print_failures([one for one in outcomes if one.end != "stopped early"])
    return next((one.exit_code for one in outcomes if one.exit_code and one.end != "stopped early"), 0)


def run_each(
    experiment: str | None,
    overrides: Sequence[str],
    combinations: Sequence[Sequence[str]],
    *,
    kind: str,
    jobs: int,
    runs: str,
    search: str = "",
    metric: str = RETURN,
    axes: Sequence[str] = (),
    halving: int = 0,
) -> list[Outcome]:
    """One run for each combination of further overrides, each to its own stop, all in one new folder `NAME_kind/TIME`.

    `search`, `metric`, `axes`: how they were chosen, for sweep.json. `halving`: so many neighbours at a time are one trial of
    successive halving, which is judged by their mean.
    """
    graph = prepare(experiment, [*overrides, *combinations[0]], inspect=False).graph
    for changes in combinations[1:]:
        prepare(experiment, [*overrides, *changes], inspect=False)  # a wrong one is found before the first run
    total = graph.stop.env_steps
    if halving and total is None:
        raise UserError(
            "--halving needs to know how long a whole run is", ("try", "stop.env_steps=1_000_000"), code="E14", path=("stop",)
        )
    folder = Path(runs) / f"{graph.name}_{kind}" / time.strftime("%Y%m%d-%H%M%S")
    folder.mkdir(parents=True, exist_ok=True)
    print(f"{count(len(combinations), 'run')}, {jobs} at a time, in {folder}", flush=True)
    words = [f"experiment={experiment}", *overrides] if experiment is not None else list(overrides)
    found: dict[int, Outcome] = {}
    pool = ThreadPoolExecutor(max(1, jobs))
    current = Round(folder, "runs", len(combinations), total)
    progress = Progress("runs", look=lambda: current.far())
    told = {"experiment": graph.name, "kind": search or kind, "metric": metric, "axes": list(axes)}
    record = Record(folder / SWEEP, told, len(combinations), progress.print)

    def go(place: int, until: int | None, round: int | None) -> Outcome:
        before = found.get(place)
        if before is None or (before.exit_code == PREEMPTED and (until is None or before.status["env_steps"] < until)):
            outcome = _run(words, combinations[place], folder, until, before)
        else:
            outcome = before  # it is there already
        found[place] = replace(outcome, round=round)
        current.over.append(place)
        record.ended(found[place])
        return found[place]

    with progress:
        try:
            if not halving:
                return list(pool.map(lambda place: go(place, None, None), range(len(combinations))))
            assert total is not None
            trials = len(combinations) // halving
            rounds = budgets(total, trials)
            progress.print(f"{count(len(rounds), 'round')}: {', '.join(f'{one:,}' for one in rounds)} env steps")

            def play(alive: list[int], until: int | None) -> list[float]:
                nonlocal current
                number = len(rounds) - 1 if until is None else rounds.index(until)
                places = [trial * halving + i for trial in alive for i in range(halving)]
                current = Round(folder, f"round {number + 1} of {len(rounds)}, runs", len(places), until or total)
                outcomes = list(pool.map(lambda place: go(place, until, number), places))
                scores = [score(one, metric, until) for one in outcomes]
                means = [sum(scores[i : i + halving]) / halving for i in range(0, len(scores), halving)]
                progress.print(f"round {number + 1}: {count(len(alive), 'trial')}, best {figure(max(means))}")
                return means

            halve(trials, total, play)
            return [found[place] for place in range(len(combinations))]
        finally:
            pool.shutdown(cancel_futures=True)  # after Ctrl-C no further run starts


@dataclass(slots=True)
class Round:
    """Runs that are to reach so many env steps, or their end."""

    folder: Path
    what: str
    runs: int
    env_steps: int | None
    over: list[int] = field(default_factory=list)

    def far(self) -> tuple[str, float, float]:
        """How many are over, those under way as the part that they have made; of how many."""
        going = sum(map(self._part, RunFolder.below(self.folder))) if self.env_steps else 0.0
        return self.what, len(self.over) + going, self.runs

    def _part(self, run: RunFolder) -> float:
        assert self.env_steps
        with contextlib.suppress(UserError):
            status = run.read_status()
            return min(1.0, status["env_steps"] / self.env_steps) if status["state"] == "running" else 0.0
        return 0.0


class Record:
    """sweep.json: one row for each run with its settings and its figures, replaced whenever a run ends."""

    def __init__(self, file: Path, told: Mapping[str, Any], runs: int, say: Callable[[str], None]) -> None:
        """`told`: what is said of all runs; `say` is called whenever one has ended."""
        self._file, self._told, self._count, self._say = file, told, runs, say
        self._rows: dict[tuple[str, ...], dict[str, Any]] = {}
        self._lock = Lock()
        self._write()

    def ended(self, outcome: Outcome) -> None:
        """A run has ended, or is paused: say so."""
        row, metric = last_row(outcome.folder), self._told["metric"]
        settings = {key: parse(text).data for key, _, text in (word.partition("=") for word in outcome.changes)}
        names = ("env_steps", "wall", *dict.fromkeys((metric, RETURN, "eval/return")))
        with self._lock:
            self._rows[outcome.changes] = {
                "settings": settings,
                "folder": str(outcome.folder.relative_to(self._file.parent)) if outcome.folder is not None else None,
                "state": outcome.status.get("state"),
                "exit_code": outcome.exit_code,
                "end": outcome.end,
                "round": outcome.round,
                "figures": {name: row[name] for name in names if name in row},
            }
            self._write()
        shown = f", {metric} {figure(row[metric])}" if metric in row else ""
        place = f"round {outcome.round + 1}" if outcome.round else f"{len(self._rows)} of {self._count}"
        self._say(f"{place}: {' '.join(outcome.changes)}: {outcome.end}{shown}")

    def _write(self) -> None:
        replace_file(self._file, json.dumps({**self._told, "runs": list(self._rows.values())}, indent=1) + "\n")


def score(outcome: Outcome, metric: str, until: int | None) -> float:
    """The metric at these env steps, or at the end: what a run did in the moment in which it was paused does not count."""
    newest = -math.inf
    for row in read_numbers(outcome.folder / "metrics.jsonl") if outcome.folder is not None else ():
        if (value := row.get(metric)) is not None:
            newest = float(value)
        if until is not None and (row.get("env_steps") or 0) >= until:
            break
    return newest


def values(axis: str) -> list[str]:
    """`seed=1,2,3` as three overrides; commas inside brackets do not split."""
    key, equals, text = axis.partition("=")
    if not key or not equals or not text:
        raise UserError(f"'--sweep {axis}' has no values", ("try", "--sweep seed=1,2,3"), code="E12")
    parts, depth = [""], 0
    for char in text:
        depth += (char in "[{(") - (char in "]})")
        if char == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += char
    return [f"{key}={part.strip()}" for part in parts]


def table(outcomes: Sequence[Outcome], metric: str = RETURN, *, best_first: bool = False) -> str:
    """One line for each run, then one for each group of runs that differ in their seed only."""
    name_of_metric = "return" if metric == RETURN else metric
    rows: list[tuple[str, ...]] = [("run", "end", "env steps", name_of_metric, "seconds", "folder")]
    if best_first:
        outcomes = sorted(outcomes, key=lambda one: (-(one.round or 0), -score(one, metric, None)))
    groups: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for outcome in outcomes:
        row = last_row(outcome.folder)
        figures = (figure(row.get("env_steps")), figure(row.get(metric)), figure(row.get("wall")))
        rows.append((" ".join(outcome.changes), outcome.end, *figures, str(outcome.folder or "none")))
        if metric in row:
            without_seed = tuple(word for word in outcome.changes if not word.startswith("seed="))
            groups.setdefault(without_seed, []).append(row)
    for changes, found in groups.items():
        if len(found) > 1:
            label = " ".join([*changes, f"mean of {len(found)} seeds"])
            means = (mean_and_spread([row[name] for row in found]) for name in ("env_steps", metric, "wall"))
            rows.append((label, "", *means, ""))
    return columns(rows, right=(2, 3, 4))


def print_failures(outcomes: Sequence[Outcome]) -> None:
    """Print what the failed runs printed."""
    for outcome in outcomes:
        if outcome.exit_code and outcome.text:
            print(f"{' '.join(outcome.changes)}:\n{outcome.text}")


def last_row(folder: Path | None) -> dict[str, Any]:
    """The newest value of every number."""
    merged: dict[str, Any] = {}
    for row in read_numbers(folder / "metrics.jsonl") if folder is not None else ():
        merged.update({key: value for key, value in row.items() if value is not None})
    return merged


def _run(words: Sequence[str], changes: Sequence[str], folder: Path, until: int | None, before: Outcome | None) -> Outcome:
    """One run to its end, or paused when it has made so many env steps; `before` it was paused."""
    place = folder / "_".join(changes).replace("/", "-")
    asked = [*words, *changes] if before is None else ["--resume", str(before.folder)]
    command = [sys.executable, "-m", "srl.launch", *asked, "--quiet", "--runs", str(place)]
    own = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, **own) as process:  # type: ignore[call-overload]
        told = False
        while until is not None and process.poll() is None and not told:
            if _steps(place, process.pid) >= until:
                os.kill(process.pid, signal.SIGTERM)
                told = True
            time.sleep(_LOOK)
        out, err = process.communicate()
    found = _statuses(place)
    code = exit_code(process.returncode, RunFolder(found[-1].parent).read_status() if found else {}, process.pid)
    return Outcome(tuple(changes), code, found[-1].parent if found else None, err.strip() or out.strip())


def exit_code(code: int, status: Mapping[str, Any], pid: int) -> int:
    """The exit code of a run. If the signal that pauses it came after its end, the process died of it, but the run did not."""
    ended = status.get("pid") == pid and status.get("state") not in (None, "running")
    return int(status["exit_code"]) if code == -signal.SIGTERM and ended else code


def _statuses(place: Path) -> list[Path]:
    return sorted(place.glob("*/*/status.json"))


def _steps(place: Path, pid: int) -> int:
    """Env steps of the run that this process has begun or continued; 0 before it says so."""
    found = _statuses(place)
    status = RunFolder(found[-1].parent).read_status() if found else {}
    return int(status.get("env_steps", 0)) if status.get("pid") == pid else 0
