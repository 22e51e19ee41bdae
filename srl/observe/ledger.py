"""The ledger of a stream: put = taken + in flight + dropped{reason}, added up over all its ends."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Literal, TypeAlias

from srl.core.text import columns
from srl.core.types import FOREIGN

Side: TypeAlias = Literal["producer", "consumer"]


class Ledger:
    """What became of everything that was put into one stream."""

    def __init__(self, stream: str, *, slots: int = 0) -> None:
        """`slots`: records that may be in flight at once."""
        self.stream = stream
        self.slots = slots
        self.dropped: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        """What no peer had put: not part of the balance."""
        self.lost: list[str] = []
        """Ends that were killed and whose last counts no other process has."""
        self._put = 0
        self._taken = 0
        self._returned = 0
        self._released = 0
        self._consumer_drops = 0
        self._lost_sides: set[Side] = set()

    def add(self, side: Side, counts: Mapping[str, Any]) -> None:
        """Add what one end counted: {put, taken, released, dropped: {reason: number}}; missing counts are 0.

        `released` of a producer are slots that came back to it, of a consumer loans that it gave back.
        """
        dropped = {str(reason): int(number) for reason, number in counts.get("dropped", {}).items()}
        self.refused.update({reason: dropped.pop(reason) for reason in FOREIGN if reason in dropped})
        self.dropped.update(dropped)
        self._put += int(counts.get("put", 0))
        self._taken += int(counts.get("taken", 0))
        if side == "producer":
            self._returned += int(counts.get("released", 0))
        else:
            self._released += int(counts.get("released", 0))
            self._consumer_drops += sum(dropped.values())

    def lose(self, side: Side, end: str) -> None:
        """`end` was killed: its last report is too old, and the other side knows only what arrived."""
        self.lost.append(end)
        self._lost_sides.add(side)

    @property
    def put(self) -> int:
        """Records put; after the kill of a producer at least those that arrived."""
        return max(self._put, self._taken + self.drops) if "producer" in self._lost_sides else self._put

    @property
    def taken(self) -> int:
        """Records taken; after the kill of a consumer at least those whose slots came back."""
        return max(self._taken, self._returned - self._consumer_drops) if "consumer" in self._lost_sides else self._taken

    @property
    def drops(self) -> int:
        """Everything that was discarded, whatever the reason."""
        return self.dropped.total()

    @property
    def held(self) -> int:
        """Taken and not yet released."""
        return self.taken - self._released if not self.lost else 0

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
        if len(self._lost_sides) == 2:  # no side is known well enough
            return True
        return 0 <= self._open <= self.slots and self.held >= 0

    @property
    def _open(self) -> int:
        return self.put - self.taken - self.drops

    def line(self) -> str:
        """One line in words, for a log."""
        parts = [f"{self.taken:,} taken", f"{self.in_flight:,} in flight"]
        parts += [f"{number:,} dropped ({reason})" for reason, number in sorted(self.dropped.items()) if number]
        parts += [f"{self.unknown:,} unknown (killed: {', '.join(self.lost)})"] if self.lost else []
        sign = "=" if self.balanced else "does NOT equal"
        refused = ", ".join(f"{number:,} {reason}" for reason, number in sorted(self.refused.items()) if number)
        text = f"{self.stream}: {self.put:,} put {sign} {' + '.join(parts)}"
        return f"{text} (refused: {refused})" if refused else text


def table(ledgers: Iterable[Ledger]) -> str:
    """One row a stream, drops by reason at the end."""
    rows: list[tuple[str, ...]] = [("stream", "put", "taken", "in flight", "unknown", "dropped", "")]
    for ledger in ledgers:
        reasons = ", ".join(f"{reason} {number:,}" for reason, number in sorted(ledger.dropped.items()) if number)
        numbers = (ledger.put, ledger.taken, ledger.in_flight, ledger.unknown)
        dropped = f"{ledger.drops:,}" + (f" ({reasons})" if reasons else "")
        rows.append((ledger.stream, *(f"{n:,}" for n in numbers), dropped, "ok" if ledger.balanced else "DOES NOT BALANCE"))
    return columns(rows, right=range(1, 5))
