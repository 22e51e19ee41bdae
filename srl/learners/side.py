"""One side of a split learner: a whole algorithm, of which it moves one part. The parameters of the other part are copies."""

from __future__ import annotations

from collections.abc import Mapping
from time import perf_counter
from typing import Any

from torch import Tensor, nn

from srl.api.algorithm import Feedback, Metrics
from srl.api.batch import Batch
from srl.api.parts import Held, InParts
from srl.core.learner import SingleConfig
from srl.core.tree import Array
from srl.learners.base import Task
from srl.learners.questions import Link, Questions
from srl.learners.single import SingleLearner
from srl.learners.slots import Slots, joined

CRITICS, ACTOR = 0, 1
"""Places in `InParts.parts`."""


class Side(SingleLearner):
    """Without a link it is a single learner, whose state both sides start from."""

    knows_ranks = False

    def __init__(self, task: Task, which: int) -> None:
        super().__init__(task, SingleConfig(prefetch=False))
        assert isinstance(self.algorithm, InParts)
        parts = self.algorithm.made_parts
        self.part, self.other = parts[which], parts[1 - which]
        self.shown, self.seen = joined(self.part.shows), joined(self.other.shows)
        self.round = 0
        """Updates since the two sides began."""
        self._lag = 0
        self._link: Link | None = None
        self._mine: Slots | None = None
        self._theirs: Slots | None = None
        self._questions: Questions | None = None
        self._waited = self._busy = 0.0
        """Seconds within updates: waits for the other side, and the rest."""
        self._since = perf_counter()

    def connect(self, link: Link, mine: Slots, theirs: Slots, *, lag: int, questions: Questions | None = None) -> None:
        """Begin: from now on updates need the other side. `lag`: updates that one may be ahead. `questions`: mode exact."""
        self._link, self._mine, self._theirs, self._lag, self.round = link, mine, theirs, lag, 0
        self._questions = questions
        self._publish()

    def update(self, rows: Mapping[str, Any]) -> Feedback | None:
        assert self._link is not None
        before, began = self._link.waited, perf_counter()
        feedback = super().update(rows)
        waited = self._link.waited - before
        self._waited += waited
        self._busy += perf_counter() - began - waited
        return feedback

    def _learn(self, batch: Batch) -> Metrics:
        assert isinstance(self.algorithm, InParts)
        given = self.algorithm.begin(batch)
        self._wait_for(max(self.round - self._lag, 0))
        shown = self._at_once(batch, given) if self._questions is None else self._in_order(batch, given, self._questions)
        self.round += 1
        self._publish()
        return shown

    def _at_once(self, batch: Batch, given: Any) -> Metrics:
        """At the same time as the other side, by its parameters of the same version, or of one at most `lag` away."""
        part = self.part
        if not part.is_due(self.clock.updates):
            return {}
        assert self._theirs is not None
        version = self._theirs.read(self.round + self._lag, self.seen)
        shown = part.gradient(batch, given)
        part.optimizer.apply()
        return {**shown, **part.after(shown), f"{self.other.name}_lag": float(self.round - version)}

    def _in_order(self, batch: Batch, given: Any, questions: Questions) -> Metrics:
        """One part after the other, each with answers of the side where the other one is."""
        assert isinstance(self.algorithm, InParts)
        shown: Metrics = {}
        for part in self.algorithm.made_parts:
            if not part.is_due(self.clock.updates):
                continue
            if part is not self.part:
                questions.answer(part, batch, given)
                continue
            offered = part.offers(batch, given)
            shown = part.descend(batch, given, offered, questions.ask(part, offered))
            part.optimizer.apply()
        return {**shown, **self.part.after(shown)} if self.part.is_due(self.clock.updates) else {}

    def _publish(self) -> None:
        assert self._mine is not None and self._link is not None
        self._mine.write(self.round, self.shown if self._questions is None else [])
        self._link.ring()

    def metrics(self) -> dict[str, float]:
        now, name = perf_counter(), self.part.name
        seconds, self._since = max(now - self._since, 1e-9), now
        own: dict[str, float] = {}
        if self._busy:  # else the last ones still hold: the run may have ended
            own = {f"{name}_waits": self._waited / seconds, f"{name}_busy": self._busy / seconds}
            own[f"{name}_version"] = float(self.clock.updates + 1)
        self._waited = self._busy = 0.0
        return {**super().metrics(), **own}

    def owned(self, groups: Mapping[str, Mapping[str, Array]]) -> dict[str, dict[str, Array]]:
        """Of all arrays of a state those that this side changes."""
        own = _places(self.part.owns)
        kept = self._saved.groups()
        live = {"algorithm": kept["algorithm"], "policy": dict(self.policy.state_dict())}
        found = {
            group: {name: groups[group][name] for name, one in named.items() if one.data_ptr() in own}
            for group, named in live.items()
        }
        mine = [i for i, one in enumerate(self._optimizers) if one.places & own]
        moments = groups.get("optimizer", {})
        found["optimizer"] = {name: array for name, array in moments.items() if name.partition(".")[0] in map(str, mine)}
        return found

    def _wait_for(self, version: int) -> None:
        theirs = self._theirs
        assert theirs is not None and self._link is not None
        self._link.wait(lambda: theirs.version >= version)


def _places(held: Held) -> set[int]:
    """Where the parameters and buffers of these lie."""
    tensors: list[Tensor] = []
    for one in held:
        tensors += one.state_dict().values() if isinstance(one, nn.Module) else [one]
    return {one.data_ptr() for one in tensors if one.numel()}
