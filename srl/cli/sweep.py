"""Several runs of one experiment: a folder for all, a table at the end."""

from __future__ import annotations

import itertools
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from srl.core.errors import UserError
from srl.core.readings import RETURN
from srl.core.text import columns, count, figure, mean_and_spread
from srl.plan.prepare import prepare
from srl.store.lines import read_numbers
from srl.store.run_folder import RunFolder


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one run of a sweep ended."""

    changes: tuple[str, ...]
    exit_code: int
    folder: Path | None
    text: str
    """What it printed: its result, or the error it was refused with."""

    @property
    def status(self) -> dict[str, Any]:
        """The last status of the run."""
        return RunFolder(self.folder).read_status() if self.folder is not None else {}

    @property
    def end(self) -> str:
        """`ok`, or `exit 3`."""
        return "ok" if self.exit_code == 0 else f"exit {self.exit_code}"


def sweep(experiment: str | None, overrides: Sequence[str], axes: Sequence[str], *, jobs: int, runs: str) -> int:
    """Run every combination, `jobs` side by side; 0 if all went well, else the first exit code that is not."""
    combinations = list(itertools.product(*map(values, axes)))
    outcomes = run_each(experiment, overrides, combinations, kind="sweep", jobs=jobs, runs=runs)
    print(table(outcomes))
    print_failures(outcomes)
    return next((outcome.exit_code for outcome in outcomes if outcome.exit_code), 0)


def run_each(
    experiment: str | None, overrides: Sequence[str], combinations: Sequence[Sequence[str]], *, kind: str, jobs: int, runs: str
) -> list[Outcome]:
    """One run for each combination of further overrides, each to its own stop, all in one new folder `NAME_kind/TIME`."""
    name = prepare(experiment, [*overrides, *combinations[0]], inspect=False).graph.name
    for changes in combinations[1:]:
        prepare(experiment, [*overrides, *changes], inspect=False)  # a wrong one is found before the first run
    folder = Path(runs) / f"{name}_{kind}" / time.strftime("%Y%m%d-%H%M%S")
    print(f"{count(len(combinations), 'run')}, {jobs} at a time, in {folder}", flush=True)
    words = [f"experiment={experiment}", *overrides] if experiment is not None else list(overrides)
    pool = ThreadPoolExecutor(max(1, jobs))
    try:
        return list(pool.map(lambda changes: _run(words, changes, folder), combinations))
    finally:
        pool.shutdown(cancel_futures=True)  # after Ctrl-C no further run starts


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


def table(outcomes: Sequence[Outcome]) -> str:
    """One line for each run, then one for each group of runs that differ in their seed only."""
    rows: list[tuple[str, ...]] = [("run", "end", "env steps", "return", "seconds", "folder")]
    groups: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for outcome in outcomes:
        row = last_row(outcome.folder)
        figures = (figure(row.get("env_steps")), figure(row.get(RETURN)), figure(row.get("wall")))
        rows.append((" ".join(outcome.changes), outcome.end, *figures, str(outcome.folder or "none")))
        if RETURN in row:
            without_seed = tuple(word for word in outcome.changes if not word.startswith("seed="))
            groups.setdefault(without_seed, []).append(row)
    for changes, found in groups.items():
        if len(found) > 1:
            label = " ".join([*changes, f"mean of {len(found)} seeds"])
            means = (mean_and_spread([row[name] for row in found]) for name in ("env_steps", RETURN, "wall"))
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


def _run(words: Sequence[str], changes: Sequence[str], folder: Path) -> Outcome:
    label = "_".join(changes).replace("/", "-")
    command = [sys.executable, "-m", "srl.launch", *words, *changes, "--quiet", "--runs", str(folder / label)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    found = sorted((folder / label).glob("*/*/status.json"))
    print(f"{' '.join(changes)}: exit {ended.returncode}", flush=True)
    said = ended.stderr.strip() or ended.stdout.strip()
    return Outcome(tuple(changes), ended.returncode, found[-1].parent if found else None, said)
