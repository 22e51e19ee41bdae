"""Round trips and hand-over of inproc, shm and zmq side by side. python benchmarks/streams.py [--rows 64] [--seconds 1]"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from srl.core.spec import Leaf
from srl.streams.base import Side, StreamSpec
from srl.streams.open import open_end
from srl.streams.peers import End
from srl.streams.wakeup import Wakeup

QUESTION = {"obs": Leaf((17,), "float32"), "first": Leaf((), "bool")}
ANSWER = {"action": Leaf((), "int64"), "logp": Leaf((), "float32"), "value": Leaf((), "float32")}
SLABS = {
    "vectors 9 kB": {"obs": Leaf((80, 17), "float32"), "action": Leaf((80,), "int64"), "rest": Leaf((80, 4), "float32")},
    "32 x 64 rows, 0.2 MB": {"obs": Leaf((33, 64, 17), "float32"), "rest": Leaf((32, 64, 8), "float32")},
    "Atari 2.3 MB": {"obs": Leaf((80, 4, 84, 84), "uint8"), "rest": Leaf((80, 4), "float32")},
}
PARAMS = {"6 k": 6_000, "1 M": 1_000_000}
VIAS = ("inproc", "shm", "ipc", "zmq")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=64, help="rows of one question")
    parser.add_argument("--seconds", type=float, default=1.0, help="per figure")
    options = parser.parse_args()
    print(f"{os.cpu_count()} cores, Python {sys.version.split()[0]}, load {os.getloadavg()[0]:.1f}; us, lower is better\n")
    table("question and answer, p50 round trip", lambda via: round_trip(via, options.rows, options.seconds))
    table("question and answer, Python time of the client alone", lambda via: client_cost(via, options.rows, options.seconds))
    table(
        f"the same per agent step, {options.rows} rows",
        lambda via: client_cost(via, options.rows, options.seconds) / options.rows,
    )
    for name, record in SLABS.items():
        table(
            f"slab, Python time of put, get and release, {name}",
            lambda via, record=record: hand_over(via, record, options.seconds),
        )
    for name, record in SLABS.items():
        table(f"slab, put until released, {name}", lambda via, record=record: released(via, record, options.seconds))
    for name, count in PARAMS.items():
        table(f"parameters adopted, {name}", lambda via, count=count: adopt(via, count, options.seconds))
    table("look for newer parameters, none there", lambda via: look(via))


def table(title: str, measure: Callable[[str], float]) -> None:
    figures = {via: measure(via) for via in VIAS}
    print(f"{title:62s}" + "".join(f"{via} {figure:9.2f}   " for via, figure in figures.items()), flush=True)


class Pair:
    """A near end here and a far end: in this process for inproc, in another one otherwise."""

    def __init__(self, via: str, kind: str, near: Side, far: Side, record: Any, answer: Any = None, **sizes: int) -> None:
        self.spec = StreamSpec(name="bench", kind=kind, via=via, record=record, answer=answer or {})  # type: ignore[arg-type]
        self.wakeup = Wakeup()
        self.far: End | None = None
        self.process: Any = None
        self.near: Any = open_end(self.spec, near, name="bench:near/0", wakeup=self.wakeup, **sizes)
        if via == "inproc":
            self.far = open_end(self.spec, far, name="bench:far/0", wakeup=self.wakeup)
            self.step = STEPS[far](self.far)
            join(self.near, self.far)
        else:
            self._start(far)

    def _start(self, far: Side) -> None:
        here, there = multiprocessing.get_context("fork").Pipe()
        self.process = multiprocessing.get_context("fork").Process(target=serve, args=(there, self.spec, far), daemon=True)
        self.process.start()
        address = here.recv()
        here.send(dict(self.near.address()))
        self.near.attach("bench:far/0", address)

    def turn(self) -> None:
        """Let the far end act, or wait for it."""
        if self.far is not None:
            self.wakeup.deliver()
            next(self.step)
        elif not self.wakeup.deliver():
            self.wakeup.wait(1.0)
            self.wakeup.deliver()

    def close(self) -> None:
        if self.process is not None:
            self.process.terminate()
            self.process.join()
        self.near.close()
        if self.far is not None:
            self.far.close()
        self.wakeup.close()


def join(near: End, far: End) -> None:
    near.attach(far.name, far.address())
    far.attach(near.name, near.address())


def serve(pipe: Any, spec: StreamSpec, side: Side) -> None:
    wakeup = Wakeup()
    end = open_end(spec, side, name="bench:far/0", wakeup=wakeup)
    pipe.send(dict(end.address()))
    end.attach("bench:near/0", pipe.recv())
    step = STEPS[side](end)
    while True:
        if not wakeup.deliver() + next(step):
            wakeup.wait(1.0)


def answer_all(server: Any) -> Iterator[int]:
    answers: dict[int, Any] = {}
    while True:
        asked = server.take(1024, 0)
        if asked is not None:
            units = sum(asked.sizes)
            if units not in answers:
                answers[units] = {
                    "action": np.zeros(units, np.int64),
                    "logp": np.zeros(units, np.float32),
                    "value": np.zeros(units, np.float32),
                }
            asked.reply(answers[units], 1)
        yield 1 if asked is not None else 0


def take_all(consumer: Any) -> Iterator[int]:
    for number in range(4):
        consumer.credit(number, 0)
    while True:
        loan = consumer.get()
        if loan is not None:
            consumer.credit(loan.credit + 4, 0)
            loan.release()
        yield 1 if loan is not None else 0


def publish_all(publisher: Any) -> Iterator[int]:
    count = publisher.spec.record["w"].shape[0]
    tree = {"w": np.zeros(count, np.float32)}
    number, due = 0, 0.0
    while True:
        done = 0
        if time.perf_counter() >= due:
            number, done, due = number + 1, 1, time.perf_counter() + 0.002
            publisher.publish(number, tree)
        yield done


STEPS: dict[str, Any] = {"server": answer_all, "consumer": take_all, "publisher": publish_all}


def round_trip(via: str, rows: int, seconds: float) -> float:
    pair, question = infer(via, rows)
    times = []
    end = time.perf_counter() + seconds
    while (start := time.perf_counter()) < end:
        pair.near.post(0, question, 0)
        while pair.near.ready(0) is None:
            pair.turn()
        times.append(time.perf_counter() - start)
    pair.close()
    return float(np.median(times)) * 1e6


def client_cost(via: str, rows: int, seconds: float) -> float:
    """What a step of the client pays: CPU time of post, deliver and ready, without sleeping; the far end is not in it."""
    pair, question = infer(via, rows)
    times = []
    clock = time.perf_counter
    end = clock() + seconds
    while clock() < end:
        start = clock()
        pair.near.post(0, question, 0)
        spent = clock() - start
        if pair.far is None:
            pair.wakeup.wait(1.0)
        else:
            next(pair.step)
        while True:
            start = clock()
            pair.wakeup.deliver()
            ready = pair.near.ready(0)
            spent += clock() - start
            if ready is not None:
                break
            if pair.far is None:
                pair.wakeup.wait(1.0)
        times.append(spent)
    pair.close()
    return float(np.median(times)) * 1e6


def infer(via: str, rows: int) -> tuple[Pair, Any]:
    pair = Pair(via, "infer", "client", "server", QUESTION, ANSWER, units=rows)
    return pair, {"obs": np.zeros((rows, 17), np.float32), "first": np.zeros(rows, bool)}


def hand_over(via: str, record: Any, seconds: float) -> float:
    """Both ends in this process, each with its wakeup: what the two of them pay together, without waiting."""
    spec = StreamSpec(name="bench", kind="sample", via=via, record=record)  # type: ignore[arg-type]
    wakeups = [Wakeup(), Wakeup()]
    producer: Any = open_end(spec, "producer", name="bench:near/0", wakeup=wakeups[0], slots=2)
    consumer: Any = open_end(spec, "consumer", name="bench:far/0", wakeup=wakeups[1])
    join(producer, consumer)
    times, clock = [], time.perf_counter
    end, number = clock() + seconds, 0
    while clock() < end:
        consumer.credit(number, 0)
        number += 1
        while (slab := producer.alloc()) is None:
            for wakeup in wakeups:
                wakeup.deliver()
        freed, loan = producer.counts.released, None
        start = clock()
        producer.put(slab)
        spent = clock() - start
        while loan is None:
            start = clock()
            wakeups[1].deliver()
            if (loan := consumer.get()) is not None:
                loan.release()
                spent += clock() - start
        while producer.counts.released == freed:
            start = clock()
            wakeups[0].deliver()
        times.append(spent + clock() - start)
    for one in (producer, consumer, *wakeups):
        one.close()
    return float(np.median(times)) * 1e6


def released(via: str, record: Any, seconds: float) -> float:
    """The far end in another process, asleep until the wakeup rings."""
    pair = Pair(via, "sample", "producer", "consumer", record, slots=2)
    times = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        while (slab := pair.near.alloc()) is None:
            pair.turn()
        before = pair.near.counts.released
        start = time.perf_counter()
        pair.near.put(slab)
        while pair.near.counts.released == before:
            pair.turn()
        times.append(time.perf_counter() - start)
    pair.close()
    return float(np.median(times)) * 1e6


def adopt(via: str, count: int, seconds: float) -> float:
    pair = Pair(via, "param", "subscriber", "publisher", {"w": Leaf((count,), "float32")})
    seen, times = -1, []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pair.turn()
        start = time.perf_counter()
        found = pair.near.latest(seen)
        if found is not None:
            times.append(time.perf_counter() - start)
            seen = found[0]
    pair.close()
    return float(np.median(times)) * 1e6


def look(via: str) -> float:
    pair = Pair(via, "param", "subscriber", "publisher", {"w": Leaf((64,), "float32")})
    pair.turn()
    while (found := pair.near.latest(-1)) is None:
        pair.turn()
    latest, rounds = pair.near.latest, 20_000
    start = time.perf_counter()
    for _ in range(rounds):
        latest(found[0] + 1_000_000)
    spent = time.perf_counter() - start
    pair.close()
    return spent / rounds * 1e6


if __name__ == "__main__":
    main()
