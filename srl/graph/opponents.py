"""Past versions as opponents: for each learning policy, an actor whose other teams act with kept versions of theirs."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from srl.config.experiment import Experiment, Opponents
from srl.core.errors import UserError
from srl.core.types import PolicyEntry
from srl.graph.placement import inside
from srl.graph.spec import Graph, Node, Stream

if TYPE_CHECKING:
    from srl.graph.layouts import Sizes


def with_opponents(graph: Graph, experiment: Experiment, sizes: Sizes, *, home: Node | None) -> Graph:
    """The graph with `<policy>.past` for every learning policy and the nodes where they play; inside `home`, if all is."""
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
    past = {name: f"{name}.past" for name in sizes.learning}
    entries = {past[name]: PolicyEntry(policy=graph.policies[name].policy, source=name) for name in sizes.learning}
    nodes, streams = list(graph.nodes), list(graph.streams)
    for learner in sizes.learning:
        added = _match(graph, sizes, wanted, learner, past, home)
        nodes += added[0]
        streams += added[1]
    nodes = [_fed(node, wanted) if node.worker == "trainer" else node for node in nodes]
    return replace(graph, policies={**graph.policies, **entries}, nodes=tuple(nodes), streams=tuple(streams))


def _match(
    graph: Graph, sizes: Sizes, wanted: Opponents, learner: str, past: dict[str, str], home: Node | None
) -> tuple[list[Node], list[Stream]]:
    """One policy that learns against past versions of all others."""
    stand_ins = {name: stand_in for name, stand_in in past.items() if name != learner}
    actor = f"actor.{learner}"
    args = {"groups": wanted.groups, "envs": sizes.per_group, "steps": sizes.steps, "stand_ins": stand_ins}
    mine = replace(graph.node("actor"), name=actor, count=1, args=args)
    ports = {f"samples:{learner}": f"samples.{learner}"}
    nodes, streams = [], []
    for name in sizes.entries:
        acting = stand_ins.get(name, name)
        ask = f"ask.{acting}.{actor}"
        ports[f"infer:{acting}"] = ask
        streams.append(Stream(name=ask, kind="infer", policy=acting))
        asked: dict[str, object] = {"policy": acting, "max_batch": wanted.groups * sizes.per_group}
        if acting != name:
            asked |= {"choose": wanted.choose, "initial": wanted.initial, "hold": wanted.hold * wanted.groups * (sizes.steps + 1)}
            if wanted.choose == "win_rate":
                asked["power"] = wanted.power
        joined = {"asks": ask}
        if name in sizes.learning:
            joined["params"] = f"params.{name}"
        nodes.append(inside(Node(name=f"policy.{acting}.{actor}", worker="policy", args=asked, ports=joined), home or mine))
    mine = replace(mine, ports=ports)
    return [inside(mine, home) if home else mine, *nodes], streams


def _fed(trainer: Node, wanted: Opponents) -> Node:
    """More slabs make its batch, and it keeps versions."""
    slabs = trainer.args["slabs"] + wanted.groups
    return replace(trainer, args={**trainer.args, "slabs": slabs, "keep_every": wanted.keep_every})
