"""What a viewer that is watched and an evaluator cost a run.

`python benchmarks/watched.py [--cores 0,1] [--seconds 10] [--rounds 3] [experiment=cartpole_fast] [key=value ...]`

Runs the same experiment alone, with a viewer and a browser that takes every picture, and with an evaluator that never rests;
in turn. Prints rates, the cores that each role uses, and the processor time of an env step and of a step of the optimizer. On a
machine with other work the rates say nothing. Where all cores are busy, learning loses what viewer and evaluator use, and what
its own steps become dearer.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import threading
import urllib.request
from pathlib import Path

import srl
from srl.core.machine import usable_cores
from srl.store.run_folder import RunFolder

CASES: dict[str, list[str]] = {
    "alone": [],
    "viewer": ["viewer.show=page"],
    "evaluator": ["evaluation.every=1", "evaluation.episodes=64"],
}


RATES = ("env_steps", "optimizer_steps")


def measure(words: list[str], seconds: float) -> dict[str, float]:
    """Rates, and cores by role, over the whole run but its start, and its end, which waits for the last evaluation."""
    with tempfile.TemporaryDirectory() as runs:
        over = threading.Event()
        run = srl.launch(
            None if not words[0].startswith("experiment=") else words[0].partition("=")[2],
            overrides=[
                *(word for word in words if not word.startswith("experiment=")),
                "stop=null",
                f"stop.seconds={seconds}",
                "checkpoint.every=0",
            ],
            runs=runs,
            quiet=True,
            wait=False,
        )
        browser = threading.Thread(target=look, args=(run.folder, over), daemon=True)
        browser.start()
        run.finish(seconds + 60)
        over.set()
        browser.join(10)
        rows = [row for row in run.metrics() if row.get("total/env_steps")]
        end = rows[-1]["total/env_steps"]  # then the final policy is evaluated
        rows = [row for row in rows if row["total/env_steps"] < end]
        first, last = rows[min(3, len(rows) - 1)], rows[-1]
        span = last["wall"] - first["wall"] or 1.0
        found = {name: (last[f"total/{name}"] - first[f"total/{name}"]) / span for name in RATES}
        names = sorted({name for row in rows for name in row if name.startswith("cpu/")})
        return found | {name: statistics.fmean(row[name] for row in rows[3:] if name in row) for name in names}


def look(folder: Path, over: threading.Event) -> None:
    """A browser."""
    while not over.wait(0.1):
        address = RunFolder(folder).read_status().get("viewer", "")
        if address:
            try:
                with urllib.request.urlopen(address + "pictures", timeout=10) as stream:
                    while not over.is_set() and stream.read(1 << 12):
                        pass
            except OSError:
                return


def main() -> None:
    parser = argparse.ArgumentParser(description="what a viewer and an evaluator cost a run")
    parser.add_argument("words", nargs="*")
    parser.add_argument("--cores", help="pin everything to these cores: 0 or 0,1")
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    if given.cores:
        os.sched_setaffinity(0, {int(core) for core in given.cores.split(",")})
    words = given.words or ["experiment=cartpole_fast"]
    results: dict[str, list[dict[str, float]]] = {name: [] for name in CASES}
    for number in range(given.rounds):
        for name in list(CASES) if number % 2 == 0 else list(reversed(CASES)):
            base = [*words, *([] if any(word.startswith("evaluation") for word in words) else ["evaluation=null"])]
            own: list[str] = [word for word in base if word != "evaluation=null"] if name == "evaluator" else base
            results[name].append(measure([*own, *CASES[name]], given.seconds))
    print(f"{' '.join(words)}, {usable_cores()} cores, medians of {given.rounds} runs of {given.seconds:g} s")
    alone: dict[str, float] = {}
    for name, rows in results.items():
        keys = sorted({key for row in rows for key in row})
        medians = {key: statistics.median(row.get(key, 0.0) for row in rows) for key in keys}
        alone = alone or medians
        rates = [f"{medians[key]:,.0f} {key}/s ({100 * (medians[key] / max(alone[key], 1e-9) - 1):+.1f} %)" for key in RATES]
        cores = [f"{key.removeprefix('cpu/')} {medians[key]:.3f}" for key in keys if key.startswith("cpu/")]
        costs = [
            f"{node} {1e6 * medians[f'cpu/{node}'] / max(medians[per], 1e-9):,.1f} us/{per.removesuffix('s')}"
            for node, per in zip(("actor", "trainer"), RATES, strict=True)
            if f"cpu/{node}" in medians
        ]
        print(f"{name:<10} {', '.join(rates)}; cores: {', '.join(cores)}; processor time: {', '.join(costs)}")


if __name__ == "__main__":
    main()
