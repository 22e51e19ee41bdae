"""What two GPUs would give a split learner: a SIMULATION, as no machine with a GPU was at hand. Less than a minute.

    python benchmarks/two_gpus.py [--algorithm sac] [--networks 256x256,1024x1024x1024] [--batches 256,2048,8192,32768]

- Counted: the operations of each side on the path that GPUs take, with their multiplications and the bytes that they read and
  write (by tensors of torch's device `meta`, which have shapes only), and the bytes that cross.
- Measured: the time in which the host asks for one operation.
- Public figures: what GPUs and links can do (`GPUS`, `LINKS`).
- Assumed: the shares of these that are reached (`SHARE`), and what a launch, the smallest operation and the smallest copy take.

An operation takes the longest of its products, its bytes and the least time; a side takes the longer of its host and its GPU. The
sides are two threads of one process, so two bounds are printed: `lock` if the host works for one side at a time (Python's lock),
`free` if for both at once.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

import split as shapes
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

import srl.nets.ensemble
from srl.api.parts import InParts, Part
from srl.core.learner import SingleConfig
from srl.core.load import load
from srl.learners import flat
from srl.learners.single import SingleLearner
from srl.learners.slots import joined

GPUS = {"RTX 3090": (35.6e12, 936e9), "A100 40 GB": (19.5e12, 1555e9)}
"""Float32 operations and bytes a second: NVIDIA's data sheets of GeForce RTX 3090 and A100."""
LINKS = {"PCIe 4.0 x16": 32e9, "NVLink bridge": 56.25e9, "NVLink 3": 300e9}
"""Bytes a second in one direction: PCIe 4.0; NVIDIA's white paper on GA102 (four links of 14.0625 GB/s); its data sheet of A100
(600 GB/s in both directions)."""
PAIRS = (("RTX 3090", "PCIe 4.0 x16"), ("RTX 3090", "NVLink bridge"), ("A100 40 GB", "NVLink 3"))
SHARE = {"products": 0.5, "bytes": 0.7, "link": 0.85}
"""Of the link: p2pmark found 54 of 63 GB/s on PCIe 5.0 (github.com/lukealonso/p2pmark)."""
LAUNCH, LEAST, LATENCY = 4e-6, 3e-6, 15e-6
"""Seconds: what a launch adds for the host, the smallest operation on a GPU, and the smallest copy with its events."""
LAG = 4


@dataclass(frozen=True)
class Work:
    """Operations on a GPU."""

    operations: tuple[tuple[float, float], ...]
    """(floating-point operations, bytes) of each."""

    def on(self, gpu: str) -> float:
        """Seconds."""
        rate, width = GPUS[gpu][0] * SHARE["products"], GPUS[gpu][1] * SHARE["bytes"]
        return sum(max(LEAST, products / rate, moved / width) for products, moved in self.operations)


@dataclass(frozen=True)
class Half:
    """What one side does in an update."""

    gradient: Work
    step: Work
    """Once the norm of the gradient is known: the host waits for it."""
    crosses: float
    """Bytes that the other side reads of it."""

    def seconds(self, gpu: str, host: float) -> float:
        """Of an update of this side alone; `host`: seconds in which the host asks for one operation."""
        return sum(max(host * len(work.operations), work.on(gpu)) for work in (self.gradient, self.step))

    def asked(self, host: float) -> float:
        """Seconds of the host."""
        return host * (len(self.gradient.operations) + len(self.step.operations))


