"""Exact resume of inline runs: what a worker adds whose run shall go on bit for bit from a checkpoint."""

from __future__ import annotations

from srl.core.tree import Tree


class Resumable:
    """Inline, every checkpoint is a barrier: all drop what is in flight, and their states are written together."""

    def at_barrier(self) -> bool:
        """True when a checkpoint is due now."""
        return False

    def barrier(self, number: int) -> None:
        """Drop what is in flight, so that `state` is all there is."""

    def state(self) -> Tree:
        """Arrays to go on from, after `barrier`."""
        return {}

    def restore(self, state: Tree) -> None:
        """The inverse of `state`."""

    def checkpoint(self, states: Tree) -> None:
        """Write a checkpoint with the states of all workers (trainers)."""
