"""Past versions as opponents: for each policy that learns a match, an actor in which the others act with kept versions.

A league (srl/workers/league.py) chooses them and publishes them to the policy workers of the match.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from srl.config.experiment import Experiment
from srl.core.errors import UserError
from srl.graph.builder import GraphBuilder
from srl.graph.spec import Node, Stream

if TYPE_CHECKING:
    from srl.graph.layouts import Sizes


def add_opponents(g: GraphBuilder, experiment: Experiment, sizes: Sizes) -> None:
    """A match for each policy that learns, and the league; inside the first trainer, if everything is."""
    wanted = experiment.opponents
    assert wanted is not None
    _check(sizes)
    home = g.nodes[0].inside
    matches: dict[str, Node | str] = {}
    asks: dict[tuple[str, str], Stream] = {}
    params: dict[tuple[str, str], Stream] = {}
    past: dict[str, Stream] = {}
    for learner in sizes.learning:
        for policy in sizes.entries:
            is_past = policy in sizes.learning and policy != learner
            title = f"{policy}.past.actor.{learner}" if is_past else f"{policy}.actor.{learner}"
            asks[learner, policy] = g.infer(policy, f"ask.{title}")
            if is_past:
                past[f"{policy}/{learner}"] = params[learner, policy] = g.param(policy, f"params.{title}")
            elif policy in sizes.learning:
                params[learner, policy] = g.param(policy)
        actor = g.node(
            "actor",
            f"actor.{learner}",
            inside=home,
            groups=wanted.groups,
            envs=sizes.per_group,
            steps=sizes.steps,
            title=f"vs_past/{learner}",
            infer=[asks[learner, policy] for policy in sizes.entries],
            samples=[g.sample(learner)],
            episodes=[g.sample(learner, f"episodes.{learner}")],
        )
        matches[learner] = home or actor
    # the league comes before the policy workers: inline, a choice counts from the next row on
    g.node(
        "league",
        inside=home,
        params=[g.param(name) for name in sizes.learning],
        episodes=[g.sample(name, f"episodes.{name}") for name in sizes.learning],
        past=past,
        keep_every=wanted.keep_every,
        choose=wanted.choose,
        initial=wanted.initial,
        power=wanted.power,
        hold=wanted.hold * wanted.groups,
        ahead=2 * wanted.groups,
    )
    for (learner, policy), ask in asks.items():
        weights = {"params": params[learner, policy]} if (learner, policy) in params else {}
        most = wanted.groups * sizes.per_group
        name = f"policy.{ask.name.removeprefix('ask.')}"
        g.node("policy", name, inside=matches[learner], policy=policy, max_batch=most, asks=ask, **weights)  # type: ignore[arg-type]


def _check(sizes: Sizes) -> None:
    if len(sizes.learning) >= 2:
        return
    learning = ", ".join(sizes.learning) or "none"
    if len(sizes.entries) > 1:
        requires, found = "at least two learning policies", f"{learning}, of {', '.join(sizes.entries)}"
        instead = "opponents=null: the policy that learns plays against those that do not"
    else:
        requires, found = "a policy for each team", f"one policy, {learning}, which plays against itself"
        instead = 'agents: {"hider_*": hider, "seeker_*": seeker} and `policies:` for both'
    raise UserError(f"`opponents` requires {requires}", ("found", found), ("try", instead), code="E10", path=("opponents",))
