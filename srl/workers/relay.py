"""A relay fetches the parameters of a policy once for all workers of its host. In a tree it serves other relays too."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

from srl.core.load import option
from srl.streams.param import ParamPublisher, ParamSubscriber
from srl.streams.peers import End
from srl.workers.base import Context, Port, Worker


@dataclass(frozen=True, kw_only=True)
class RelayArgs:
    fan_out: int = option(8, "relays that fetch from the trainer, and from each relay", low=1)


class RelayWorker(Worker):
    """One on each host. What it has read last is what its own readers get: versions may be skipped, but never go back."""

    ports = {
        "source": Port("param", "subscriber"),
        "near": Port("param", "publisher", relays="host"),
        "far": Port("param", "publisher", optional=True, relays="tree"),
    }
    Args = RelayArgs
    noun = "relay"
    nice = 0  # all actors of the host wait for it

    def __init__(self, args: RelayArgs, ends: Mapping[str, End], context: Context) -> None:
        super().__init__(args, ends, context)
        self._source = cast(ParamSubscriber, ends["source"])
        self._sinks = [cast(ParamPublisher, ends[port]) for port in ("near", "far") if port in ends]
        self._version = -1

    @classmethod
    def about(cls, args: RelayArgs) -> str:
        return "parameters for its host"

    def poll(self) -> int:
        """Pass the newest version on, if it is newer."""
        if (found := self._source.latest(self._version)) is None:
            return 0
        self._version, tree = found
        for sink in self._sinks:
            sink.publish(self._version, tree)
        self.reading.count("versions", 1)
        return 1
