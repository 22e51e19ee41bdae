"""What surrounds the training of a policy: the task of its learner, how far the run is, and numbers that are not finite."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from srl.api.slab import SlabShape
from srl.core.errors import RunError, UserError
from srl.core.load import load
from srl.core.registry import REGISTRIES
from srl.core.seeds import word
from srl.core.tree import Array, leaves
from srl.core.types import Stop
from srl.graph.placement import device_at
from srl.learners.base import Task
from srl.store.checkpoint import write
from srl.store.weights import starting_weights
from srl.workers.base import Context
from srl.workers.batches import Rows

if TYPE_CHECKING:  # torch: a trainer is looked at where nothing is learned
    from srl.api.batch import Ranks


def task_of(context: Context, name: str, slabs: int, between: Callable[[], None], ranks: Ranks | None = None) -> Task:
    """The task of the learner of this policy."""
    graph, info = context.graph, context.derived.policies[name]
    entry = graph.policies[name]
    if entry.algorithm is None:
        raise UserError(f"policy '{name}' has no algorithm, but node '{context.node.name}' should train it", code="E10")
    algorithm = REGISTRIES["algorithm"].resolve(entry.algorithm.use)
    policy = REGISTRIES["policy"].resolve(entry.policy.use)
    record: Any = context.derived.streams[context.node.ports["samples"]].record
    steps, envs, agents = record["reward"].shape
    every = info.window.memory_every if info.replay is None else None  # a window of a replay begins where memory was recorded
    return Task(
        algorithm=algorithm,
        config=load(algorithm.Config, entry.algorithm.args, path="algorithm"),
        policy=policy,
        policy_config=load(policy.Config, entry.policy.args, path="policy"),
        spec=info.spec,
        shape=SlabShape(steps=steps, envs=envs * slabs, agents=agents, memory_every=every),
        seed=graph.seed ^ (0 if len(graph.policies) == 1 else word(name)),
        device=device_of(context),
        threads=context.node.threads,
        weights=starting_weights(graph.policies, name, own=(context.folder, context.resume)),
        between=between,
        ranks=ranks,
    )


def device_of(context: Context) -> str:
    """Of this worker."""
    return device_at(context.graph, context.node, context.index)


class Progress:
    """Progress of a run, 0..1, towards the nearest of its stop conditions. `stop.return` has no progress."""

    def __init__(self, stop: Stop) -> None:
        self._stop = stop
        self._started: float | None = None
        self.before = 0.0
        """Seconds of earlier sessions: each may last `stop.seconds`."""
        self.agreed: float | None = None
        """Seconds that all trainers of the policy go by, if there are several."""

    def start(self) -> None:
        """The first poll. Without `stop.seconds` no clock is read: inline runs repeat."""
        if self._stop.seconds and self._started is None:
            self._started = monotonic()

    @property
    def seconds(self) -> float:
        """Wall time of all sessions, as far as it was measured."""
        return self.before + (monotonic() - self._started if self._started is not None else 0.0)

    def counted(self, env_steps: int, updates: int) -> float:
        """Towards the counts: reaching them ends the run. The controller watches the clock."""
        parts = [0.0]
        if self._stop.env_steps:
            parts.append(env_steps / self._stop.env_steps)
        if self._stop.updates:
            parts.append(updates / self._stop.updates)
        return min(1.0, max(parts))

    def at(self, env_steps: int, updates: int) -> float:
        """Towards all of them."""
        counted = self.counted(env_steps, updates)
        if not self._stop.seconds:
            return counted
        seconds = self.seconds if self.agreed is None else self.agreed
        return max(counted, min(1.0, seconds / (self.before + self._stop.seconds)))


def explained(error: RunError, rows: Rows, folder: Path | None, policy: str, updates: int, env_steps: int) -> RunError:
    """The error with policy and update, and the batch that led to it in the run folder."""
    found = []
    for path, leaf in leaves(rows):
        if leaf.dtype.kind == "f" and not (fine := np.isfinite(leaf)).all():
            at = ", ".join(map(str, np.argwhere(~fine)[0]))
            found.append(f"in its batch {path} has {int((~fine).sum())} of {leaf.size} such numbers, the first at [{at}]")
    told = RunError("; ".join([f"policy '{policy}', update {updates}: {error.headline}", *found]), *error.facts, code=error.code)
    if folder is not None:
        written = write(folder / "failed" / policy, env_steps, {"rows": cast("dict[str, Any]", rows)}, {"updates": updates})
        told.add("batch", str(written))
    return told.add("try", "a smaller algorithm.lr, or --resume: the last checkpoint is from before this update")


def check_finite_weights(params: Mapping[str, Array], policy: str, updates: int) -> None:
    """R05 if a parameter is not finite, before it could overwrite a valid checkpoint."""
    for name, array in params.items():
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise RunError(
                f"policy '{policy}', update {updates}: its parameter {name} is not finite",
                ("checkpoint", "the last one is from before"),
                code="R05",
            )
