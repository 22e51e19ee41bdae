"""What the store of a replay costs by itself: drawing, inserting, priorities and memory, with rows of HalfCheetah.

    python benchmarks/replay.py [--size 1000000] [--long]

CPU time in microseconds, the least of several rounds. `--long` goes three times through a ring of 10 M rows (1.1 GB), and
prints what memory the process takes.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from srl.api.slab import Window
from srl.core.spec import Leaf, total_bytes, zeros
from srl.replay.store import Store, batch_record, store_bytes

BATCH = 256
SINGLE = Window(length=1)


def half_cheetah(steps: int, envs: int, dtype: str) -> dict[str, Any]:
    """The slab of a plain policy that records nothing of its own."""
    rows, asked = (steps, envs, 1), (steps + 1, envs, 1)
    return {
        "obs": Leaf((*asked, 17), dtype),
        "action": Leaf((*rows, 6), "float32"),
        "reward": Leaf(rows, "float32"),
        "terminated": Leaf(rows, "bool"),
        "truncated": Leaf(rows, "bool"),
        "first": Leaf(asked, "bool"),
        "valid": Leaf(rows, "bool"),
        "version": Leaf((1,), "int64"),
        "reused": Leaf((1,), "bool"),
    }


def slab_of(record: dict[str, Any]) -> dict[str, Any]:
    """Random rows; an episode ends every thousand."""
    slab: dict[str, Any] = zeros(record)
    rng = np.random.default_rng(0)
    for name in ("obs", "action", "reward"):
        slab[name][...] = rng.normal(size=slab[name].shape)
    slab["valid"][...] = rng.random(slab["valid"].shape) > 1e-3
    return slab


def filled(
    size: int, *, envs: int = 1, dtype: str = "float32", steps: int = 1000, **settings: Any
) -> tuple[Store, dict[str, Any]]:
    record = half_cheetah(steps, envs, dtype)
    store = Store(record, columns=envs, size=size, window=SINGLE, **settings)
    slab = slab_of(record)
    for index in range(size // (steps * envs) + 2):
        store.insert(slab, 0, index > 0)
    return store, zeros(batch_record(record, BATCH, SINGLE))


def least(function: Callable[[], object], calls: int = 1000, rounds: int = 9) -> float:
    """Microseconds of CPU time for a call."""
    best = float("inf")
    for _ in range(rounds):
        start = time.process_time()
        for _ in range(calls):
            function()
        best = min(best, time.process_time() - start)
    return best / calls * 1e6


def report(what: str, value: float, unit: str = "us", target: str = "") -> None:
    print(f"{what:<66} {value:8.2f} {unit}{'   target ' + target if target else ''}", flush=True)


def drawing(size: int) -> None:
    rng = np.random.default_rng(1)
    for dtype in ("float32", "float64"):
        for count in (size, 20_000):
            store, out = filled(count, dtype=dtype)
            rows, drawn = np.empty((BATCH, 17), dtype), iter_places(rng, count)
            report(
                f"gather {BATCH} observations, {dtype}, of {count:,}",
                least(partial(gather, store._rings.flat["obs"], drawn, rows)),
                target="4",
            )
            report(f"  draw {BATCH} places", least(partial(store.selector.draw, BATCH, rng, 1.0)))
            report("  a whole batch: two observations, all leaves, ids", least(partial(store.sample, BATCH, rng, out)))
    for envs, n_step in ((16, 1), (1, 3), (16, 3)):
        store, out = filled(size, envs=envs, n_step=n_step)
        report(f"a whole batch of {size:,} rows, {envs} envs, n_step {n_step}", least(partial(store.sample, BATCH, rng, out)))


def gather(array: Any, drawn: Any, rows: Any) -> None:
    array.take(next(drawn), 0, rows, "wrap")


def iter_places(rng: np.random.Generator, count: int) -> Any:
    drawn = [rng.integers(0, count, BATCH) for _ in range(1000)]
    while True:
        yield from drawn


def priorities(size: int) -> None:
    rng = np.random.default_rng(2)
    for envs in (1, 16):
        store, out = filled(size, envs=envs, alpha=0.6)
        selector = store.selector
        values = rng.random(BATCH).astype(np.float32)
        store.sample(BATCH, rng, out)
        ids = out["ids"].copy()
        store.give_back(ids, {"priority": values})
        report(
            f"draw {BATCH} of {size:,} by priority, {envs} envs", least(partial(selector.draw, BATCH, rng, 0.4), 300), target="60"
        )
        report("  a whole batch", least(partial(store.sample, BATCH, rng, out), 300))
        report(
            f"  give {BATCH} priorities back by id", least(partial(store.give_back, ids, {"priority": values}), 300), target="60"
        )


def inserting(size: int) -> None:
    for steps, envs in ((128, 16), (64, 8), (64, 1), (8, 1), (1, 1), (1, 16)):
        for settings in ({}, {"alpha": 0.6}):
            record = half_cheetah(steps, envs, "float32")
            store = Store(record, columns=envs, size=size, window=SINGLE, **settings)
            slab = slab_of(record)
            calls = max(10, min(1000, 200_000 // (steps * envs)))
            store.insert(slab, 0, False)
            cost = least(partial(store.insert, slab, 0, True), calls)
            how = ", by priority" if settings else ""
            report(
                f"insert a slab of {steps} x {envs}{how}: a row", cost / steps / envs, target="0.20" if steps * envs >= 64 else ""
            )
            if steps * envs < 64:
                report("  the slab", cost)


def sequences() -> None:
    """R2D2: 40 rows of burn-in, 40 trained ones, 5 more, an LSTM of 256."""
    window, record = Window(40, 40, 5), half_cheetah(40, 4, "float32")
    record["memory"] = {name: Leaf((8, 4, 1, 256), "float32") for name in ("c", "h")}
    for settings in ({}, {"alpha": 0.6}):
        store, slab = Store(record, columns=4, size=200_000, window=window, **settings), slab_of(record)
        for index in range(1300):
            store.insert(slab, 0, index > 0)
        out, rng = zeros(batch_record(record, 64, window)), np.random.default_rng(4)
        how = ", by priority" if settings else ""
        report(f"64 sequences of 85 rows{how}", least(partial(store.sample, 64, rng, out), 100))


def pictures() -> None:
    """Stacks of four frames of 84 x 84, kept whole or as single frames."""
    record = half_cheetah(32, 8, "float32")
    record["obs"] = Leaf((33, 8, 1, 4, 84, 84), "uint8")
    slab = zeros(record)
    slab["valid"][...] = True
    for history in ((), ("obs",)):
        store = Store(record, columns=8, size=20_000, window=SINGLE, history=history)
        for index in range(90):
            store.insert(slab, 0, index > 0)
        out, rng = zeros(batch_record(record, 32, SINGLE)), np.random.default_rng(5)
        how = "single frames" if history else "whole stacks"
        report(f"32 pictures of 4 x 84 x 84 from {how}", least(partial(store.sample, 32, rng, out), 100))


def memory(size: int) -> None:
    for dtype in ("float32", "float64"):
        record = half_cheetah(1, 1, dtype)
        leaves = total_bytes({name: leaf for name, leaf in record.items() if name not in ("obs", "first", "reused")})
        leaves += total_bytes({name: record[name] for name in ("obs", "first")}) // 2
        for prioritised in (False, True):
            taken = store_bytes(record, columns=1, size=size, window=SINGLE, prioritised=prioritised) / size
            bytes_of = leaves + 4 * prioritised
            report(
                f"bytes of a row, {dtype}{', with priorities' * prioritised}: / {bytes_of} of its leaves",
                taken / bytes_of,
                "",
                "1.05",
            )


def rss() -> float:
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1]) / 1024


def long(size: int = 10_000_000) -> None:
    record = half_cheetah(1000, 16, "float32")
    store = Store(record, columns=16, size=size, window=SINGLE)
    slab, out, rng = slab_of(record), zeros(batch_record(record, BATCH, SINGLE)), np.random.default_rng(3)
    for lap in range(3):
        for _ in range(size // 16_000 + 1):
            store.insert(slab, 0, True)
            store.sample(BATCH, rng, out)
        report(f"memory after {store.inserted:,} transitions, round {lap + 1}", rss(), "MB")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=1_000_000)
    parser.add_argument("--long", action="store_true")
    options = parser.parse_args()
    drawing(options.size)
    priorities(options.size)
    inserting(options.size)
    sequences()
    pictures()
    memory(options.size)
    if options.long:
        long()
