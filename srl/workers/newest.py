"""The newest parameters of a run, read from outside: out of its trainer's memory, else from its newest checkpoint.

A trainer that publishes to other processes keeps its parameters in shared memory. The run writes down where (`params.json`), and
any process of the same user may read there: the run takes no notice, and nothing of it changes.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from srl.core.errors import UserError, WireError
from srl.core.files import read_json
from srl.core.types import BoundEnd
from srl.graph.spec import Graph
from srl.plan.specs import Derived
from srl.store import checkpoint
from srl.store.run_folder import RunFolder
from srl.store.weights import checkpoint_folder
from srl.streams.base import StreamSpec, Version, version
from srl.streams.codec import Layout, agreement
from srl.streams.shm import NewestReader, Segment

LOOK = 1.0
"""Seconds between two looks at the files of the run."""


@dataclass(frozen=True)
class Places:
    """The contents of params.json: stream -> the address of its publisher."""

    params: dict[str, Any]


def places(ends: list[BoundEnd]) -> dict[str, Any]:
    """What is written there: publishers whose memory others can read."""
    return {"params": {end.stream: dict(end.address) for end in ends if end.side == "publisher" and "memory" in end.address}}


def trained_streams(graph: Graph) -> dict[str, str]:
    """Policy -> the stream of its newest parameters: the one of a worker that takes samples too."""
    found = {}
    for node in graph.nodes:
        sides = {node.port(port).side: stream for port, stream in node.ports.items()}
        if {"consumer", "publisher"} <= set(sides):
            found[graph.stream(sides["publisher"]).policy] = sides["publisher"]
    return found


class Newest:
    """Those of one policy; call it with the version that you have."""

    def __init__(self, folder: RunFolder, graph: Graph, derived: Derived, policy: str, stream: str) -> None:
        self.source = ""
        """The checkpoint that the last ones came from; empty: the run itself."""
        self._folder, self._policy = folder, policy
        self._spec: StreamSpec = derived.streams[stream]
        self._checkpoints = checkpoint_folder(folder.path, graph.policies, policy)
        self._reader: NewestReader | None = None
        self.running = False
        """The run is under way, by its lock."""
        self._written, self._looked = 0, -LOOK
        self._checkpoint: Path | None = None
        self.look()

    def __call__(self, newer_than: Version) -> tuple[Version, Any] | None:
        """Version and record of the params stream, if there are newer ones."""
        self.look()
        if self._reader is not None:
            if (found := self._reader.read(newer_than)) is not None:
                self.source = ""
            return found
        return self._saved(newer_than)

    @property
    def live(self) -> bool:
        """They come from the run itself."""
        return self._reader is not None

    def look(self) -> None:
        """See whether the run still lives, and attach to the memory of its trainer. Does nothing most of the time."""
        now = time.monotonic()
        if now - self._looked < LOOK:
            return
        self._looked = now
        path = self._folder.params
        self.running = self._folder.is_live
        written = path.stat().st_mtime_ns if self.running and path.is_file() else 0
        if written == self._written:
            return
        self._written, self._reader = written, None
        if not written:
            return
        try:
            address = read_json(path, Places)[0].params.get(self._spec.name)
            self._reader = _reader_of(self._spec, address) if address is not None else None
        except (WireError, UserError, KeyError, TypeError, ValueError):  # it has ended meanwhile, or is on another host
            self._written = 0

    def _saved(self, newer_than: Version) -> tuple[Version, Any] | None:
        """Of a checkpoint that was not read before. One that is deleted while it is read is not looked at again."""
        path = checkpoint.latest(self._checkpoints)
        if path is None or path == self._checkpoint:
            return None
        try:
            saved = checkpoint.read(path)
            found = version(0, int(saved.state["updates"]))
            tree = {"params": saved.tree("policy"), "env_steps": np.array([int(saved.state["env_steps"])])}
        except UserError:
            if checkpoint.latest(self._checkpoints) == path and path.is_dir():
                raise  # it is damaged
            return None
        self._checkpoint = path
        if newer_than >= found:
            return None
        self.source = path.name
        return found, tree


def _reader_of(spec: StreamSpec, address: Mapping[str, Any]) -> NewestReader:
    """Reads the newest parameters of a publisher in shared memory without its knowledge."""
    if address["agreed"] != agreement(spec.record, spec.answer):
        raise WireError(f"the parameters of {address['name']} are of another shape", code="W01")
    layout, memory = Layout(spec.record), address["memory"]
    segment = Segment.attach(
        int(address["pid"]), int(memory["descriptor"]), int(memory["size"]), int(address["source"]), to_write=False
    )
    return NewestReader(layout, segment.buffer)
