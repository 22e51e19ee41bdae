"""PPO on CartPole with one and with two trainers, in turn: updates, then whole runs. About two minutes on idle cores.

    python benchmarks/ranks.py [--rounds 5] [--seconds 1] [--runs 3] [--run-seconds 12]
    python benchmarks/ranks.py --sums 300

Each process trains a batch that lies in its memory, as the trainers of a run do: the whole one, or its half. Printed are CPU
and wall time of an update, and how much of it the trainers wait for each other. On quiet cores the wall time is the rate of a
run that its trainers limit; where cores are shared with others, the CPU time of the busiest trainer says what it would be.

Whole runs are those of experiment cartpole_fast, whose actors need cores too, some of them with a vectorised env and some in one
process for each trainer: median env steps a second of their second half.

With --sums nothing is trained: two processes sum so many times, through shared memory and as trainers on two hosts do, over
loopback TCP.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
import torch

from srl.algorithms.ppo import PPO
from srl.api.batch import Ranks
from srl.api.env import Discrete
from srl.api.policy import PolicySpec
from srl.api.slab import SlabShape, slab_spec
from srl.core.spec import Leaf, zeros
from srl.learners.base import Task
from srl.learners.ranks import Meeting
from srl.learners.single import SingleLearner
from srl.nets.actor_critic import ActorCritic
from srl.plan.prepare import prepare
from srl.streams.base import StreamSpec
from srl.streams.open import open_end
from srl.streams.sum import RECORD
from srl.streams.transport import Network
from srl.streams.wakeup import Wakeup
from srl.streams.zmq import new_curve_keys
from srl.workers.sums import StreamSums

from timed import rate_of

CASES = {
    "cartpole: 1,024 rows, minibatch 256, 10 epochs, 2 x 64": (1024, 256, 10, 64),
    "cartpole_fast: 8,192 rows, minibatch 1,024, 4 epochs, 2 x 64": (8192, 1024, 4, 64),
    "wide: 8,192 rows, minibatch 2,048, 4 epochs, 2 x 256": (8192, 2048, 4, 256),
}
STEPS = 32
WAYS = ("shared memory", "TCP", "TCP with CURVE")
SUMMED = (5_000, 150_000)
"""Floats."""


class Timed(Ranks):
    """Notes how long each message takes."""

    def __init__(self, ranks: Ranks) -> None:
        super().__init__(ranks.index, ranks.size)
        self.sums = ranks.sums
        self.calls, self.seconds, self.cpu = 0, 0.0, 0.0

    def total(self, x: torch.Tensor) -> torch.Tensor:
        wall, cpu = time.perf_counter(), time.process_time()
        super().total(x)
        self.calls += 1
        self.seconds += time.perf_counter() - wall
        self.cpu += time.process_time() - cpu
        return x


def learner(rows: int, minibatch: int, epochs: int, width: int, ranks: Ranks | None) -> tuple[SingleLearner, dict[str, Any]]:
    """With its rows, all of which are valid."""
    spec = PolicySpec(obs=Leaf((4,), "float32"), action=Discrete(2))
    shape = SlabShape(steps=STEPS, envs=rows // STEPS, agents=1)
    batch = zeros(
        slab_spec(shape, spec, memory={}, extra={name: Leaf((), "float32") for name in ("log_prob", "value")}, signals={})
    )
    noise = np.random.default_rng(0)
    for leaf in (batch["obs"], batch["reward"]):
        leaf[...] = noise.standard_normal(leaf.shape)
    batch["valid"][...] = True
    batch["action"][...] = noise.integers(0, 2, batch["action"].shape)
    batch["extra"]["log_prob"][...] = -0.7
    made = SingleLearner(Task(
        algorithm=PPO, config=PPO.Config(epochs=epochs, minibatch=minibatch), policy=ActorCritic,
        policy_config=ActorCritic.Config(hidden=(width, width)), spec=spec, seed=0, shape=shape, ranks=ranks,
    ))  # fmt: skip
    return made, batch


def measured(case: tuple[int, int, int, int], ranks: Timed | None, seconds: float) -> dict[str, float]:
    """Per update, over about so many seconds of CPU time of one trainer."""
    rows, minibatch, epochs, width = case
    made, batch = learner(rows // (ranks.size if ranks else 1), minibatch, epochs, width, ranks)
    before = time.process_time()
    for _ in range(3):
        made.update(batch)
    each = torch.tensor((time.process_time() - before) / 3)
    if ranks is not None:  # all of them make as many
        ranks.total(each)
        each /= ranks.size
        ranks.calls, ranks.seconds, ranks.cpu = 0, 0.0, 0.0
    updates = max(3, int(seconds / float(each)))
    wall, cpu = time.perf_counter(), time.process_time()
    for update in range(updates):
        made.clock.updates = update
        made.update(batch)
    found = {"wall": (time.perf_counter() - wall) / updates, "cpu": (time.process_time() - cpu) / updates}
    if ranks is not None:
        found |= {"calls": ranks.calls / updates, "sums": ranks.seconds / updates, "sums_cpu": ranks.cpu / updates}
    return found


def rank(index: int, place: str, order: Any, out: Any) -> None:
    """One of two processes: it measures whenever it is told to."""
    torch.set_num_threads(1)
    meeting = Meeting(Path(place), index, 2)
    ranks = Timed(meeting.wait())
    while (asked := order.get()) is not None:
        name, seconds = asked
        out.put((index, measured(CASES[name], ranks, seconds)))
    meeting.close()


def summing(index: int, way: str, place: str, pipe: Any, calls: int, out: Any) -> None:
    """One of two processes: seconds of each sum, and CPU seconds of all."""
    torch.set_num_threads(1)
    if way == "shared memory":
        ranks = Meeting(Path(place), index, 2).wait()
    else:
        wakeup, curve = Wakeup(), new_curve_keys() if "CURVE" in way else None
        spec = StreamSpec(name="sums", kind="sum", via="zmq", record=RECORD)
        end = open_end(spec, "rank", name=f"sums:rank/{index}", wakeup=wakeup, network=Network(curve=curve))
        pipe.send(dict(end.address()))
        address = pipe.recv()
        end.attach(address["name"], address)
        ranks = Ranks(index, 2)
        ranks.sums["cpu"] = StreamSums(end, 2, wakeup.deliver, wakeup.wait)  # type: ignore[arg-type]
    for size in SUMMED:
        x, times, cpu = torch.zeros(size), [], 0.0
        for call in range(calls + 10):
            if call == 10:
                cpu = time.process_time()
            begun = time.perf_counter()
            ranks.total(x)
            times.append(time.perf_counter() - begun)
        out.put((index, size, statistics.median(times[10:]), (time.process_time() - cpu) / calls))
    pipe.send(b"")
    pipe.recv()  # the other one may need an acknowledgement


def all_sums(calls: int, rounds: int) -> None:
    """Milliseconds of one sum, by each way in turn."""
    context = multiprocessing.get_context("spawn")
    found: dict[tuple[int, str], list[tuple[float, float]]] = {}
    for _ in range(rounds):
        for way in WAYS:
            out, pipes = context.Queue(), context.Pipe()
            with tempfile.TemporaryDirectory() as folder:
                pair = [
                    context.Process(target=summing, args=(index, way, f"{folder}/meet", pipes[index], calls, out))
                    for index in range(2)
                ]
                for process in pair:
                    process.start()
                for index, size, wall, cpu in [out.get() for _ in range(2 * len(SUMMED))]:
                    if index == 0:
                        found.setdefault((size, way), []).append((wall, cpu))
                for process in pair:
                    process.join()
    for (size, way), rows in sorted(found.items(), key=lambda one: (one[0][0], WAYS.index(one[0][1]))):
        wall, cpu = (1000 * statistics.median(each) for each in zip(*rows, strict=True))
        print(f"{size:9,} floats  {way:15} {wall:6.2f} ms  {cpu:6.2f} ms CPU")


VECTORISED, TWO = "env={use: gym_vector, id: CartPole-v1}", "workers.trainer.count=2"
RUNS: dict[str, list[str]] = {
    "one trainer": [],
    "two trainers": [TWO],
    "vectorised env, one trainer": [VECTORISED],
    "vectorised env, two trainers": [VECTORISED, TWO],
    "vectorised env, inline": [VECTORISED, "layout=inline"],
    "vectorised env, inline, two trainers": [VECTORISED, "layout=inline", TWO],
}
"""Settings of whole runs."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.0, help="of one measurement")
    parser.add_argument("--runs", type=int, default=3, help="whole runs of each kind")
    parser.add_argument("--run-seconds", type=float, default=12.0, help="of one run, from its start")
    parser.add_argument("--sums", type=int, default=0, help="measure so many sums of each size and way, and nothing else")
    args = parser.parse_args()
    if args.sums:
        all_sums(args.sums, args.rounds)
        return
    torch.set_num_threads(1)
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder:
        orders, out = [context.Queue() for _ in range(2)], context.Queue()
        pair = [context.Process(target=rank, args=(index, f"{folder}/meet", orders[index], out)) for index in range(2)]
        for process in pair:
            process.start()
        best: dict[tuple[str, int], list[dict[str, float]]] = {}
        for _ in range(args.rounds):
            for name, case in CASES.items():
                best.setdefault((name, 1), []).append(measured(case, None, args.seconds))
                for order in orders:
                    order.put((name, args.seconds))
                both = dict(out.get() for _ in orders)
                best.setdefault((name, 2), []).append({key: max(one[key] for one in both.values()) for key in both[0]})
        for order in orders:
            order.put(None)
        for process in pair:
            process.join()
    for name in CASES:
        report(name, best[name, 1], best[name, 2])
    if args.runs:
        whole_runs(args.runs, args.run_seconds)


