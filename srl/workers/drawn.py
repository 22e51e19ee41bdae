"""Batches drawn by replays, as a trainer takes them: each is trained on where it lies, and what an algorithm hands back goes
to the replay that drew it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, cast

from srl.core.readings import Reading
from srl.core.tree import Array, Tree, copy_into, map_tree
from srl.streams.base import updates_of
from srl.streams.sample import Loan, SampleConsumer, SampleProducer, Slab
from srl.workers.batches import Rows, spread

if TYPE_CHECKING:  # torch: a trainer is looked at where nothing is learned
    from srl.api.batch import Feedback

_KEPT = 16
"""Batches whose memory is known: more than a few replays have slots."""
_EVERY = 64
"""Updates between two looks at how old the rows of a batch are."""


class Drawn:
    """Whole batches, drawn by replays. One is trained on where it lies, while up to `prefetch - 1` others are drawn.

    With `tell`, the batch after it is held too, and named as soon as it has come: the learner copies it to its device.
    """

    def __init__(
        self, samples: SampleConsumer, feedback: Mapping[str, SampleProducer], *, prefetch: int, inline: bool, stays: bool = True,
        tell: Callable[[Rows], None] | None = None,
    ) -> None:  # fmt: skip
        """`stays`: batches lie in the same few places, and not in the bytes of messages."""
        self.env_steps = self.brings = 0
        self._samples = samples
        self._feedback = feedback
        """Node of a replay -> what takes its feedback; the only one is ``""``."""
        self._prefetch = prefetch
        self._inline = inline
        self._stays = stays
        self._requested = 0
        self._finished = 0
        self._loan: Loan | None = None
        self._following: tuple[Loan, Rows] | None = None
        self._tell = tell
        self._seen: dict[str, int] = {}
        """Process of a replay -> env steps that had come into it when it drew the last batch."""
        self._reserved: dict[str, Slab] = {}
        """Node of a replay -> memory for its next feedback."""
        self._memory: dict[int, tuple[Tree, Rows]] = {}

    def request(self, updates: int) -> int:
        missing = self._finished + self._prefetch - self._requested
        for _ in range(missing):
            self._samples.credit(self._requested, 0)
            self._requested += 1
        return max(0, missing)

    def gather(self) -> int:
        """Batches stay where they are."""
        if self._tell is None or self._loan is None or self._following is not None:
            return 0
        loan = self._samples.get()
        if loan is None:
            return 0
        self._following = loan, self._rows(loan.tree)
        self._tell(self._following[1])
        return 1

    def take(self, updates: int) -> Rows | None:
        if self._following is not None:
            (self._loan, rows), self._following = self._following, None
        else:
            self._loan = self._samples.get()
            if self._loan is None:
                return None
            rows = self._rows(self._loan.tree)
        self.gather()
        who, inserted = self._inserted(self._loan)
        self.brings = inserted - self._seen.get(who, 0)
        return rows

    def done(self, feedback: Feedback | None) -> None:
        loan, self._loan = self._loan, None
        assert loan is not None
        who, inserted = self._inserted(loan)
        self._seen[who] = inserted
        self.env_steps += self.brings
        if feedback is not None:
            self._give(loan, feedback)
        loan.release()
        self._finished += 1

    def drop(self) -> None:
        loan, self._loan = self._loan, None
        assert loan is not None
        loan.discard("stop")
        if self._following is not None:
            self._following[0].discard("stop")
            self._following = None

    def count(self, rows: Rows, reading: Reading, policy: str) -> None:
        reading.count("sampled_rows", rows["ids"].size)
        if self._finished % _EVERY == 0:
            recorded_by: Any = updates_of(rows["version"])
            spread(reading, self._samples, self._finished - 1 - recorded_by)

    def state(self) -> dict[str, Any]:
        return {"replays": dict(self._seen)}

    def barrier(self, updates: int) -> None:
        for number in self._samples.discard("barrier"):
            self._samples.credit(number, 0)
        self.request(updates)

    def restart(self, updates: int, env_steps: int, state: Mapping[str, Any]) -> None:
        self.env_steps = env_steps
        self._requested += updates - self._finished
        self._finished = updates
        self._seen = {who: int(steps) for who, steps in state.get("replays", {}).items()}

    def _inserted(self, loan: Loan) -> tuple[str, int]:
        """Which process of a replay drew this batch, and the env steps that had come into it."""
        who = loan.producer if self._inline else f"{loan.producer} {loan.peer.source}"
        return who, int(cast("dict[str, Any]", loan.tree)["env_steps"][0])

    def _rows(self, tree: Tree) -> Rows:
        """The batch as arrays that may be written to: the learner makes tensors of them, once for each place in memory."""
        if not self._stays:
            return cast(Rows, tree)
        known = self._memory.get(id(tree))
        if known is not None:
            return known[1]
        try:
            rows = cast(Rows, map_tree(_writable, tree))
        except ValueError:  # a place that this process may not write to
            return cast(Rows, tree)
        if len(self._memory) >= _KEPT:
            self._memory.clear()
        self._memory[id(tree)] = (tree, rows)
        return rows

    def _give(self, loan: Loan, feedback: Feedback) -> None:
        """To the replay that drew the batch; if it is busy with earlier ones, its rows keep what they have."""
        node = loan.producer.rpartition(":")[2].partition("/")[0]
        end = self._feedback.get(node) or self._feedback.get("")
        if end is None:
            return
        slab = self._reserved.pop(node, None) or end.alloc()
        if slab is None:
            end.counts.put += 1
            end.counts.drop("busy")
            return
        copy_into(slab.tree, {"ids": feedback.ids, **feedback.leaves})
        end.put(slab)
        if (following := end.alloc()) is not None:  # else its credit comes while the next batch trains
            self._reserved[node] = following


def _writable(leaf: Array) -> Array:
    view = leaf.view()
    view.flags.writeable = True
    return view
