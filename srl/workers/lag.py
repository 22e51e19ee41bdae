"""How old the policy was that recorded the rows of a batch: in updates, and in milliseconds since it was published."""

from __future__ import annotations

import time

import numpy as np

from srl.core.readings import Reading
from srl.core.tree import Array
from srl.streams.base import Version, updates_of, version

_KEPT = 4096
"""Rows that one report is about: the newest."""
_KNOWN = 1024
"""Publications whose times are known exactly; of older ones every second, fourth, ... is."""


class Lag:
    """The trainer says what it publishes and what it trains on."""

    def __init__(self, epoch: int) -> None:
        self._first = version(epoch, 0)
        """Versions below this one were published by an earlier process, at an unknown time."""
        self._versions, self._behind = np.zeros(_KEPT, np.int64), np.zeros(_KEPT, np.int64)
        self._trained = np.zeros(_KEPT)
        """When each of the rows was trained on."""
        self._end = self._held = 0
        self._known, self._times = np.zeros(2 * _KNOWN, np.int64), np.zeros(2 * _KNOWN)
        self._published = 0

    def published(self, number: Version) -> None:
        """This version can be had from now on."""
        if self._published == len(self._known):  # of the older half every second one is forgotten
            for known in (self._known, self._times):
                known[: _KNOWN // 2] = known[:_KNOWN:2]
                known[_KNOWN // 2 : -_KNOWN // 2] = known[_KNOWN:].copy()
            self._published -= _KNOWN // 2
        self._known[self._published], self._times[self._published] = number, time.monotonic()
        self._published += 1

    def trained(self, recorded_by: Array, updates: int) -> None:
        """Rows, or slabs, recorded by these versions are trained on in the update after `updates` others."""
        count = min(recorded_by.size, _KEPT)
        if self._end + count > _KEPT:
            self._end = 0
        rows = slice(self._end, self._end + count)
        self._versions[rows] = recorded_by.ravel()[:count]
        self._behind[rows] = updates
        self._trained[rows] = time.monotonic()
        self._end += count
        self._held = max(self._held, self._end)

    def report(self, reading: Reading) -> None:
        """Mean and 99th percentile of the rows since the last report."""
        versions = self._versions[: self._held]
        own = versions >= self._first
        if own.any():
            published = np.interp(versions[own], self._known[: self._published], self._times[: self._published])
            behind = self._behind[: self._held] - updates_of(versions)  # type: ignore[arg-type]
            for unit, values in (("updates", behind[own]), ("ms", 1000 * (self._trained[: self._held][own] - published))):
                reading.mean(f"lag/{unit}", float(values.mean()))
                reading.mean(f"lag/{unit}_p99", float(np.percentile(values, 99)))
        self._end = self._held = 0
