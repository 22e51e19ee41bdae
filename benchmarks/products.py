"""Products by numpy beside products by torch: single ones, and updates of the hide-and-seek network, taking turns.

    python benchmarks/products.py [--rounds 6]

The order changes with every round. CPU time of one thread.
"""

from __future__ import annotations

import argparse
import copy
import os
import statistics
import time
from collections.abc import Callable
from typing import Any

os.environ.update(dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1"))

import torch

from srl.graph.prepare import prepare
from srl.nets import products
from srl.session import Session

SHAPES = ((1024, 64, 64), (256, 128, 512), (2560, 128, 512), (7680, 64, 192))
WAYS = {"numpy": lambda: True, "torch": lambda: False}
REPEATS = 50


def spent(work: Callable[[], object], repeats: int = 1) -> float:
    """Seconds of this thread."""
    began = time.thread_time()
    for _ in range(repeats):
        work()
    return (time.thread_time() - began) / repeats


def in_turns(work: Callable[[], object], rounds: int, repeats: int = 1) -> dict[str, list[float]]:
    """Seconds by way; a first turn of each does not count."""
    found: dict[str, list[float]] = {way: [] for way in WAYS}
    for number in range(rounds + 1):
        for way in sorted(WAYS, reverse=number % 2 == 1):
            products.by_numpy = WAYS[way]  # type: ignore[assignment]
            seconds = spent(work, repeats)
            if number:
                found[way].append(seconds)
    return found


def show(what: str, found: dict[str, list[float]], unit: float) -> None:
    medians = {way: statistics.median(times) * unit for way, times in found.items()}
    spans = {way: f"({min(times) * unit:.0f}-{max(times) * unit:.0f})" for way, times in found.items()}
    line = "".join(f"{medians[way]:>9.0f} {spans[way]:<14}" for way in WAYS)
    print(f"{what:<44}{line}{medians['torch'] / medians['numpy']:>6.2f}")


def update() -> tuple[Callable[[], object], int]:
    """One update of `hide_and_seek_shared` on rows that were sampled once, and how many rows these are."""
    session = Session(prepare("hide_and_seek_shared", ["evaluation=null", "mode=inline", "layout=inline"]).graph, None)
    learner: Any = session.workers["trainer/0"].learner  # type: ignore[attr-defined]
    train, kept = learner.update, []

    def keep(rows: Any) -> Any:
        kept.append(copy.deepcopy(rows))
        return train(rows)

    learner.update = keep
    session.step(1)
    return lambda: train(kept[0]), kept[0]["valid"].size


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=6)
    given = parser.parse_args()
    torch.set_num_threads(1)
    print(f"{'':<44}{'numpy':>9}{'':<15}{'torch':>9}{'':<15}{'numpy is x':>6}")
    for rows, inner, outer in SHAPES:
        one, two = torch.randn(rows, inner), torch.randn(inner, outer)
        times = in_turns(lambda one=one, two=two: products.mm(one, two), given.rounds, REPEATS)  # type: ignore[misc]
        show(f"{rows} x {inner} x {outer}, us", times, 1e6)
    train, rows = update()
    show("update of hide_and_seek_shared, us a row", in_turns(train, given.rounds), 1e6 / rows)


if __name__ == "__main__":
    main()
