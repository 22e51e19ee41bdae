"""The checkpoints of a policy in a run folder, and which one its trainer starts from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from srl.core.tree import Tree
from srl.store import checkpoint
from srl.store.weights import archive_folder, checkpoint_folder, initial_folder, tagged
from srl.workers.base import Context


class Checkpoints:
    """The checkpoints of one policy, as its trainer sees them."""

    def __init__(self, context: Context, policy: str) -> None:
        self._context, self._policy = context, policy
        replay = context.derived.policies[policy].replay
        self.every = context.graph.checkpoint.interval(from_replay=replay is not None)
        """Updates between two; 0: only at the end."""
        self._written = -1

    def start(self) -> checkpoint.Checkpoint | None:
        """What to continue from: this run's own latest after a restart, else that of the run that is resumed."""
        graph = self._context.graph
        for run in (self._context.folder, self._context.resume):
            if run is None:
                continue
            path = checkpoint.latest(checkpoint_folder(run, graph.policies, self._policy))
            if path is not None:
                saved = checkpoint.read(path)
                if run == self._context.folder and "updates" in saved.state:
                    self._written = int(saved.state["updates"])
                return saved
        return None

    def write_initial(self, params: Mapping[str, Any]) -> None:
        """Keep the policy as it was before any update, for cross-play."""
        run = self._context.folder
        if run is not None:
            folder = initial_folder(run, self._context.graph.policies, self._policy)
            if checkpoint.latest(folder) is None:
                checkpoint.write(folder, 0, {"policy": params}, {"env_steps": 0, "updates": 0})

    def write(
        self, updates: int, env_steps: int, groups: Mapping[str, Mapping[str, Any]], state: Mapping[str, Any], workers: Any = None
    ) -> None:
        """Write a checkpoint, once for each update."""
        run = self._context.folder
        if run is None or updates == self._written:
            return
        folder = checkpoint_folder(run, self._context.graph.policies, self._policy)
        everything = {**groups, "workers": workers} if workers is not None else groups
        checkpoint.write(folder, env_steps, everything, state)
        checkpoint.prune(folder, self._context.graph.checkpoint.keep)
        self._written = updates
        if self._is_archived(updates):
            self._archive(run, updates, env_steps, groups["policy"])

    def _is_archived(self, updates: int) -> bool:
        archive = self._context.graph.checkpoint.archive
        return bool(updates and self.every and archive) and updates % (self.every * archive) == 0

    def _archive(self, run: Path, updates: int, env_steps: int, params: Mapping[str, Any]) -> None:
        """Archive the policy. After a resume from an earlier checkpoint, existing files stay."""
        folder = archive_folder(run, self._context.graph.policies, self._policy)
        if env_steps not in map(checkpoint.step_of, checkpoint.checkpoints(folder)):
            checkpoint.write(folder, env_steps, {"policy": params}, {"env_steps": env_steps, "updates": updates})


def kept_versions(context: Context, policy: str, *, before: int) -> Iterator[tuple[int, Tree]]:
    """(updates, what was published) of the archived and tagged versions in the run folder, oldest first."""
    run, policies = context.folder, context.graph.policies
    if run is None or not before:
        return
    folders = (initial_folder(run, policies, policy), archive_folder(run, policies, policy))
    paths = [path for folder in folders for path in checkpoint.checkpoints(folder)]
    found: set[int] = set()
    for path in sorted([*paths, *tagged(run, policies, policy).values()], key=checkpoint.step_of):
        one = checkpoint.read(path)
        updates = int(one.state.get("updates", before))
        if updates < before and updates not in found:
            found.add(updates)
            yield updates, {"params": one.groups["policy"], "env_steps": np.array([int(one.state["env_steps"])])}
