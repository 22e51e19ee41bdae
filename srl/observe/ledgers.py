"""The ledgers of all sample streams, over every end that ever was."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, field

from srl.core.types import Counts
from srl.graph.spec import Graph
from srl.observe.ledger import Ledger, Side


@dataclass(frozen=True, slots=True)
class _End:
    """One end of a sample stream."""

    side: Side
    port: str
    slots: int


@dataclass(slots=True)
class _Gone:
    """An end whose process has ended."""

    end: str
    about: _End
    reported: Counts
    uncounted: bool
    """Its last report came some time before its end."""
    silent: set[str]
    """Processes that have not yet reported what they know of it."""
    known: Counts = field(default_factory=Counts)
    """What the survivors know, added up."""

    @property
    def counts(self) -> Counts:
        """The later of both."""
        told, known = self.reported, self.known
        dropped = {
            reason: max(told.dropped.get(reason, 0), known.dropped.get(reason, 0)) for reason in told.dropped | known.dropped
        }
        discarded = sum(told.dropped.values()) if self.about.side == "consumer" else 0  # the others saw them taken
        return Counts(
            max(told.put, known.put), max(told.taken, known.taken - discarded), max(told.released, known.released), 0, dropped
        )


class Ledgers:
    """Remembers the ends, and what the dead ones counted."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._ends: dict[str, _End] = {}
        self._gone: dict[str, list[_Gone]] = {}
        self.trains = False
        """Some worker consumes samples or publishes parameters."""

    def bound(self, end: str, port: str, side: str, slots: int) -> None:
        """An end (`stream:worker`) is open."""
        self.trains |= side in ("publisher", "consumer")
        if side in ("producer", "consumer"):
            self._ends[end] = _End("producer" if side == "producer" else "consumer", port, slots)

    def forget(self, end: str, reported: Mapping[str, Counts], observers: Collection[str] | None) -> None:
        """An end died. `reported`: port -> the last counts of its worker; `observers`: processes that know what it did after
        that, None if there is nothing to know."""
        if about := self._ends.get(end):
            gone = _Gone(end, about, reported.get(about.port) or Counts(), observers is not None, set(observers or ()))
            self._gone.setdefault(end.partition(":")[0], []).append(gone)

    def late_counts(self, process: str, end: str, counts: Counts) -> None:
        """What one survivor knows of an end that died."""
        for gone in reversed(self._gone.get(end.partition(":")[0], [])):
            if gone.end == end:
                gone.known.add(counts)
                gone.silent.discard(process)
                return

    def of(self, name: str, live: Iterable[tuple[str, Counts]]) -> Ledger:
        """The ledger of one stream. `live`: worker -> what its end has counted so far."""
        stream = self._graph.stream(name)
        ends = {end: about for end, about in self._ends.items() if end.startswith(f"{name}:")}
        ledger = Ledger(name, slots=sum(about.slots for about in ends.values()))
        for gone in self._gone.get(name, []):
            ledger.add(gone.about.side, asdict(gone.counts))
            if gone.silent or (gone.uncounted and stream.via in ("zmq", "ipc")):  # over zmq no other end holds its messages
                ledger.lose(gone.about.side, gone.end)
                ledger.slots += gone.about.slots
        for worker, counts in live:
            if about := ends.get(f"{name}:{worker}"):
                ledger.add(about.side, asdict(counts))
        return ledger
