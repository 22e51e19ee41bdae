"""One worker of an experiment, alone on a stage: the test holds the other end of each of its streams, in one process."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Self

from srl.core.types import BoundEnd, WorkerId
from srl.plan.prepare import prepare
from srl.streams.base import Side
from srl.streams.open import open_end
from srl.workers.loop import WorkerLoop

_OPPOSITE: dict[str, Side] = {
    "producer": "consumer",
    "consumer": "producer",
    "client": "server",
    "server": "client",
    "publisher": "subscriber",
    "subscriber": "publisher",
}


class Stage:
    """`ends` are those of the test, by port of the worker."""

    def __init__(self, worker: str, settings: dict[str, Any], *overrides: str, groups: int = 1, units: int = 1) -> None:
        prepared = prepare(settings=settings, overrides=["mode=inline", *overrides])
        self.graph, self.derived = prepared.graph, prepared.derived
        self.loop = WorkerLoop(prepared.graph, prepared.derived, [WorkerId(worker, 0)], inline=True)
        self.ends: dict[str, Any] = {}
        for bound in self.loop.bound():
            stream = self.derived.streams[bound.stream]
            sizes = {"server": {"groups": groups, "units": units}, "consumer": {"slots": 4}}.get(bound.side, {})
            end = open_end(stream, _OPPOSITE[bound.side], name=f"{bound.stream}:test/0", wakeup=self.loop.wakeup, **sizes)
            peer = BoundEnd(bound.stream, "test/0", "test", _OPPOSITE[bound.side], end.address())
            self.loop.attach({f"{worker}/0": {bound.port: [peer]}})
            end.attach(bound.name, bound.address)
            self.ends[bound.port] = end
        self.loop.make()
        self.worker: Any = self.loop.workers[f"{worker}/0"]

    def poll(self) -> int:
        """One sweep."""
        return self.loop.sweep()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for end in self.ends.values():
            end.close()
        self.loop.close()
