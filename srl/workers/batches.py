"""Batch sources: where a trainer's batches come from, which of their steps the run's clock counts, and what is too old to use."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, cast

import numpy as np

from srl.core.readings import Reading
from srl.core.spec import Leaf, zeros
from srl.core.tree import Array, Tree, map_tree
from srl.streams.base import epoch_of, updates_of, version
from srl.streams.credits import Credits
from srl.streams.sample import Loan, SampleConsumer

if TYPE_CHECKING:  # torch: a trainer is looked at where nothing is learned
    from srl.api.batch import Feedback

Rows: TypeAlias = "Mapping[str, Any]"
"""A batch as a slab: `[T, E, A, ...]` (`obs`, `mask`, `state`, `first` and `extra` have row T too)."""


class BatchSource(Protocol):
    """The source of a trainer's batches. It never waits; the trainer tells it how many updates are done."""

    env_steps: int
    """The run's clock of env steps, as this source counts it."""
    brings: int
    """By how much the batch that was taken last moves it. Where several trainers train together, they agree on the sum."""

    def request(self, updates: int) -> int:
        """Request what the next updates need; how many requests were made."""

    def gather(self) -> int:
        """Take in what has arrived; how much. Called between minibatches too."""

    def take(self, updates: int) -> Rows | None:
        """The batch of this update once it is complete; its memory belongs to the learner until `done`."""

    def done(self, feedback: Feedback | None) -> None:
        """The batch was trained on: its memory may be used again, the clock moves by `brings`, and feedback finds its rows."""

    def drop(self) -> None:
        """The batch that was taken last is not trained on: the run ends."""

    def count(self, rows: Rows, reading: Reading, policy: str) -> None:
        """Count the rows of the batch that was trained on last. `policy`: whose, where several learn."""

    def state(self) -> dict[str, Any]:
        """What `restart` needs besides the numbers of the trainer: plain data."""

    def barrier(self, updates: int) -> None:
        """Inline checkpoint: drop what has arrived for later updates and request it again."""

    def restart(self, updates: int, env_steps: int, state: Mapping[str, Any]) -> None:
        """Go on from a checkpoint: what was under way before is void."""


class OnPolicy:
    """Every slab trains in one batch. Credits are numbered by batch, so that no row is staler than `staleness` updates.

    Env steps count when they are trained on, once: not per agent, and not again when a buffer repeats a slab.
    """

    def __init__(self, samples: SampleConsumer, record: Any, *, slabs: int, staleness: int, epoch: int) -> None:
        self.env_steps = self.brings = 0
        self.lag = np.zeros(slabs, np.int64)
        """Updates between the policy that recorded each slab of the batch that was taken last, and the one it trains."""
        self._samples = samples
        self._slabs = slabs
        self._epoch = epoch
        """Slabs of an earlier process of this trainer are dropped."""
        self._credits = Credits(slabs, staleness)
        self._batches = [zeros(_batch_spec(record, slabs)) for _ in range(staleness + 1)]
        self._versions = np.zeros((staleness + 1, slabs), np.int64)
        self._reused = np.zeros((staleness + 1, slabs), bool)
        self._taken = 0

    def request(self, updates: int) -> int:
        issued = self._credits.issue(updates)
        for number, min_updates in issued:
            self._samples.credit(number, version(self._epoch, min_updates))
        return len(issued)

    def gather(self) -> int:
        done = 0
        while (loan := self._samples.get()) is not None:
            self._keep(loan)
            done += 1
        return done

    def take(self, updates: int) -> Rows | None:
        if not self._credits.ready(updates):
            return None
        self._taken = updates % len(self._batches)
        self.lag = updates - self._versions[self._taken]
        valid, fresh = self._batches[self._taken]["valid"], ~self._reused[self._taken]
        lived = valid[:, :, 0] if valid.shape[2] == 1 else valid.any(axis=2)
        self.brings = int(np.count_nonzero(lived.reshape(len(lived), self._slabs, -1)[:, fresh]))
        return cast(Rows, self._batches[self._taken])

    def done(self, feedback: Feedback | None) -> None:
        self.env_steps += self.brings

    def drop(self) -> None:
        pass

    def count(self, rows: Rows, reading: Reading, policy: str) -> None:
        trained = float(np.count_nonzero(rows["valid"]))
        reading.count("trained_rows", trained)
        if policy:
            reading.count(f"trained_rows/{policy}", trained)
        spread(reading, self._samples, self.lag)

    def state(self) -> dict[str, Any]:
        return {}

    def barrier(self, updates: int) -> None:
        self.request(updates)
        for number in self._samples.discard("barrier"):
            self._credits.arrived(number)
        for credit in self._credits.forget():
            self._samples.credit(credit.number, version(self._epoch, credit.min_updates))

    def restart(self, updates: int, env_steps: int, state: Mapping[str, Any]) -> None:
        self.env_steps = env_steps
        self._credits.restart(updates)

    def _keep(self, loan: Loan) -> None:
        """Copy a slab into its place in a batch and give its memory back at once."""
        tree = cast("dict[str, Any]", loan.tree)
        recorded_by = int(tree["version"][0])
        if epoch_of(recorded_by) != self._epoch:
            loan.discard("trainer_restart")
            return
        if not self._credits.arrived(loan.credit):
            loan.discard("void_credit")
            return
        batch, column = divmod(self._credits.cell(loan.credit), self._slabs)
        _copy_slab(self._batches[batch], tree, column)
        self._versions[batch, column] = updates_of(recorded_by)
        self._reused[batch, column] = tree["reused"][0]
        loan.release()


def spread(reading: Reading, samples: SampleConsumer, lag: Array) -> None:
    """How many updates old the rows of a batch are, for the row of their stream."""
    name = f"stream/{samples.spec.name}/staleness"
    reading.spread(name, float(lag.sum()), len(lag), float(lag.min()), float(lag.max()))


def _batch_spec(record: Any, slabs: int) -> Any:
    """The slab's leaves with room for `slabs` of them on the env axis."""
    rest = {name: leaf for name, leaf in record.items() if name not in ("version", "reused")}
    wide = map_tree(lambda leaf: Leaf((leaf.shape[0], leaf.shape[1] * slabs, *leaf.shape[2:]), leaf.dtype), rest)
    return {**wide, "version": Leaf((slabs,), "int64")}


def _copy_slab(batch: dict[str, Any], slab: dict[str, Any], column: int) -> None:
    for name, tree in slab.items():
        if name == "version":
            batch["version"][column] = tree[0]
        elif name != "reused":
            _copy_part(batch[name], tree, column)


def _copy_part(batch: Tree, slab: Tree, column: int) -> None:
    if isinstance(batch, dict):
        for name in batch:
            _copy_part(batch[name], slab[name], column)
    else:
        envs = slab.shape[1]  # type: ignore[union-attr]
        batch[:, column * envs : (column + 1) * envs] = slab
