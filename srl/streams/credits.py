"""The credit rule: which slabs may be started, so that no row is staler than allowed and no worker deadlocks."""

from __future__ import annotations

from typing import NamedTuple


class Credit(NamedTuple):
    """Permission to start one slab."""

    number: int
    min_updates: int
    """Row 0 must be answered by a version of at least so many updates."""


class Credits:
    """B slabs make a batch. Credit g belongs to batch u = g // B and is issued once `updates` >= u - staleness."""

    def __init__(self, batch_slabs: int, staleness: int) -> None:
        if batch_slabs < 1 or staleness < 0:
            raise ValueError(f"a batch needs at least one slab and a staleness of at least 0, not {batch_slabs} and {staleness}")
        self.batch_slabs = batch_slabs
        self.staleness = staleness
        self.restart(0)

    def restart(self, updates: int) -> None:
        """A new epoch begins after so many updates: every credit and every slab of before is void."""
        self.updates = updates
        self._first = updates
        self._issued = updates * self.batch_slabs
        self._full = [False] * self.cells

    @property
    def cells(self) -> int:
        """Places for slabs: a cell is used again only after the update that read it."""
        return (self.staleness + 1) * self.batch_slabs

    def issue(self, updates: int) -> list[Credit]:
        """The credits that became permitted, now that so many updates are done and published."""
        self._finish(updates)
        end = (updates + self.staleness + 1) * self.batch_slabs
        credits = [self._credit(number) for number in range(self._issued, end)]
        self._issued = max(self._issued, end)
        return credits

    def cell(self, number: int) -> int:
        """Where the slab of this credit is copied to."""
        return number % self.cells

    def arrived(self, number: int) -> bool:
        """Its slab lies in its cell. False: the credit is void (an older epoch, or used before) and the slab must be dropped."""
        if not self.updates * self.batch_slabs <= number < self._issued or self._full[self.cell(number)]:
            return False
        self._full[self.cell(number)] = True
        return True

    def ready(self, update: int) -> bool:
        """All slabs of this batch are there."""
        first = update * self.batch_slabs
        return self.updates <= update and all(
            number < self._issued and self._full[self.cell(number)] for number in range(first, first + self.batch_slabs)
        )

    def forget(self) -> list[Credit]:
        """Empty all cells that no update has read yet (barrier); their credits, to be given again."""
        first = self.updates * self.batch_slabs
        again = [self._credit(number) for number in range(first, self._issued) if self._full[self.cell(number)]]
        self._full = [False] * self.cells
        return again

    def _finish(self, updates: int) -> None:
        if updates < self.updates:
            raise ValueError(f"updates went back from {self.updates} to {updates}: call restart() for a new epoch")
        for number in range(self.updates * self.batch_slabs, min(updates * self.batch_slabs, self._issued)):
            self._full[self.cell(number)] = False
        self.updates = updates
        self._issued = max(self._issued, updates * self.batch_slabs)

    def _credit(self, number: int) -> Credit:
        return Credit(number, max(self._first, number // self.batch_slabs - self.staleness))
