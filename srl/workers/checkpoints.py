"""Where a policy's checkpoints lie in a run folder, and which one a worker starts from."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from srl.graph.spec import Graph
from srl.graph.weights import checkpoint_folder
from srl.store import checkpoint
from srl.workers.base import Context

__all__ = ["Checkpoints", "checkpoint_folder", "initial_folder"]


def initial_folder(run: Path, graph: Graph, policy: str) -> Path:
    """Where the policy lies as it was before any update."""
    return checkpoint_folder(run, graph, policy) / "initial"


class Checkpoints:
    """The checkpoints of one policy, as its trainer sees them."""

    def __init__(self, context: Context, policy: str) -> None:
        self._context, self._policy = context, policy
        self._written = -1

    def start(self) -> checkpoint.Checkpoint | None:
        """What to go on from: this run's own latest after a restart, else the run that is resumed."""
        graph = self._context.graph
        for run in (self._context.folder, self._context.resume):
            if run is None:
                continue
            path = checkpoint.latest(checkpoint_folder(run, graph, self._policy))
            if path is not None:
                saved = checkpoint.read(path)
                if run == self._context.folder and "updates" in saved.state:
                    self._written = int(saved.state["updates"])
                return saved
        return None

    def write_initial(self, params: Mapping[str, Any]) -> None:
        """The policy as it was before any update: what cross-play measures against."""
        run = self._context.folder
        if run is not None:
            folder = initial_folder(run, self._context.graph, self._policy)
            if checkpoint.latest(folder) is None:
                checkpoint.write(folder, 0, {"policy": params}, {"env_steps": 0})

    def write(
        self, updates: int, env_steps: int, groups: Mapping[str, Mapping[str, Any]], state: Mapping[str, Any], workers: Any = None
    ) -> None:
        """One more checkpoint; the same update twice is written once."""
        run = self._context.folder
        if run is None or updates == self._written:
            return
        folder = checkpoint_folder(run, self._context.graph, self._policy)
        everything = {**groups, "workers": workers} if workers is not None else groups
        checkpoint.write(folder, env_steps, everything, state)
        checkpoint.prune(folder, self._context.graph.checkpoint.keep)
        self._written = updates