class Counted(TorchDispatchMode):
    """Notes every operation."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[float, float]] = []

    def __torch_dispatch__(self, operation: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = operation(*args, **(kwargs or {}))
        if any(one.alias_info is not None and not one.alias_info.is_write for one in operation._schema.returns):
            return out  # a view
        name = operation.overloadpacket.__name__
        tensors = [one for one in torch.utils._pytree.tree_leaves((args, kwargs, out)) if isinstance(one, Tensor)]
        moved = float(sum(one.numel() * one.element_size() for one in tensors))
        products = 0.0
        if name in ("mm", "addmm", "bmm", "baddbmm"):
            one, two = args[-2:]
            products = 2.0 * one.numel() * two.shape[-1]
        self.found.append((products, moved))
        return out


def task(algorithm: str, hidden: list[int], rows: int, device: str) -> Any:
    made = shapes.task(algorithm, rows, 1)
    config = load(made.algorithm.Config, {"critic": {"hidden": hidden}})
    return replace(made, config=config, policy_config=load(made.policy.Config, {"hidden": hidden}), device=device)


def half_of(learner: SingleLearner, part: Part, rows: dict[str, Any]) -> Half:
    """Count the operations of one part."""
    algorithm = learner.algorithm
    assert isinstance(algorithm, InParts)

    def counted(run: Callable[[], Any]) -> tuple[Any, Work]:
        with Counted() as mode:
            done = run()
        return done, Work(tuple(mode.found))

    def learn() -> Any:
        batch = learner.intake.batch(rows, 0)
        return part.gradient(batch, algorithm.begin(batch))

    shown, gradient = counted(learn)

    def step() -> None:
        part.optimizer.apply()
        part.after(shown)

    crosses = sum(one.numel() * one.element_size() for one in joined(part.shows))
    return Half(gradient, counted(step)[1], float(crosses))


def counted(algorithm: str, hidden: list[int], rows: int) -> list[Half]:
    """Both sides: critics, actor."""
    learner = SingleLearner(task(algorithm, hidden, rows, "meta"), SingleConfig(prefetch=False))
    assert isinstance(learner.algorithm, InParts)
    return [half_of(learner, part, shapes.batch(rows)) for part in learner.algorithm.made_parts]


def host_seconds(algorithm: str) -> float:
    """Of this machine's CPU for one operation: an update of small networks on two rows, without the shortcuts that CPUs have."""
    usual = srl.nets.ensemble.runs_in_numpy
    vars(srl.nets.ensemble)["runs_in_numpy"] = lambda _: False
    learner, rows = SingleLearner(task(algorithm, [8, 8], 2, "cpu"), SingleConfig()), shapes.batch(2)
    learner.update(rows)
    with Counted() as mode:
        learner.update(rows)
    taken = []
    for _ in range(200):
        before = time.thread_time()
        learner.update(rows)
        taken.append(time.thread_time() - before)
    vars(srl.nets.ensemble)["runs_in_numpy"] = usual
    return LAUNCH + min(taken) / len(mode.found)


def simulated(seconds: list[float], copies: list[float], lag: int, updates: int = 400) -> float:
    """Seconds of an update: each side waits until a version of the other one, at most `lag` behind, has crossed."""
    ended: list[list[float]] = [[0.0], [0.0]]
    for update in range(updates):
        needed = max(update - lag, 0)
        begins = [max(ended[side][-1], ended[1 - side][needed] + (copies[1 - side] if needed else 0.0)) for side in (0, 1)]
        for side in (0, 1):
            ended[side].append(begins[side] + seconds[side])
    return max(one[-1] for one in ended) / updates


def report(name: str, hidden: list[int], batches: list[int], host: float) -> None:
    for gpu, link in PAIRS:
        print(f"\n{name} {'x'.join(map(str, hidden))}, two {gpu}, {link}")
        titles = ("one GPU, ms", "parameters, us", "exact", "at once: lock", "free", "async: lock", "free")
        print(f"{'batch':<8}" + "".join(f"{title:>16}" for title in titles))
        for rows in batches:
            halves = counted(name, hidden, rows)
            seconds = [half.seconds(gpu, host) for half in halves]
            rate = LINKS[link] * SHARE["link"]
            copies = [LATENCY + half.crosses / rate for half in halves]
            single, asked = sum(seconds), sum(half.asked(host) for half in halves)
            crossing = LATENCY + 4 * rows * (shapes.SIZE + 1) / rate
            exact = single / shapes.IDEAL[name][0] + 5 * crossing
            found = [single / exact]
            for lag in (0, LAG):
                free = simulated(seconds, copies, lag)
                found += [single / max(free, asked), single / free]
            cells = [f"{1e3 * single:.2f}", f"{1e6 * max(copies):.0f}", *(f"{ratio:.2f}" for ratio in found)]
            print(f"{rows:<8,}" + "".join(f"{cell:>16}" for cell in cells), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--algorithm", default="sac", choices=("sac", "td3", "ddpg"))
    parser.add_argument("--networks", default="256x256,1024x1024x1024")
    parser.add_argument("--batches", default="256,2048,8192,32768")
    args = parser.parse_args()
    torch.set_num_threads(1)
    host = host_seconds(args.algorithm)
    vars(flat)["float"] = lambda _: 1.0  # tensors without numbers have no norm,
    vars(torch)["autocast"] = lambda *_, **__: nullcontext()  # nor precisions
    print(
        f"SIMULATED. The host asks for an operation in {1e6 * host:.1f} us: {1e6 * LAUNCH:.0f} assumed, the rest measured here."
    )
    print("Ratios are to one GPU: `at once` is mode simultaneous, `async` mode asynchronous.")
    for network in args.networks.split(","):
        report(args.algorithm, [int(size) for size in network.split("x")], [int(rows) for rows in args.batches.split(",")], host)


if __name__ == "__main__":
    main()
