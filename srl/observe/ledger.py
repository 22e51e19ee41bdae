"""The ledger of a stream: put = taken + in flight + dropped{reason}, added up over every end that it ever had."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from srl.core.text import columns
from srl.core.types import FOREIGN, BoundEnd, Counts
from srl.graph.spec import Graph


class Ledger:
    """What happened to every record that was put into one stream."""

    def __init__(self, stream: str, *, slots: int = 0) -> None:
        """`slots`: records that may be in flight at once."""
        self.stream = stream
        self.slots = slots
        self.lost: dict[str, str] = {}
        """Ends that were killed and whose last counts no other process has, with their side."""
        self._sides = {"producer": Counts(), "consumer": Counts()}
        """`released` of a producer are slots that came back to it, of a consumer loans that it gave back."""

    def add(self, side: str, counts: Counts) -> None:
        """Add what one end counted."""
        self._sides[side].add(counts)

    @property
    def dropped(self) -> Counter[str]:
        """Records discarded, by reason."""
        return sum((_dropped(counts) for counts in self._sides.values()), Counter())

    @property
    def put(self) -> int:
        """Records put; after the kill of a producer at least those that arrived."""
        put = self._sides["producer"].put
        return max(put, self._sides["consumer"].taken + self.drops) if "producer" in self.lost.values() else put

    @property
    def taken(self) -> int:
        """Records taken; after the kill of a consumer at least those whose slots came back."""
        consumer, returned = self._sides["consumer"], self._sides["producer"].released
        return max(consumer.taken, returned - _dropped(consumer).total()) if "consumer" in self.lost.values() else consumer.taken

    @property
    def drops(self) -> int:
        """Everything that was discarded, whatever the reason."""
        return self.dropped.total()

    @property
    def held(self) -> int:
        """Taken and not yet released."""
        return self.taken - self._sides["consumer"].released if not self.lost else 0

    @property
    def unknown(self) -> int:
        """After a kill: records in flight then, or taken and not reported."""
        return self._open if self.lost else 0

    @property
    def in_flight(self) -> int:
        """Records put and neither taken nor dropped."""
        return 0 if self.lost else self._open

    @property
    def balanced(self) -> bool:
        """No record vanished, appeared from nowhere or was counted twice, as far as the counts tell."""
        if len(set(self.lost.values())) == 2:  # no side is known well enough
            return True
        return 0 <= self._open <= self.slots and self.held >= 0

    @property
    def _open(self) -> int:
        return self.put - self.taken - self.drops


def _dropped(counts: Counts) -> Counter[str]:
    """Without what no peer had put, which is no record of the stream."""
    return Counter({reason: number for reason, number in counts.dropped.items() if reason not in FOREIGN})


def table(ledgers: Iterable[Ledger]) -> str:
    """One row a stream, drops by reason at the end."""
    rows: list[tuple[str, ...]] = [("stream", "put", "taken", "in flight", "unknown", "dropped", "")]
    for ledger in ledgers:
        reasons = ", ".join(f"{reason} {number:,}" for reason, number in sorted(ledger.dropped.items()) if number)
        numbers = (ledger.put, ledger.taken, ledger.in_flight, ledger.unknown)
        dropped = f"{ledger.drops:,}" + (f" ({reasons})" if reasons else "")
        rows.append((ledger.stream, *(f"{n:,}" for n in numbers), dropped, "ok" if ledger.balanced else "DOES NOT BALANCE"))
    return columns(rows, right=range(1, 5))


@dataclass(slots=True)
class _Gone:
    """An end whose process has ended."""

    end: BoundEnd
    reported: Counts
    uncounted: bool
    """Its last report came some time before its end."""
    silent: set[str]
    """Processes that have not yet reported what they know of it."""
    known: Counts = field(default_factory=Counts)
    """What the other processes know of it, added up."""

    @property
    def counts(self) -> Counts:
        """The later of both."""
        told, known = self.reported, self.known
        discarded = sum(told.dropped.values()) if self.end.side == "consumer" else 0  # the others saw them taken
        return Counts(
            put=max(told.put, known.put),
            taken=max(told.taken, known.taken - discarded),
            released=max(told.released, known.released),
            dropped=dict(Counter(told.dropped) | Counter(known.dropped)),
        )


class Ledgers:
    """Remembers the ends of all sample streams, and what the dead ones counted."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._ends: dict[str, BoundEnd] = {}
        self._gone: list[_Gone] = []
        self.trains = False
        """Some worker consumes samples or publishes parameters."""

    def bound(self, end: BoundEnd) -> None:
        """An end is open."""
        self.trains |= end.side in ("publisher", "consumer")
        if end.side in ("producer", "consumer"):
            self._ends[end.name] = end

    def forget(self, end: BoundEnd, reported: Mapping[str, Counts], observers: Collection[str] | None) -> None:
        """An end died. `reported`: port -> the last counts of its worker; `observers`: processes that know what it did after
        that, None if there is nothing to know."""
        if end.name in self._ends:
            counts = reported.get(end.port) or Counts()
            self._gone.append(_Gone(self._ends[end.name], counts, observers is not None, set(observers or ())))

    def late_counts(self, process: str, end: str, counts: Counts) -> None:
        """Add what another process knows of an end that died, whose last report may be half a second old."""
        gone = next((gone for gone in reversed(self._gone) if gone.end.name == end), None)
        if gone is not None:
            gone.known.add(counts)
            gone.silent.discard(process)

    def of(self, name: str, live: Iterable[tuple[str, Counts]]) -> Ledger:
        """The ledger of one stream. `live`: worker -> what its end has counted so far."""
        via = self._graph.stream(name).via
        ends = {end.worker: end for end in self._ends.values() if end.stream == name}
        ledger = Ledger(name, slots=sum(end.slots for end in ends.values()))
        for gone in self._gone:
            if gone.end.stream == name:
                ledger.add(gone.end.side, gone.counts)
                if gone.silent or (gone.uncounted and via in ("zmq", "ipc")):  # over zmq no other end holds its messages
                    ledger.lost[gone.end.name] = gone.end.side
                    ledger.slots += gone.end.slots
        for worker, counts in live:
            if end := ends.get(worker):
                ledger.add(end.side, counts)
        return ledger
