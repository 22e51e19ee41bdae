"""Parameters to many hosts: every actor by itself, one relay for each host, and a tree of relays.
python benchmarks/relays.py [--hosts 64] [--actors 8] [--megabytes 1]

Hosts are processes of this machine, joined by encrypted sockets; within a host the actors read the relay's shared memory.
So the time is that of the processor, not of a network: what counts is how much is sent, by whom.
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import statistics
import time
from typing import Any

import numpy as np

from srl.core.spec import Leaf
from srl.streams.base import StreamSpec
from srl.streams.open import open_end
from srl.streams.transport import Network
from srl.streams.wakeup import Wakeup
from srl.streams.zmq import new_curve_keys


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hosts", type=int, default=64)
    parser.add_argument("--actors", type=int, default=8, help="of each host")
    parser.add_argument("--megabytes", type=float, default=1.0, help="of one version")
    parser.add_argument("--fan-out", type=int, default=8)
    parser.add_argument("--versions", type=int, default=5)
    given = parser.parse_args()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    for way in ("by itself", "relays", "tree"):
        print(f"{way:10s} " + measure(way, given), flush=True)


def measure(way: str, given: argparse.Namespace) -> str:
    """Median seconds from a publication until all actors have the version, and the trainer's processor time of it."""
    size = int(given.megabytes * 250_000)
    record = {"w": Leaf((size,), "float32")}
    fork = multiprocessing.get_context("fork")
    pipes = [fork.Pipe() for _ in range(given.hosts)]
    roots = given.hosts if way != "tree" else min(given.fan_out, given.hosts)
    hosts = [
        fork.Process(target=host, args=(pipes[number][1], number, record, way, given.actors), daemon=True)
        for number in range(given.hosts)
    ]
    for one in hosts:
        one.start()
    wakeup = Wakeup()
    trainer = opened("publisher", "trainer/0", record, wakeup)
    own = dict(trainer.address())
    told = [pipe.recv() for pipe, _ in pipes]
    for number, (pipe, _) in enumerate(pipes):
        far = told[number // given.fan_out - 1]["far"] if number >= roots else None
        children = range(given.fan_out * (number + 1), given.fan_out * (number + 2)) if way == "tree" else ()
        pipe.send((own if far is None else far, [told[child]["source"][0] for child in children if child < given.hosts]))
        if far is None:
            for one in told[number]["source"]:
                trainer.attach(one["name"], one)
    times, used = [], []
    for version in range(given.versions + 1):
        tree = {"w": np.full(size, version, np.float32)}
        begun, cpu = time.perf_counter(), time.process_time()
        trainer.publish(version, tree)
        waiting = set(range(given.hosts))
        while waiting:
            if not wakeup.deliver():
                wakeup.wait(0.002)
            for number in list(waiting):
                if pipes[number][0].poll():
                    assert pipes[number][0].recv() == version
                    waiting.discard(number)
        times.append(time.perf_counter() - begun)
        used.append(time.process_time() - cpu)
    for one in hosts:
        one.terminate()
        one.join()
    trainer.close()
    wakeup.close()
    fetched = given.hosts * (given.actors if way == "by itself" else 1)
    return (
        f"{statistics.median(times[1:]):7.3f} s until {given.hosts * given.actors} actors have it,"
        f" {statistics.median(used[1:]):7.3f} s of the trainer's processor time; {fetched} fetched over sockets"
    )


def opened(side: Any, name: str, record: Any, wakeup: Wakeup, via: str = "zmq", stream: str = "params") -> Any:
    spec = StreamSpec(name=stream, kind="param", via=via, record=record)
    return open_end(spec, side, name=f"{stream}:{name}", wakeup=wakeup, network=Network(curve=new_curve_keys()))


def host(pipe: Any, number: int, record: Any, way: str, actors: int) -> None:
    """All of one host in one process: its relay, and the ends of its actors."""
    wakeup = Wakeup()
    direct = way == "by itself"
    sources = [opened("subscriber", f"reader/{number * actors + one}", record, wakeup) for one in range(actors if direct else 1)]
    far = None if direct else opened("publisher", f"relay/{number}", record, wakeup)
    near = None if direct else opened("publisher", f"near/{number}", record, wakeup, "shm", "near")
    readers = [] if direct else [opened("subscriber", f"actor/{one}", record, wakeup, "shm", "near") for one in range(actors)]
    for reader in readers:
        reader.attach(near.name, near.address())
        near.attach(reader.name, reader.address())
    pipe.send({"source": [dict(one.address()) for one in sources], "far": dict(far.address()) if far is not None else None})
    parent, children = pipe.recv()
    for one in sources:
        one.attach(parent["name"], parent)
    for child in children:
        far.attach(child["name"], child)
    seen = [-1] * actors
    passed = -1
    while True:
        if not wakeup.deliver():
            wakeup.wait(0.5)
        if not direct and (found := sources[0].latest(passed)) is not None:
            passed, tree = found
            far.publish(passed, tree)
            near.publish(passed, tree)
        before = min(seen)
        for index, end in enumerate(readers or sources):
            if (found := end.latest(seen[index])) is not None:
                seen[index] = found[0]
        if min(seen) > before:
            pipe.send(min(seen))


if __name__ == "__main__":
    main()
