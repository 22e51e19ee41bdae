"""A graph for people: the start plan with its derived numbers, a text picture, and Mermaid."""

from __future__ import annotations

from srl.core.text import settings
from srl.core.types import Component
from srl.graph.placement import members, owner, via_of
from srl.graph.spec import Graph, Node

_GIVES = ("producer", "client", "publisher")


def as_text(graph: Graph) -> str:
    """Every stream with who is on it, by process."""
    rows = [f"{graph.name}: {words(graph.env)}", "", "processes"]
    for home in graph.nodes:
        if home.inside is not None and graph.mode != "inline":
            continue
        inner = [node.name for node in graph.nodes if node is not home and owner(graph, node, 0)[0] == home.name]
        if graph.mode == "inline" and home is not graph.nodes[0]:
            continue
        if graph.mode == "inline":
            inner = [node.name for node in graph.nodes[1:]]
        rows.append(f"  {times(home)}" + (f" with {', '.join(inner)} inside" if inner else ""))
    rows += ["", "streams"]
    for stream in graph.streams:
        ends = list(members(graph, stream.name))
        gives = ", ".join(times(node) for node, _, side in ends if side in _GIVES) or "none"
        takes = ", ".join(times(node) for node, _, side in ends if side not in _GIVES) or "none"
        arrow = "<->" if stream.kind == "infer" else "-->"
        route = "" if stream.route == "fair" else f"  route {stream.route}"
        rows.append(f"  {stream.name:<16} {stream.kind:<7} {via_of(graph, stream):<7} {gives} {arrow} {takes}{route}")
    return "\n".join(rows)


def as_mermaid(graph: Graph) -> str:
    """A flowchart for a page that renders Mermaid."""
    rows = ["flowchart LR"]
    homes = [node for node in graph.nodes if node.inside is None]
    for home in homes:
        inner = [node for node in graph.nodes if node is not home and owner(graph, node, 0)[0] == home.name]
        if not inner:
            rows.append(f"  {_id(home.name)}[{_label(home)}]")
            continue
        rows.append(f"  subgraph {_id(home.name)}_process[process of {home.name}]")
        rows += [f"    {_id(node.name)}[{_label(node)}]" for node in (home, *inner)]
        rows.append("  end")
    for stream in graph.streams:
        ends = list(members(graph, stream.name))
        arrow = "<-->" if stream.kind == "infer" else "-.->" if stream.kind == "param" else "-->"
        for giver in (node for node, _, side in ends if side in _GIVES):
            for taker in (node for node, _, side in ends if side not in _GIVES):
                rows.append(f"  {_id(giver.name)} {arrow}|{stream.name}| {_id(taker.name)}")
    return "\n".join(rows) + "\n"


def times(node: Node) -> str:
    """`actor x 2`"""
    return node.name if node.count == 1 else f"{node.name} x {node.count}"


def words(component: Component) -> str:
    """`ppo lr=0.001`"""
    return " ".join([component.use, settings(component.args)]).rstrip()


def _label(node: Node) -> str:
    return f'"{times(node)}"'


def _id(name: str) -> str:
    return "".join(char if char.isalnum() else "_" for char in name)
