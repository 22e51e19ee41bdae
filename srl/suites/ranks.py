"""Two trainers of one policy as two threads of this process, and what they must agree on."""

from __future__ import annotations

import queue
import threading
from dataclasses import replace
from typing import Any

import numpy as np

from srl.api.batch import Ranks
from srl.core.errors import OthersLost, SrlError, UserError
from srl.core.load import load
from srl.core.tree import map_tree
from srl.learners.single import SingleLearner
from srl.suites.findings import Broken, NotHere
from srl.suites.trial import Trial, first_difference, learned, train

_PATIENCE = 60.0
_ALL_ROWS = 1 << 20


class _Side:
    """The sums of one of two ranks."""

    def __init__(self, index: int, mine: queue.Queue[Any], theirs: queue.Queue[Any]) -> None:
        self._index, self._mine, self._theirs = index, mine, theirs

    def total(self, x: Any) -> Any:
        """The sum over both, written into `x`."""
        self._theirs.put(x.detach().clone())
        try:
            other = self._mine.get(timeout=_PATIENCE)
        except queue.Empty:
            other = None
        if other is None:
            raise OthersLost("one rank sums up something that the other one does not")
        if other.shape != x.shape:
            raise OthersLost(f"one rank sums up {tuple(x.shape)} numbers, the other one {tuple(other.shape)}")
        pair = (x.clone(), other) if self._index == 0 else (other, x.clone())
        x.copy_(pair[0] + pair[1])
        return x

    def leave(self) -> None:
        self._theirs.put(None)


def trained_together(trial: Trial, parts: list[list[dict[str, Any]]]) -> list[SingleLearner]:
    """Two learners, each after updates on its own rows. Broken if they do not ask for the same sums."""
    queues: tuple[queue.Queue[Any], queue.Queue[Any]] = (queue.Queue(), queue.Queue())
    sides = [_Side(index, queues[index], queues[1 - index]) for index in range(2)]
    learners = []
    for index, side in enumerate(sides):
        ranks = Ranks(index, 2)
        shape = replace(trial.shape, envs=trial.shape.envs // 2)
        learners.append(trial.learner(shape=shape, ranks=ranks))
        ranks.sums["cpu"] = side
    failed: list[Exception] = []

    def run(index: int) -> None:
        try:
            for update, rows in enumerate(parts[index]):
                train(learners[index], rows, update)
        except Exception as error:  # told by the thread that checks
            failed.append(error)
        finally:
            sides[index].leave()

    threads = [threading.Thread(target=run, args=(index,), name=f"srl rank {index}", daemon=True) for index in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    errors = sorted(failed, key=lambda error: isinstance(error, OthersLost))
    if errors and isinstance(errors[0], OthersLost):
        raise Broken(errors[0].headline, "what decides about a batch.mean, or about a step, must be the same on all ranks")
    if errors:
        raise errors[0]
    return learners


def _built(trial: Trial) -> None:
    try:
        trial.learner(ranks=Ranks(0, 2))
    except SrlError as error:
        if isinstance(error, UserError):
            raise NotHere(error.headline) from error
        raise


def _halves(trial: Trial, rows: dict[str, Any]) -> list[dict[str, Any]]:
    """The parts of two ranks: windows of a replay, or envs."""
    half = len(rows["ids"]) // 2 if trial.replayed else trial.shape.envs // 2

    def part(leaf: Any, index: int) -> Any:
        own = slice(index * half, (index + 1) * half)
        if leaf.ndim == 1:
            return leaf[own] if len(leaf) == 2 * half else leaf
        return np.ascontiguousarray(leaf[:, own])

    return [map_tree(lambda leaf, index=index: part(leaf, index), rows) for index in range(2)]


def check_ranks(trial: Trial) -> None:
    """The same weights, also where one rank has almost no rows."""
    _built(trial)
    parts: list[list[dict[str, Any]]] = [[], []]
    for update in range(2):
        halves = _halves(trial, trial.rows(20 + update))
        if not trial.replayed:
            halves[0]["valid"][2:] = False
            for name in ("terminated", "truncated", "choice"):
                if name in halves[0]:
                    halves[0][name] &= halves[0]["valid"]
        for index in range(2):
            parts[index].append(halves[index])
    one, two = (learned(learner) for learner in trained_together(trial, parts))
    if other := first_difference(one, two):
        raise Broken(
            f"two trainers of one policy come to differ: {other}",
            "statistics and decisions must be of the rows of all ranks: batch.mean, batch.count, batch.origin.ranks.total",
        )


def check_ranks_are_one(trial: Trial) -> None:
    """Of whole batches, as minibatches are shuffled by each rank."""
    _built(trial)
    if trial.replayed:
        raise NotHere("off-policy, each rank draws noise of its own")
    known = {name: value for name, value in (("minibatch", _ALL_ROWS), ("epochs", 2)) if hasattr(trial.config, name)}
    whole = Trial(trial.kind, {**trial.settings, **known}, trial.case)
    load(trial.kind.Config, whole.settings, path="algorithm")
    rows = whole.rows(30, ends=0.05)
    rows["valid"][:, : whole.shape.envs // 2] &= (
        np.random.default_rng(0).random(rows["valid"].shape)[:, whole.shape.envs // 2 :] < 0.4
    )
    if "choice" in rows:
        rows["choice"] &= rows["valid"]
    alone = whole.learner()
    start = learned(alone)
    train(alone, rows, 0)
    together = trained_together(whole, [[half] for half in _halves(whole, rows)])[0]
    if other := first_difference(learned(alone), learned(together), start, 0.05):
        raise Broken(
            f"two trainers on halves of a batch learn something else than one on the whole: {other}",
            "losses are sums over the own rows divided by those of all ranks: batch.mean, not .mean()",
        )
