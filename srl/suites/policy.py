"""The checks that every policy must pass, with a network or without one."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import numpy as np

from srl.api.env import ActionSpec, Box, Discrete, MultiDiscrete, action_leaves
from srl.api.policy import Act, Ask
from srl.api.slab import SlabShape
from srl.core.errors import UserError
from srl.core.progress import Tell, silent
from srl.core.registry import REGISTRIES
from srl.core.seeds import Rng, row_keys
from srl.core.spec import differences, lead, spec_of
from srl.core.tree import Array, leaves, map_tree
from srl.core.types import Component
from srl.core.user_code import user_code
from srl.learners.intake import Intake
from srl.plan.acting import named_arrays
from srl.suites.cases import Case, cases_of
from srl.suites.findings import REFUSALS, Broken, NotHere, SuiteReport, chosen, judged, refused
from srl.suites.rows import entries, extra_of, random_mask, random_obs, random_tree, recorded, spoiled
from srl.suites.trial import disturb_generators, first_difference, shaken

_ENVS, _STEPS = 12, 10
_CLOSE = 1e-4
"""Two ways of computing the same number may differ by so much."""


def check_policy(
    policy: Component, env: Component | None = None, *, only: Collection[str] = (), tell: Tell = silent
) -> SuiteReport:
    """Try every check (or `only` these) with all actions that the policy can give."""
    cases: dict[str, Case] = {}
    reasons: dict[str, UserError] = {}
    REGISTRIES["policy"].resolve(policy.use)
    for name, case in cases_of(policy, env).items():
        try:
            with user_code(f"{policy.use} cannot be built", ("try", "--trace, which shows the traceback")):
                extra_of(case.build(), case.spec)
        except UserError as error:
            if error.code not in REFUSALS:
                raise
            reasons[name] = error
        else:
            cases[name] = case
    if not cases:
        raise refused(f"policy {policy.use}", reasons, env)
    report = SuiteReport(f"policy {policy.use} with {', '.join(cases)}")
    checks = chosen(CHECKS, only)
    for number, (name, (claim, check)) in enumerate(checks.items()):
        tell("checks", number, len(checks))
        report.findings.append(
            judged(name, claim, {one: _bound(check, case) for one, case in cases.items()}, f"policy {policy.use}")
        )
    return report


def _bound(check: Callable[[Case], None], case: Case) -> Callable[[], None]:
    return lambda: check(case)


# checks: each raises Broken or NotHere ----------------------------------------------------------------------------------


def _fits(case: Case) -> None:
    act = _acting(case).act(_ask(case))
    expected = lead({"action": action_leaves(case.spec.action), "memory": case.build().memory}, _rows(case))
    found = spec_of({"action": act.action, "memory": act.memory})
    if lines := differences(expected, found):
        raise Broken(
            f"its answer does not fit: {lines[0]}",
            "action and memory have a row for each row of `ask.first`, of the declared dtype",
        )
    for path, leaf in leaves({"action": act.action, "extra": act.extra}):
        if np.asarray(leaf).dtype.kind == "f" and not np.isfinite(leaf).all():
            raise Broken(f"{path} of its answer is not finite", "a logarithm or a division of zero")


def _masks(case: Case) -> None:
    _allowed(case.spec.action, None, _acting(case).act(_ask(case)).action)
    if not case.spec.mask:
        raise NotHere("no case has a mask")
    for greedy in (False, True):
        ask = _ask(case, envs=16 * _ENVS, greedy=greedy)
        _allowed(case.spec.action, ask.mask, _acting(case).act(ask).action)


def _noise(case: Case) -> None:
    policy = _acting(case)
    answers: list[Act] = []
    for _ in range(2):
        disturb_generators(len(answers))
        answers.append(policy.act(_ask(case)))
    if name := _different(answers[0], answers[1]):
        raise Broken(f"one question has two answers: {name}", "draw from ask.rng only, and keep nothing between two questions")


def _seeds(case: Case) -> None:
    policy = _acting(case)
    one, two = (policy.act(_ask(case, envs=16 * _ENVS, seed=seed)) for seed in (0, 1))
    if _different(one, two) is not None:
        return
    if _different(one, policy.act(_ask(case, envs=16 * _ENVS, greedy=True))) is None:
        raise NotHere("its answers have no noise")
    raise Broken("two seeds draw the same actions", "draw from ask.rng, whose numbers differ by seed, row and tick")


def _greedy(case: Case) -> None:
    policy = _acting(case)
    one, two = ({"action": policy.act(_ask(case, greedy=True, seed=seed)).action} for seed in (0, 1))
    if first_difference(_flat(one), _flat(two)):
        raise Broken("greedy actions have noise", "with ask.greedy answer with the most likely action, or the best one")


def _rows_alone(case: Case) -> None:
    policy, ask = _acting(case), _ask(case)
    agents = case.spec.agents
    whole = policy.act(ask)
    for part in (slice(0, agents), slice(agents, None)):
        found = policy.act(_part(ask, part, agents))
        if name := _different(_cut(whole, part), found, _CLOSE):
            raise Broken(
                f"the answer of a row depends on the other rows: {name}",
                "statistics over the rows of a question, or noise that is not by row: ask.rng.uniform(), ask.rng.normal()",
            )


def _frozen(case: Case) -> None:
    policy = _acting(case)
    before = {name: array.copy() for name, array in named_arrays(policy).items()}
    if not before:
        raise NotHere("it has no parameters")
    for greedy in (False, True):
        policy.act(_ask(case, greedy=greedy))
    if name := first_difference(before, named_arrays(policy)):
        raise Broken(
            f"acting changes '{name}'", "statistics are taken in `observe` only, which the learner calls once for a batch"
        )


def _observes(case: Case) -> None:
    policy, intake, rows = _neural(case)
    void = np.concatenate([~rows["valid"], np.ones_like(rows["valid"][:1])])
    found = []
    for each in (rows, spoiled(rows, void, ("obs", "state"), case.seen)):
        other = case.build()
        other.load(named_arrays(policy), 0)
        other.observe(intake.batch(each, 0))
        found.append(named_arrays(other))
    if name := first_difference(found[0], found[1]):
        raise Broken(f"'{name}' takes statistics of rows that are not valid", "in `observe`, use batch.obs[:-1][batch.valid]")


def _loads(case: Case) -> None:
    state = shaken(case.build())
    if not state:
        raise NotHere("it has no parameters")
    one, two = case.build(), case.build()
    for policy in (one, two):
        policy.load({name: array.copy() for name, array in state.items()}, 1)
    given = {name: array.copy() for name, array in state.items()}
    two.load(given, 2)
    for array in given.values():
        array[...] = 1
    if name := first_difference(state, named_arrays(one)):
        raise Broken(
            f"'{name}' is not what was loaded", "what acting depends on are parameters and buffers, which `load` takes by name"
        )
    if name := _different(one.act(_ask(case)), two.act(_ask(case))):
        raise Broken(
            f"two policies with the same parameters act differently: {name}",
            "`load` copies, as the memory is used again; and what acting depends on are parameters and buffers",
        )


def _trains_as_it_acts(case: Case) -> None:
    policy, intake, rows = _neural(case)
    batch = intake.batch(rows, 0)
    heads = policy.unroll(batch)
    if "log_prob" in rows.get("extra", {}):
        now = {name: head[:-1] if name in ("logits", "value") else head for name, head in heads.items()}
        mask = None if batch.mask is None else map_tree(lambda leaf: leaf[:-1], batch.mask)
        _near(policy.dist(now, mask).log_prob(batch.action), batch.extra["log_prob"][:-1], "log_prob")
    for name in ("value", "q"):
        if name in heads and name in rows.get("extra", {}):
            _near(heads[name], batch.extra[name], name)


def _splits(case: Case) -> None:
    policy, intake, rows = _neural(case)
    if policy.memory == {}:
        raise NotHere("it has no memory")
    batch = intake.batch(rows, 0)
    whole = policy.unroll(batch)
    steps = len(rows["first"])
    for cut in range(1, steps):
        head = policy.unroll(batch.asked(0, cut))
        if "memory" not in head:
            raise Broken("unroll returns no head `memory`", "heads['memory'] is the memory after the last row")
        tail = policy.unroll(batch.asked(cut, steps, head["memory"]))
        for name in ("logits", "value", "q"):
            if name in whole:
                for part, rows_ in ((head, slice(0, cut)), (tail, slice(cut, steps))):
                    _near(part[name], whole[name][rows_], f"{name}, cut before row {cut}")


def _forgets(case: Case) -> None:
    policy, intake, rows = _neural(case)
    if policy.memory == {}:
        raise NotHere("it has no memory")
    rows["first"][0] = True
    other = map_tree(np.copy, rows)
    for _, leaf in leaves(other["memory"]):
        leaf += 3.0
    one, two = (policy.unroll(intake.batch(each, 0)) for each in (rows, other))
    for name in ("logits", "value", "q"):
        if name in one and np.abs(_host(one[name]) - _host(two[name])).max() > _CLOSE:
            raise Broken(
                f"'{name}' of a new episode depends on the memory of the last one",
                "in unroll, memory is zeroed in every row where batch.first is true",
            )


def _twin(case: Case) -> None:
    if case.twin_kind is None:
        raise NotHere("it has no numpy twin")
    policy = _acting(case)
    twin = case.twin_kind(dict(case.policy.args), case.spec)
    twin.load(named_arrays(policy), 1)
    if tuple(twin.reads) != tuple(policy.reads):
        raise Broken(f"the twin reads {tuple(twin.reads)}, the module {tuple(policy.reads)}", "`reads` must be the same")
    for greedy in (False, True):
        ask = _ask(case, greedy=greedy)
        theirs = policy.act(ask)
        ask.rng = Rng(ask.rng.keys)
        if name := _different(theirs, twin.act(ask), _CLOSE):
            raise Broken(f"the numpy twin answers differently: {name}", "let `numpy_twin` return None until it agrees")


CHECKS: dict[str, tuple[str, Callable[[Case], None]]] = {
    "answer": ("it has the declared form and is finite", _fits),
    "masks": ("only what is allowed is chosen", _masks),
    "noise": ("one question has one answer", _noise),
    "seeds": ("other seeds draw other actions", _seeds),
    "greedy": ("greedy actions have no noise", _greedy),
    "rows": ("the answer of a row does not depend on the other rows", _rows_alone),
    "evaluation": ("acting changes neither parameters nor statistics", _frozen),
    "statistics": ("they are taken of valid rows only", _observes),
    "checkpoint": ("a policy that loads the parameters of another one acts like it", _loads),
    "training": ("unroll computes what was recorded when the policy acted", _trains_as_it_acts),
    "recurrence": ("a sequence may be split anywhere", _splits),
    "new episodes": ("nothing of the last episode is left in the next", _forgets),
    "numpy twin": ("it answers as the module does", _twin),
}


def _rows(case: Case, envs: int = _ENVS) -> int:
    return envs * case.spec.agents


def _acting(case: Case) -> Any:
    """With parameters that are no longer those it starts with."""
    policy = case.build()
    policy.load(shaken(policy), 0)
    return policy


def _neural(case: Case) -> tuple[Any, Intake, dict[str, Any]]:
    """A policy that is trained, and rows that it has recorded: memory at row 0."""
    policy = _acting(case)
    if not hasattr(policy, "unroll"):
        raise NotHere("it does not learn")
    shape = SlabShape(steps=_STEPS, envs=_ENVS, agents=case.spec.agents)
    rows = recorded(policy, case.spec, shape, extra_of(policy, case.spec), seen=case.seen, seed=5, ends=0.2)
    return policy, Intake(shape, policy.device, 0, joint=False), rows


def _ask(case: Case, *, envs: int = _ENVS, greedy: bool = False, seed: int = 0) -> Ask:
    """A question of random rows, the same for every seed but for its noise."""
    noise, spec, rows = np.random.default_rng(4), case.spec, _rows(case, envs)
    ids = np.arange(rows, dtype=np.int64)
    first = noise.random(rows) < 0.2
    memory = random_tree(lead(case.build().memory, rows), noise)
    for _, leaf in leaves(memory):
        leaf[first] = 0.0
    return Ask(
        obs=random_obs(lead(spec.obs, rows), case.seen, noise), memory=memory, first=first,
        mask=random_mask(spec.action, (rows,), noise) if spec.mask else None,
        state=None if spec.state is None else random_tree(lead(spec.state, envs), noise),
        ids=ids, rng=Rng(row_keys(seed, ids, 3)), greedy=greedy,
    )  # fmt: skip


def _part(ask: Ask, rows: slice, agents: int) -> Ask:
    envs = slice(rows.start // agents, None if rows.stop is None else rows.stop // agents)

    def part(leaf: Array) -> Array:
        return leaf[rows]

    return Ask(
        obs=map_tree(part, ask.obs), memory=map_tree(part, ask.memory), first=ask.first[rows],
        mask=None if ask.mask is None else map_tree(part, ask.mask),
        state=None if ask.state is None else map_tree(lambda leaf: leaf[envs], ask.state),
        ids=ask.ids[rows], rng=Rng(ask.rng.keys[rows]), greedy=ask.greedy,
    )  # fmt: skip


def _cut(act: Act, rows: slice) -> Act:
    return Act(*(map_tree(lambda leaf: np.asarray(leaf)[rows], tree) for tree in (act.action, act.memory, act.extra)))


def _flat(tree: Any) -> dict[str, Array]:
    return {path: np.asarray(leaf) for path, leaf in leaves(tree)}


def _different(one: Act, two: Act, close: float = 0.0) -> str | None:
    """The path of a leaf that differs in two answers. By more than `close`, if it is real."""
    pair = [_flat({"action": act.action, "memory": act.memory, "extra": act.extra}) for act in (one, two)]
    if pair[0].keys() != pair[1].keys():
        return ", ".join(sorted(pair[0].keys() ^ pair[1].keys()))
    for name, array in pair[0].items():
        other = pair[1][name]
        if array.shape != other.shape:
            return f"{name}, {array.shape} and {other.shape}"
        real = close and array.dtype.kind == "f"
        if not (np.allclose(array, other, atol=close, rtol=10 * close) if real else np.array_equal(array, other)):
            return name
    return None


def _allowed(action: ActionSpec, mask: Any, chosen: Any) -> None:
    """Broken if a choice is not one of those that there are, or that the mask allows."""
    if isinstance(action, dict):
        for key, part in action.items():
            _allowed(part, None if mask is None else mask.get(key), chosen[key])
        return
    if isinstance(action, Discrete | MultiDiscrete):
        columns = np.asarray(chosen).reshape(len(chosen), -1)
        start = 0
        for column, number in enumerate(entries(action)):
            picked = columns[:, column]
            if ((picked < 0) | (picked >= number)).any():
                raise Broken(f"it chose {picked.min()} to {picked.max()} of {number} choices", "choices count from 0")
            if mask is not None and not np.take_along_axis(mask[:, start : start + number], picked[:, None], 1).all():
                raise Broken(
                    "it chose what the mask forbids", "give the mask to `dist`, or read ask.mask, with 'mask' in `reads`"
                )
            start += number
    elif not isinstance(action, Box) and mask is not None and (np.asarray(chosen).astype(bool) & ~mask).any():
        raise Broken("it set a bit that the mask forbids", "give the mask to `dist`, or read ask.mask, with 'mask' in `reads`")


def _host(tensor: Any) -> Array:
    found: Array = tensor.detach().cpu().numpy()
    return found


def _near(found: Any, expected: Any, name: str) -> None:
    one, two = _host(found), _host(expected)
    if one.shape != two.shape:
        raise Broken(f"'{name}' has the shape {one.shape} instead of {two.shape}", "heads are [T, B, ...]")
    away = float(np.abs(one - two).max(initial=0.0))
    if away > 10 * _CLOSE:
        raise Broken(
            f"'{name}' is off by {away:.2g}",
            "the same forward pass for acting and training; no dropout, no statistics of a batch",
        )
