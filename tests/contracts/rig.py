"""Ends of one stream on a transport of choice, each on its own wakeup, as if in processes of their own."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

from srl.core.spec import Leaf
from srl.streams.base import Side, StreamSpec
from srl.streams.infer import InferClient, InferServer
from srl.streams.open import open_end
from srl.streams.param import ParamPublisher, ParamSubscriber
from srl.streams.peers import End
from srl.streams.sample import SampleConsumer, SampleProducer
from srl.streams.sum import RECORD
from srl.streams.transport import Network
from srl.streams.wakeup import Wakeup
from srl.streams.zmq import new_curve_keys

VIAS = ["inproc", "shm", "ipc", "tcp", "curve"]
SLAB = {"who": Leaf((1,), "int64"), "nested": {"number": Leaf((3,), "int64"), "flags": Leaf((5,), "bool")}}
QUESTION = {"obs": Leaf((4,), "float32"), "first": Leaf((), "bool")}
ANSWER = {"action": Leaf((), "int64"), "value": Leaf((2,), "float32")}
PARAMS = {"w": Leaf((64,), "float32"), "head": {"b": Leaf((3,), "float32")}}


class Rig:
    """Opens ends, joins them, pumps their wakeups, closes everything."""

    def __init__(self, via: str) -> None:
        self.via = via
        self.ends: list[End] = []
        self.wakeups: list[Wakeup] = []

    def spec(self, kind: str, **more: Any) -> StreamSpec:
        records = {
            "sample": {"record": SLAB},
            "infer": {"record": QUESTION, "answer": ANSWER},
            "param": {"record": PARAMS},
            "sum": {"record": RECORD},
        }
        name = self.via if self.via in ("inproc", "shm", "ipc") else "zmq"
        return StreamSpec(**{"name": kind, "kind": kind, "via": name, **records[kind], **more})

    def open(self, spec: StreamSpec, side: Side, worker: str, **sizes: int) -> Any:
        name = f"{spec.name}:{worker}"
        end = open_end(spec, side, name=name, wakeup=self.wakeup(), network=self.network(), **sizes)
        self.ends.append(end)
        return end

    def wakeup(self) -> Wakeup:
        if self.via != "inproc" or not self.wakeups:
            self.wakeups.append(Wakeup())
        return self.wakeups[-1]

    def network(self) -> Network:
        return Network(curve=new_curve_keys()) if self.via == "curve" else Network()

    def join(self, ones: Iterable[End], others: Iterable[End]) -> None:
        others = list(others)
        for one in ones:
            for other in others:
                one.attach(other.name, other.address())
                other.attach(one.name, one.address())

    @property
    def remote(self) -> bool:
        """Messages take their time."""
        return self.via in ("ipc", "tcp", "curve")

    def pump(self) -> int:
        return sum(wakeup.deliver() for wakeup in self.wakeups)

    def until(self, done: Callable[[], Any], limit: float = 20.0) -> Any:
        """Pump until `done()` says something; what it said."""
        deadline = time.monotonic() + limit
        turn = 0
        while True:
            came = self.pump()
            said = done()
            if said:
                return said
            assert time.monotonic() < deadline, f"still waiting: {[end.waits() for end in self.ends]}"
            if not came and self.remote:
                turn += 1
                self.wakeups[turn % len(self.wakeups)].wait(0.001)

    def settle(self, rounds: int = 2) -> None:
        """Pump until nothing comes any more: for claims that something does not happen."""
        quiet = 0
        while quiet < rounds:
            if self.pump():
                quiet = 0
            else:
                quiet += 1
                if self.remote:
                    self.wakeups[quiet % len(self.wakeups)].wait(0.015)

    def close_end(self, end: End) -> None:
        end.close()
        self.ends.remove(end)

    def close(self) -> None:
        for end in self.ends:
            end.close()
            end.close()
        for wakeup in self.wakeups:
            wakeup.close()
            wakeup.close()

    # shorthands -----------------------------------------------------------------------------------------------------

    def producer(self, worker: str = "actor/0", slots: int = 2, **more: Any) -> SampleProducer:
        return self.open(self.spec("sample", **more), "producer", worker, slots=slots)

    def consumer(self, worker: str = "trainer/0", **more: Any) -> SampleConsumer:
        return self.open(self.spec("sample", **more), "consumer", worker)

    def client(self, worker: str = "actor/0", groups: int = 1, units: int = 2) -> InferClient:
        return self.open(self.spec("infer"), "client", worker, groups=groups, units=units)

    def server(self, worker: str = "policy/0") -> InferServer:
        return self.open(self.spec("infer"), "server", worker)

    def publisher(self, worker: str = "trainer/0") -> ParamPublisher:
        return self.open(self.spec("param"), "publisher", worker)

    def subscriber(self, worker: str = "policy/0") -> ParamSubscriber:
        return self.open(self.spec("param"), "subscriber", worker)


def fill(tree: Any, who: int, number: int) -> None:
    """Write a slab that says who made it, and as which."""
    tree["who"][:] = who
    tree["nested"]["number"][:] = number
    tree["nested"]["flags"][:] = [number % 2 == 0, True, False, True, number % 3 == 0]


def read(tree: Any) -> tuple[int, int]:
    """(who, number) of a slab, checked for being whole."""
    number = int(tree["nested"]["number"][0])
    assert (tree["nested"]["number"] == number).all()
    assert tree["nested"]["flags"].tolist() == [number % 2 == 0, True, False, True, number % 3 == 0]
    return int(tree["who"][0]), number


def rows(units: int, number: float) -> dict[str, Any]:
    return {"obs": np.full((units, 4), number, np.float32), "first": np.zeros(units, bool)}


def answer_to(asked_rows: Any) -> dict[str, Any]:
    """An answer that can be checked against its question."""
    obs = asked_rows["obs"]
    return {"action": obs[:, 0].astype(np.int64), "value": np.stack([obs[:, 1] + 1, obs[:, 2] * 2], axis=1)}


def params(number: float) -> dict[str, Any]:
    return {"w": np.full(64, number, np.float32), "head": {"b": np.full(3, -number, np.float32)}}


def descriptors() -> int:
    """Open descriptors of this process."""
    return len(list(Path("/proc/self/fd").iterdir()))
