"""The limiter holds the samples per insert: rows wait for draws and draws wait for rows, within bounds."""

from __future__ import annotations

from srl.core.errors import SettingError


class Limiter:
    """`debt` is the number of samples that the rows so far ask for, minus those drawn; it stays between `low` and `high`.

    The first `warmup` rows ask for none, and nothing is drawn before them; nor do rows that come while no window is complete.
    A slab is granted before it is recorded, so slabs that have been granted and have not arrived count as
    inserted.
    """

    def __init__(self, *, ratio: float, slab: int, batch: int, warmup: int, low: float = 0.0, high: float | None = None) -> None:
        """`ratio`: samples per row. `slab`: rows of the largest slab. `high`: None is as low as it can be."""
        least = low + ratio * slab + batch
        self.ratio, self.slab, self.batch, self.warmup = ratio, slab, batch, warmup
        self.low = low
        self.high = max(least, ratio * slab) if high is None else high
        self.inserted = 0
        self.sampled = 0
        self.granted = 0
        """Rows of slabs that are on their way."""
        self._ready = False
        if self.high < least:
            raise SettingError("high", f"must be at least {least:g}, or neither rows nor draws could go on, not {self.high:g}")
        if self.high < ratio * slab:
            raise SettingError(
                "high", f"must be at least {ratio * slab:g}, or the first rows could never come, not {self.high:g}"
            )

    @property
    def debt(self) -> float:
        """Samples that are still due; negative while more were drawn than the rows ask for."""
        return self.ratio * (self.inserted - self.warmup) - self.sampled

    def may_grant(self) -> bool:
        """True if one more slab may be recorded."""
        return self.debt + self.ratio * (self.granted + self.slab) <= self.high

    def may_draw(self) -> bool:
        """True if one more batch may be drawn."""
        return self._ready and self.inserted >= self.warmup and self.debt - self.batch >= self.low

    def grant(self) -> None:
        """A slab may be recorded."""
        self.granted += self.slab

    def insert(self, rows: int, windows: int) -> None:
        """A slab with so many transitions has arrived; since then the replay has so many windows to draw from."""
        self.granted -= self.slab
        self.inserted += rows
        self._ready = self._ready or windows > 0
        if not self._ready:
            self.warmup = max(self.warmup, self.inserted)

    def lose(self, slabs: int = 1) -> None:
        """Slabs will never arrive: their actor is gone."""
        self.granted -= slabs * self.slab

    def draw(self) -> None:
        """A batch has been drawn."""
        self.sampled += self.batch
