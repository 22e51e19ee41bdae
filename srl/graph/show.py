"""A graph for people: the start plan with its derived numbers, a text picture, and Mermaid."""

from __future__ import annotations

from srl.core.text import settings
from srl.core.types import SIDES, Component
from srl.graph.placement import members, owner, via_of
from srl.graph.spec import Graph, Node, Stream

_BOTH_WAYS = ("infer", "sum")


def as_text(graph: Graph) -> str:
    """The processes, and every stream with its workers."""
    rows = [f"{graph.name}: {words(graph.env)}", "", "processes"]
    homes = [node for node in graph.nodes if node.inside is None] if graph.mode != "inline" else graph.nodes[:1]
    for home in homes:
        inner = ", ".join(node.name for node in (_inside(graph, home) if graph.mode != "inline" else graph.nodes[1:]))
        rows.append(f"  {times(home)}" + (f" with {inner} inside" if inner else ""))
    rows += ["", "streams"]
    for stream in graph.streams:
        gives, takes = (", ".join(map(times, side)) or "none" for side in _sides(graph, stream))
        arrow = "<->" if stream.kind in _BOTH_WAYS else "-->"
        route = "" if stream.route == "fair" else f"  route {stream.route}"
        rows.append(f"  {stream.name:<16} {stream.kind:<7} {via_of(graph, stream):<7} {gives} {arrow} {takes}{route}")
    return "\n".join(rows)


def as_mermaid(graph: Graph) -> str:
    """A flowchart for a page that renders Mermaid."""
    rows = ["flowchart LR"]
    for home in (node for node in graph.nodes if node.inside is None):
        boxes = [f'{_id(node.name)}["{times(node)}"]' for node in (home, *_inside(graph, home))]
        if len(boxes) == 1:
            rows.append(f"  {boxes[0]}")
        else:
            rows += [f"  subgraph {_id(home.name)}_process[process of {home.name}]", *(f"    {box}" for box in boxes), "  end"]
    for stream in graph.streams:
        gives, takes = _sides(graph, stream)
        arrow = "<-->" if stream.kind in _BOTH_WAYS else "-.->" if stream.kind == "param" else "-->"
        for giver in gives:
            for taker in takes:
                rows.append(f"  {_id(giver.name)} {arrow}|{stream.name}| {_id(taker.name)}")
    return "\n".join(rows) + "\n"


def times(node: Node) -> str:
    """`actor x 2`"""
    return node.name if node.count == 1 else f"{node.name} x {node.count}"


def words(component: Component) -> str:
    """`ppo lr=0.001`"""
    return " ".join([component.use, settings(component.args)]).rstrip()


def _sides(graph: Graph, stream: Stream) -> list[list[Node]]:
    """The nodes on the first and on the second side of a stream."""
    ends = list(members(graph, stream.name))
    return [[node for node, _, own in ends if own == side] for side in SIDES[stream.kind]]


def _inside(graph: Graph, home: Node) -> list[Node]:
    return [node for node in graph.nodes if node is not home and owner(graph, node, 0)[0] == home.name]


def _id(name: str) -> str:
    return "".join(char if char.isalnum() else "_" for char in name)
