"""A worker that leaves the cores to others: where they are wanted it takes a small part of them, elsewhere all it can use."""

from __future__ import annotations

import time

_SPAN = 0.05
"""Seconds of work that are looked at together."""
_ALONE = 0.8
"""With at least this fraction of CPU time in wall time, no other process wanted the core."""


class Modest:
    """Call `begin` before a piece of work, which is done if it says so, and `end` after it."""

    def __init__(self, share: float) -> None:
        """`share`: part of one core."""
        self._share = share
        self.rests_until = 0.0
        """Time (time.monotonic) of the next piece of work."""
        self.alone = True
        """No other process wanted the core lately."""
        self._wall = self._processor = 0.0
        self._begun = (0.0, 0.0)

    def begin(self) -> bool:
        """Whether it may continue now."""
        now = time.monotonic()
        self._begun = (now, time.process_time())
        return now >= self.rests_until

    def end(self) -> None:
        """If others wanted the core meanwhile, rest until this was a small part of it."""
        now = time.monotonic()
        self._wall += now - self._begun[0]
        self._processor += time.process_time() - self._begun[1]
        if self._wall < _SPAN:
            return
        self.alone = self._processor >= _ALONE * self._wall
        if not self.alone:
            self.rests_until = now + max(0.0, self._processor / self._share - self._wall)
        self._wall = self._processor = 0.0