def whole_runs(rounds: int, seconds: float) -> None:
    """Env steps a second of each case, in turn."""
    rates: dict[str, list[float]] = {name: [] for name in RUNS}
    for number in range(rounds):
        for name in list(RUNS)[:: -1 if number % 2 else 1]:
            found = prepare("cartpole_fast", [*RUNS[name], "stop={}", f"stop.seconds={seconds:g}", "evaluation=null"])
            assert found.derived is not None
            rates[name].append(rate_of(found.graph, found.derived))
    print("whole runs of cartpole_fast, env steps/s")
    for name, found_rates in rates.items():
        print(f"  {name:42s} {statistics.median(found_rates):9,.0f}   ({', '.join(f'{one:,.0f}' for one in found_rates)})")


def report(name: str, alone: list[dict[str, float]], both: list[dict[str, float]]) -> None:
    """The best of all rounds, in ms per update."""
    least = least_of(alone), least_of(both)
    print(name)
    for text, one in zip(("one trainer", "two trainers"), least, strict=True):
        print(f"  {text:13} {1000 * one['cpu']:7.2f} ms CPU  {1000 * one['wall']:7.2f} ms")
    one, two = least
    text = f"{1000 * two['sums_cpu']:.2f} ms CPU, {1000 * two['sums']:.2f} ms with waiting"
    print(f"  sums          {two['calls']:7.0f} of them, {text}")
    print(
        f"  ratio         {one['wall'] / two['wall']:7.2f} by wall time, {one['cpu'] / two['cpu']:.2f} by CPU time of one trainer"
    )


def least_of(rounds: list[dict[str, float]]) -> dict[str, float]:
    return {key: min(one[key] for one in rounds) for key in rounds[0]}


if __name__ == "__main__":
    main()
