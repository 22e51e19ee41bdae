"""Playback: the slabs of a recording as a sample stream, in the place of actors."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast

import numpy as np

from srl.core.errors import UserError
from srl.core.files import usable_path
from srl.core.load import option
from srl.core.spec import TreeSpec, spec_of
from srl.core.tree import Array, Tree, leaves
from srl.graph.spec import Graph, Node
from srl.plan.specs import Derived
from srl.replay.recording import About, check_record, played
from srl.streams.peers import End
from srl.streams.sample import SampleProducer
from srl.workers.base import Context, Port, Resumable, Worker


@dataclass(frozen=True, kw_only=True)
class PlaybackArgs:
    folder: str = option(help="a recording: the folder of `record`")
    times: int | None = option(1, "how often it is played before the run ends; null: until something else ends the run", low=1)
    speed: float | None = option(None, "1: as fast as it was recorded, 2: twice as fast; null: as slabs are asked for", above=0)

    @cached_property
    def recorded(self) -> About:
        """What is recorded there."""
        return About.read(usable_path(self.folder))

    groups = property(lambda self: self.recorded.groups)
    steps = property(lambda self: self.recorded.record["valid"].shape[0])
    envs = property(lambda self: self.recorded.record["valid"].shape[1])


class PlaybackWorker(Resumable, Worker):
    """Plays slabs in the order in which they were recorded. Each counts as old as its consumer allows, whatever recorded it."""

    ports = {"samples": Port("sample", "producer")}
    Args = PlaybackArgs
    noun = "playback"
    advice = ("a faster disk", "a faster disk")
    args: PlaybackArgs

    def __init__(self, args: PlaybackArgs, ends: Mapping[str, End], context: Context) -> None:
        super().__init__(args, ends, context)
        self._sink = cast(SampleProducer, next(iter(ends.values())))
        self._draining = False
        self._slabs, self._number = self._read(), 0
        self._take()

    @classmethod
    def about(cls, args: PlaybackArgs) -> str:
        often = "again and again" if args.times is None else "once" if args.times == 1 else f"{args.times} times"
        return f"plays the slabs of {args.folder} {often}"

    @classmethod
    def check(cls, args: PlaybackArgs, node: Node, graph: Graph) -> None:
        """One worker, which plays everything; inline nothing depends on a clock."""
        if node.count > 1 or (args.speed is not None and graph.mode == "inline"):
            key = "count" if node.count > 1 else "speed"
            because = "each would play everything" if node.count > 1 else "with mode=inline nothing depends on a clock"
            raise UserError(f"'{node.name}' must have no {key}: {because}", code="E04", path=("workers", node.name, key))

    @classmethod
    def declares(cls, args: PlaybackArgs, port: str, derived: Derived, known: Mapping[str, TreeSpec]) -> TreeSpec | None:
        """What actors of this run would record."""
        info = derived.policies[port.partition(":")[2] or next(iter(derived.policies))]
        record = info.slab(args.steps, args.envs)
        check_record(args.folder, record, args.recorded.record)
        return record

    def poll(self) -> int:
        """Send what is asked for and due."""
        done = 0
        while not (self._draining or self.finished) and (self.wake_at() or 0) <= time.monotonic() and self._play():
            done += 1
        return done

    def wake_at(self) -> float | None:
        speed = self.args.speed
        return None if speed is None or self._next is None else self._start + self._next[0] / speed

    @property
    def finished(self) -> bool:
        return self._next is None

    def drain(self) -> bool:
        self._draining = True
        return True

    def barrier(self, number: int) -> None:
        self._sink.withdraw()

    def state(self) -> Tree:
        return {"number": np.array([self._number])}

    def restore(self, state: Tree) -> None:
        self._number = int(cast("dict[str, Any]", state)["number"][0])
        self._slabs = itertools.islice(self._read(), self._number, None)
        self._take()

    def _play(self) -> bool:
        """Send the next slab, if it was asked for."""
        if self._next is None or (slab := self._sink.alloc()) is None:
            return False
        target, recorded = cast("dict[str, Any]", slab.tree), self._next[1]
        for path, leaf in leaves(target):
            leaf[...] = recorded[path] if path in recorded and recorded[path].shape == leaf.shape else 0  # memory of another kind
        target["version"][...], target["reused"][...] = slab.min_version, False
        if "origin" in target and "origin" not in recorded:
            target["origin"][1] = 2 * self._number  # it is not known what follows what
        self.reading.count("env_steps", float(recorded["valid"].any(axis=2).sum()))
        self._sink.put(slab)
        self._number += 1
        self._take()
        return True

    def _take(self) -> None:
        self._next = next(self._slabs, None)
        if self._next is not None and self._next[0] == 0:
            self._start = time.monotonic()

    def _read(self) -> Iterator[tuple[float, dict[str, Array]]]:
        for _ in itertools.count() if self.args.times is None else range(self.args.times):
            for at, slab in played(usable_path(self.args.folder)):
                if at == 0:  # of one file all are alike
                    check_record(self.args.folder, self._sink.spec.record, spec_of(slab))
                yield at, slab
