"""The checks that every algorithm must pass. Each trains small learners on rows of which one thing differs, and compares them."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from typing import Any

import numpy as np

from srl.core.errors import UserError
from srl.core.progress import Tell, silent
from srl.core.registry import REGISTRIES
from srl.core.tree import Array, leaves, map_tree
from srl.core.types import Component
from srl.core.user_code import user_code
from srl.suites.cases import cases_of
from srl.suites.findings import REFUSALS, Broken, NotHere, SuiteReport, chosen, judged, refused
from srl.suites.ranks import check_ranks, check_ranks_are_one
from srl.suites.rows import spoiled
from srl.suites.trial import Trial, arrays, disturb_generators, first_difference, learned, train

_SEEN = ("obs", "extra")
_ENOUGH = 4
"""Cases that are tried, at most."""


def check_algorithm(
    algorithm: Component,
    policy: Component,
    env: Component | None = None,
    *,
    only: Collection[str] = (),
    tell: Tell = silent,
) -> SuiteReport:
    """Try every check (or `only` these) with this policy, and with one that has memory if the algorithm can train it."""
    kind = REGISTRIES["algorithm"].resolve(algorithm.use)
    trials, reasons = _trials(algorithm, kind, policy, env)
    if not trials:
        raise refused(f"algorithm {algorithm.use} with policy {policy.use}", reasons, env)
    report = SuiteReport(
        f"algorithm {algorithm.use} with policies of {', '.join(sorted({t.case.policy.use for t in trials.values()}))}"
    )
    checks = chosen(CHECKS, only)
    for number, (name, (claim, check)) in enumerate(checks.items()):
        tell("checks", number, len(checks))
        cases = {case: _bound(check, trial) for case, trial in trials.items()}
        report.findings.append(judged(name, claim, cases, f"algorithm {algorithm.use}"))
    return report


def _bound(check: Callable[[Trial], None], trial: Trial) -> Callable[[], None]:
    return lambda: check(trial)


def _trials(
    algorithm: Component, kind: Any, policy: Component, env: Component | None
) -> tuple[dict[str, Trial], dict[str, UserError]]:
    """By the name of their case; and why the others cannot be built."""
    trials: dict[str, Trial] = {}
    reasons: dict[str, UserError] = {}
    memory = [Component(use) for use in ("recurrent", "recurrent_q") if use != policy.use]
    for used in (policy, *memory):
        found = 0
        for name, case in cases_of(used, env).items():
            if found == (_ENOUGH if used is policy else 1):
                break
            name = name if used is policy else f"{name} and policy {used.use}"
            trial = Trial(kind, algorithm.args, case)
            try:
                if not issubclass(trial.case.kind, kind.Policy):
                    message = f"it trains a {kind.Policy.__name__}, and {used.use} is none"
                    raise UserError(message, ("try", "policy=NAME of one"), code="E10")
                with user_code(f"{algorithm.use} cannot be built", ("try", "--trace, which shows the traceback")):
                    trial.learner()
                    _ = trial.extra
            except UserError as error:
                if error.code not in REFUSALS:
                    raise
                reasons[name] = error
            else:
                trials[name] = trial
                found += 1
    return trials, reasons


# checks: each raises Broken or NotHere ----------------------------------------------------------------------------------


def _void_rows(trial: Trial) -> None:
    rows = trial.rows(7)
    void = ~rows["valid"]
    if not void.any():
        raise NotHere("a replay without sequences draws valid rows only")
    other = spoiled(rows, void, ("reward", "action", "signals"))
    _must_equal(trial, rows, other, "actions and rewards of rows that are not valid change what is learned",
                "a mean over all rows: use batch.mean(x), and batch.cut in sums over time")  # fmt: skip


def _terminated(trial: Trial) -> None:
    rows = trial.rows(8)
    after = _after(rows["terminated"])
    other = spoiled(rows, after, _SEEN, trial.case.seen)
    _must_equal(trial, rows, other, "what is seen after a termination changes what is learned",
                "a bootstrap value beyond a terminated row: use batch.terminated, or batch.discount of a replay")  # fmt: skip


def _truncated(trial: Trial) -> None:
    rows, going_on = trial.rows(9), trial.rows(9, dense=True)
    if trial.single:  # half of the rows end an episode: those that go on are the others
        going_on = rows
    last = np.zeros_like(going_on["first"])
    last[-1] = True
    if trial.single:
        last[-1] &= ~(rows["terminated"] | rows["truncated"])[0]
    if not _differs(trial, going_on, spoiled(going_on, last, _SEEN, trial.case.seen)):
        raise NotHere("it uses no value of the row after the last one")
    after = _after(rows["truncated"])
    assert after.any()
    if not _differs(trial, rows, spoiled(rows, after, _SEEN, trial.case.seen)):
        raise Broken(
            "what is seen after a truncation changes nothing, as if the episode had terminated",
            "truncated rows keep their bootstrap value: only batch.terminated ends it (batch.cut: no later reward counts)",
        )


def _masks(trial: Trial) -> None:
    if not trial.case.spec.mask:
        raise NotHere("no case has a mask")
    rows = trial.rows(10)
    other = map_tree(np.copy, rows)
    for _, leaf in leaves(other["mask"]):
        leaf[...] = True
    if not _differs(trial, rows, other):
        raise Broken(
            "masks change nothing of what is learned", "give batch.mask to policy.dist, and to every choice of an action"
        )


def _memory(trial: Trial) -> None:
    if trial.case.build().memory == {}:
        raise NotHere("it trains no policy with memory")
    rows = trial.rows(11)
    other = map_tree(np.copy, rows)
    for _, leaf in leaves(other["memory"]):
        leaf += 1.0
    if not _differs(trial, rows, other):
        raise Broken(
            "the memory that was recorded where a sequence begins changes nothing",
            "batch.minibatches(rows, epochs, window), or batch.memory: do not begin from zeros",
        )


def _repeats(trial: Trial) -> None:
    found: list[dict[str, Array]] = []
    for seed in (0, 0, 1):
        disturb_generators(len(found))
        found.append(learned(trial.warm(seed)))
    if name := first_difference(found[0], found[1]):
        raise Broken(
            f"two learners with one seed come to differ: {name}",
            "draw from batch.rng(tag), batch.normal(tag) or torch, not from generators of numpy or Python",
        )
    if first_difference(found[0], found[2]) is None:
        raise Broken("learners with two seeds learn the same", "a fixed seed: take randomness from batch.rng(tag) or torch")


def _resumes(trial: Trial) -> None:
    straight, cut = trial.warm(), trial.warm()
    groups, state = cut.state()
    train(cut, trial.rows(300), 2)  # what was saved must be a copy
    state = json.loads(json.dumps(state))
    resumed = trial.learner()
    resumed.restore(groups, state)
    if name := first_difference(arrays(groups), arrays(resumed.state()[0])):
        raise Broken(
            f"a restored learner differs from the one that was saved: {name}", "what a checkpoint keeps are attributes of self"
        )
    found = []
    for learner in (straight, resumed):
        learner.restore(groups, state)  # torch has one generator for all: it stands where it was saved
        for update in range(2, 4):
            train(learner, trial.rows(200 + update), update)
        found.append(arrays(learner.state()[0]))
    if name := first_difference(found[0], found[1]):
        raise Broken(
            f"training on after a checkpoint is not as if there had been none: {name}",
            "keep what changes in attributes of self: networks, optimizers, tensors or numbers",
        )


def _keeps_no_rows(trial: Trial) -> None:
    found = []
    for spoil in (False, True):
        learner = trial.warm()
        rows = trial.rows(12)
        learner.clock.updates = 2
        learner.update(rows)
        if spoil:
            for _, leaf in leaves(rows):
                leaf[...] = 0
        train(learner, trial.rows(13), 3)
        found.append(arrays(learner.state()[0]))
    if name := first_difference(found[0], found[1]):
        raise Broken(f"it still reads a batch after its update: {name}", "batch.keep(names): the memory of a batch is used again")


def _finite(trial: Trial) -> None:
    learner = trial.warm()
    for name, value in learner.metrics().items():
        if not np.isfinite(value):
            raise Broken(f"its metric `{name}` is {value}", "return numbers, or tensors of one number")
    for name, array in learned(learner).items():
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise Broken(f"{name} is not finite after two updates", "a division by zero, or a logarithm of it")


CHECKS: dict[str, tuple[str, Callable[[Trial], None]]] = {
    "updates": ("parameters and metrics are finite after an update", _finite),
    "valid rows": ("rows that are no transitions do not matter", _void_rows),
    "termination": ("nothing after a terminated row is worth anything to it", _terminated),
    "truncation": ("a truncated row keeps the value of what comes after it", _truncated),
    "masks": ("what was allowed matters", _masks),
    "recurrence": ("sequences begin with the memory that was recorded", _memory),
    "seeds": ("one seed learns the same twice, two seeds do not", _repeats),
    "memory of batches": ("no batch is read after its update", _keeps_no_rows),
    "checkpoint": ("a learner that is saved and restored continues bit for bit", _resumes),
    "ranks": ("two trainers of one policy have the same weights after every update", check_ranks),
    "ranks on halves": ("two trainers on halves of a batch learn what one learns from all of it", check_ranks_are_one),
}


def _after(ends: Array) -> Array:
    """[T + 1, E, A]: the rows after those that end an episode."""
    after: Array = np.concatenate([np.zeros_like(ends[:1]), ends])
    return after


def _learned_from(trial: Trial, rows: Mapping[str, Any]) -> tuple[dict[str, Array], dict[str, Array]]:
    """What was known before the update, and after it."""
    learner = trial.warm(weights=trial.weights)
    before = learned(learner)
    train(learner, rows, 2)
    return before, learned(learner)


def _must_equal(trial: Trial, rows: dict[str, Any], other: dict[str, Any], seen: str, likely: str) -> None:
    before, one = _learned_from(trial, rows)
    _, two = _learned_from(trial, other)
    if name := first_difference(one, two, before):
        raise Broken(f"{seen} ({name})", likely)


def _differs(trial: Trial, rows: dict[str, Any], other: dict[str, Any]) -> bool:
    _, one = _learned_from(trial, rows)
    _, two = _learned_from(trial, other)
    return first_difference(one, two) is not None
