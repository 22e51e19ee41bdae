"""Streams between two network namespaces, with and without CURVE. As root: python benchmarks/links.py [--seconds 2] [--rounds 3]

Both ends and the kernel's bridge share the cores of this machine, so this is what a link costs, not what a network card can do.
"""

from __future__ import annotations

import argparse
import ctypes
import multiprocessing
import os
import statistics
import subprocess
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from srl.core.spec import Leaf
from srl.streams.base import StreamSpec
from srl.streams.open import open_end
from srl.streams.transport import Network
from srl.streams.wakeup import Wakeup
from srl.streams.zmq import new_curve_keys

NAMES, ADDRESSES = ("srl-l1", "srl-l2"), ("10.79.0.1", "10.79.0.2")
RECORDS: dict[str, Any] = {
    "question of 64 B": {"obs": Leaf((16,), "float32")},
    "question of 20 kB": {"obs": Leaf((5000,), "float32")},
    "slab of 0.2 MB": {"obs": Leaf((33, 64, 24), "float32")},
    "slab of 2 MB": {"obs": Leaf((80, 6400), "float32")},
    "version of 6 MB": {"w": Leaf((1_500_000,), "float32")},
}
ANSWER = {"action": Leaf((), "int64")}
SIDES = {
    "question": ("infer", "client", "server"),
    "slab": ("sample", "producer", "consumer"),
    "version": ("param", "publisher", "subscriber"),
}
_NEWNET = 0x40000000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=2.0, help="per figure")
    parser.add_argument("--rounds", type=int, default=3, help="in turns; the median counts")
    given = parser.parse_args()
    network(up=True)
    try:
        for name, record in RECORDS.items():
            figures: dict[bool, list[tuple[float, float]]] = {False: [], True: []}
            for _ in range(given.rounds):
                for encrypt, found in figures.items():
                    found.append(measure(name.partition(" ")[0], record, given.seconds, encrypt))
            words = [text(name, record, encrypt, found) for encrypt, found in figures.items()]
            print(f"{name:18s} {words[0]}   with CURVE {words[1]}", flush=True)
    finally:
        network(up=False)


def text(name: str, record: Any, encrypt: bool, found: list[tuple[float, float]]) -> str:
    """p50 of one, and bytes per second where they count."""
    one, rate = (statistics.median(each) for each in zip(*found, strict=True))
    size = sum(np.prod(leaf.shape) * np.dtype(leaf.dtype).itemsize for leaf in record.values())
    return f"{1e6 * one:8,.0f} us" + ("" if name.startswith("question") else f", {rate * size * 8e-9:5.1f} Gbit/s")


def measure(kind: str, record: Any, seconds: float, encrypt: bool) -> tuple[float, float]:
    """Median seconds from the request of one record to its answer, and records per second with several under way."""
    fork = multiprocessing.get_context("fork")
    ours, theirs = fork.Pipe()
    results, told = fork.Pipe()
    far = fork.Process(target=serve, args=(theirs, kind, record, encrypt), daemon=True)
    near = fork.Process(target=ask, args=(ours, told, kind, record, seconds, encrypt), daemon=True)
    far.start()
    near.start()
    found: tuple[float, float] = results.recv()
    for process in (near, far):
        process.terminate()
        process.join()
    return found


def opened(at: int, kind: str, record: Any, encrypt: bool, **sizes: int) -> tuple[Any, Wakeup]:
    """An end in the namespace of this number."""
    with open(f"/run/netns/{NAMES[at]}") as place:
        if ctypes.CDLL(None, use_errno=True).setns(place.fileno(), _NEWNET):
            raise OSError(ctypes.get_errno(), "setns")
    wakeup = Wakeup()
    stream, *sides = SIDES[kind]
    spec = StreamSpec(name="bench", kind=stream, via="zmq", record=record, answer=ANSWER if kind == "question" else {})  # type: ignore[arg-type]
    curve = new_curve_keys() if encrypt else None
    name, binds = f"bench:end/{at}", Network(bind=f"tcp://{ADDRESSES[at]}", curve=curve)
    return open_end(spec, sides[at], name=name, wakeup=wakeup, network=binds, **sizes), wakeup  # type: ignore[arg-type]


def attach(end: Any, pipe: Any) -> None:
    pipe.send(dict(end.address()))
    address = pipe.recv()
    end.attach(address["name"], address)


def serve(pipe: Any, kind: str, record: Any, encrypt: bool) -> None:
    """The far end: the server, the consumer, the subscriber."""
    end, wakeup = opened(1, kind, record, encrypt)
    attach(end, pipe)
    number = 4
    if kind == "slab":
        for credit in range(number):
            end.credit(credit, 0)
    version = -1
    answers = {"action": np.zeros(1, np.int64)}
    while True:
        done = wakeup.deliver()
        if kind == "question" and (asked := end.take(1, 0)) is not None:
            asked.reply(answers, 0)
        elif kind == "slab" and (loan := end.get()) is not None:
            loan.release()
            end.credit(number, 0)
            number += 1
        elif kind == "version" and (found := end.latest(version)) is not None:
            version = found[0]
            pipe.send(version)
        elif not done:
            wakeup.wait(0.1)


def ask(pipe: Any, told: Any, kind: str, record: Any, seconds: float, encrypt: bool) -> None:
    """The near end: one at a time, then as many as may be under way."""
    sizes = {"question": {"groups": 1, "units": 1}, "slab": {"slots": 4}}.get(kind, {})
    end, wakeup = opened(0, kind, record, encrypt, **sizes)
    attach(end, pipe)
    tree = {name: np.zeros(leaf.shape, leaf.dtype) for name, leaf in record.items()}
    rows = {name: leaf[None] for name, leaf in tree.items()}

    def wait(done: Callable[[], Any]) -> Any:
        while not (found := done()):
            if not wakeup.deliver():
                wakeup.wait(0.1)
        return found

    count = 0

    def once() -> None:
        nonlocal count
        count += 1
        if kind == "question":
            end.post(0, rows, 0)
            wait(lambda: end.ready(0))
        elif kind == "version":
            end.publish(count, tree)
            while not pipe.poll():
                if not wakeup.deliver():
                    wakeup.wait(0.001)
            pipe.recv()
        else:
            released = end.counts.released
            end.put(wait(end.alloc))
            wait(lambda: end.counts.released > released)

    for _ in range(5):
        once()
    times, stop = [], time.perf_counter() + seconds
    while time.perf_counter() < stop:
        begun = time.perf_counter()
        once()
        times.append(time.perf_counter() - begun)
    many, begun = 0, time.perf_counter()
    while kind == "slab" and time.perf_counter() < begun + seconds:
        end.put(wait(end.alloc))
        many += 1
    rate = many / (time.perf_counter() - begun) if kind == "slab" else len(times) / seconds
    told.send((statistics.median(times), rate))


def network(*, up: bool) -> None:
    """Two namespaces, joined by a pair of virtual cards."""
    if not up:
        for name in NAMES:
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)
        return
    if os.geteuid():
        raise SystemExit("network namespaces need root")
    for name in NAMES:
        run("ip", "netns", "add", name)
    run("ip", "link", "add", "eth0", "netns", NAMES[0], "type", "veth", "peer", "name", "eth0", "netns", NAMES[1])
    for name, address in zip(NAMES, ADDRESSES, strict=True):
        run("ip", "-n", name, "addr", "add", f"{address}/24", "dev", "eth0")
        for device in ("lo", "eth0"):
            run("ip", "-n", name, "link", "set", device, "up")


def run(*command: str) -> None:
    subprocess.run(command, check=True)


if __name__ == "__main__":
    main()
