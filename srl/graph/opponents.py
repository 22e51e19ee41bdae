"""Past versions as opponents: for each policy that learns a match, an actor in which the others act with kept versions.

A league (srl/workers/league.py) chooses them and publishes them to the policy workers of the match.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from srl.config.experiment import Experiment, Opponents
from srl.core.errors import UserError
from srl.graph.placement import inside
from srl.graph.spec import Graph, Node, Stream

if TYPE_CHECKING:
    from srl.graph.layouts import Sizes


def with_opponents(graph: Graph, experiment: Experiment, sizes: Sizes, *, home: Node | None) -> Graph:
    """The graph with a league and a match for each policy that learns; inside `home`, if everything is."""
    wanted = experiment.opponents
    assert wanted is not None
    if len(sizes.learning) < 2 and len(sizes.entries) > 1:
        raise UserError(
            "`opponents` needs two policies that learn, so that each meets what the other was",
            ("found", f"only {', '.join(sizes.learning) or 'none'} learns of {', '.join(sizes.entries)}"),
            ("try", "opponents=null: the policy that learns plays against those that do not"),
            code="E10",
        )
    if len(sizes.learning) < 2:
        raise UserError(
            "`opponents` needs a policy for each team",
            ("found", f"one policy that learns, {', '.join(sizes.learning)}, which plays against itself"),
            ("try", 'agents: {"hider_*": hider, "seeker_*": seeker} and `policies:` for both'),
            code="E10",
        )
    actors, policies, streams = [], [], []
    league = {f"params:{name}": f"params.{name}" for name in sizes.learning}
    for learner in sizes.learning:
        match = _Match(graph, sizes, wanted, learner, home)
        actors.append(match.actor)
        policies += match.policies
        streams += match.streams
        league |= match.league
    args = {
        "keep_every": wanted.keep_every,
        "choose": wanted.choose,
        "initial": wanted.initial,
        "power": wanted.power,
        "hold": wanted.hold * wanted.groups,
        "ahead": 2 * wanted.groups,
    }
    node = Node(name="league", worker="league", args=args, ports=league)
    nodes = [_with_more_slabs(node, wanted) if node.worker == "trainer" else node for node in graph.nodes]
    # the league comes before the policy workers: inline, a choice counts from the next row on
    nodes += [*actors, inside(node, home) if home else node, *policies]
    return replace(graph, nodes=tuple(nodes), streams=(*graph.streams, *streams))


class _Match:
    """One policy that learns against past versions of the others."""

    def __init__(self, graph: Graph, sizes: Sizes, wanted: Opponents, learner: str, home: Node | None) -> None:
        name = f"actor.{learner}"
        args = {"groups": wanted.groups, "envs": sizes.per_group, "steps": sizes.steps, "title": f"vs_past/{learner}"}
        actor = replace(graph.node("actor"), name=name, count=1, args=args)
        ports = {f"samples:{learner}": f"samples.{learner}", f"episodes:{learner}": f"episodes.{learner}"}
        self.streams = [Stream(name=f"episodes.{learner}", kind="sample", policy=learner)]
        self.league = {f"episodes:{learner}": f"episodes.{learner}"}
        self.policies: list[Node] = []
        for policy in sizes.entries:
            is_past = policy in sizes.learning and policy != learner
            title = f"{policy}.past.{name}" if is_past else f"{policy}.{name}"
            joined = {"asks": f"ask.{title}"}
            if policy in sizes.learning:
                joined["params"] = f"params.{title}" if is_past else f"params.{policy}"
            ports[f"infer:{policy}"] = joined["asks"]
            self.streams.append(Stream(name=joined["asks"], kind="infer", policy=policy))
            if is_past:
                self.streams.append(Stream(name=joined["params"], kind="param", policy=policy))
                self.league[f"past:{policy}/{learner}"] = joined["params"]
            asked = {"policy": policy, "max_batch": wanted.groups * sizes.per_group}
            node = Node(name=f"policy.{title}", worker="policy", args=asked, ports=joined)
            self.policies.append(inside(node, home or actor))
        actor = replace(actor, ports=ports)
        self.actor = inside(actor, home) if home else actor


def _with_more_slabs(trainer: Node, wanted: Opponents) -> Node:
    """Slabs of its match are part of its batch."""
    return replace(trainer, args={**trainer.args, "slabs": trainer.args["slabs"] + wanted.groups})
