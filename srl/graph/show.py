"""A graph for people: the start plan with its derived numbers, a text picture, and Mermaid."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from srl.core.load import load
from srl.core.registry import REGISTRIES
from srl.core.text import count
from srl.core.tree import leaves
from srl.graph.derive import Derived
from srl.graph.machine import Machine
from srl.graph.placement import members, owner, via_of
from srl.graph.spec import Component, Graph, Node

_GIVES = ("producer", "client", "publisher")


def plan_lines(
    graph: Graph, machine: Machine, why: Iterable[str] = (), derived: Derived | None = None, shared: int = 0
) -> list[tuple[str, str]]:
    """What is about to run, as (label, text)."""
    lines = [("experiment", f"{graph.name}: {_words(graph.env)}, seed {graph.seed}, mode {graph.mode}")]
    for name, entry in graph.policies.items():
        learner = f" by {_words(entry.algorithm)}" if entry.algorithm else ", not trained"
        size = ""
        if derived is not None and derived.policies[name].params != {}:
            size = f", {_numbers(derived.policies[name].params):,} numbers"
        lines.append((f"policy {name}" if len(graph.policies) > 1 else "policy", f"{_words(entry.policy)}{learner}{size}"))
    lines += [("why", reason) for reason in why]
    lines.append(("workers", "\n".join(_node_line(graph, node) for node in graph.nodes)))
    lines += [("batch", text) for text in _batches(graph, derived)]
    lines.append(("threads", _threads(graph, machine)))
    if derived is not None:
        lines.append(("memory", f"{_size(shared)} shared of {_size(machine.shared_free)} free"))
    lines.append(("stop", _stop(graph)))
    return lines


def as_text(graph: Graph) -> str:
    """Every stream with who is on it, by process."""
    rows = [f"{graph.name}: {_words(graph.env)}", "", "processes"]
    for home in graph.nodes:
        if home.inside is not None and graph.mode != "inline":
            continue
        inner = [node.name for node in graph.nodes if node is not home and owner(graph, node, 0)[0] == home.name]
        if graph.mode == "inline" and home is not graph.nodes[0]:
            continue
        if graph.mode == "inline":
            inner = [node.name for node in graph.nodes[1:]]
        rows.append(f"  {_times(home)}" + (f" with {', '.join(inner)} inside" if inner else ""))
    rows += ["", "streams"]
    for stream in graph.streams:
        ends = list(members(graph, stream.name))
        gives = ", ".join(_times(node) for node, _, side in ends if side in _GIVES) or "nobody"
        takes = ", ".join(_times(node) for node, _, side in ends if side not in _GIVES) or "nobody"
        arrow = "<->" if stream.kind == "infer" else "-->"
        route = "" if stream.route == "fair" else f"  route {'nobody' if stream.route == 'null' else stream.route}"
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


def _node_line(graph: Graph, node: Node) -> str:
    kind = REGISTRIES["worker"].resolve(node.worker)
    text = kind.about(load(kind.Args, node.args)) or node.worker
    text += f", on {node.device}" if node.worker == "trainer" else ""
    return f"{_times(node)}: {text}" + (f", inside {node.inside}" if node.inside and graph.mode != "inline" else "")


def _batches(graph: Graph, derived: Derived | None) -> Iterable[str]:
    """`1 batch = 48 envs x 64 steps x 4 agents = 12,288 agent steps = 6 minibatches x 4 epochs`"""
    actor = next((node for node in graph.nodes if node.worker == "actor"), None)
    if actor is None:
        return
    for node in graph.nodes:
        if node.worker != "trainer":
            continue
        policy = str(node.args.get("policy", "main"))
        envs = int(node.args.get("slabs", 1)) * int(actor.args.get("envs", 1))
        steps = int(actor.args.get("steps", 128))
        agents = derived.policies[policy].spec.agents if derived is not None else 1
        rows = envs * steps * agents
        text = f"{count(envs, 'env')} x {count(steps, 'step')}" + (f" x {agents} agents" if agents > 1 else "")
        text = f"1 batch = {text} = {count(rows, 'agent step' if agents > 1 else 'step')}"
        algorithm = graph.policies[policy].algorithm
        minibatch, epochs = (algorithm.args.get(key) if algorithm else None for key in ("minibatch", "epochs"))
        if isinstance(minibatch, int) and isinstance(epochs, int):
            text += f" = {_minibatches(rows, minibatch)} x {count(epochs, 'epoch')}"
        yield text if len(graph.policies) == 1 else f"{policy}: {text}"


def _minibatches(rows: int, most: int) -> str:
    """How many, and their size where it is not the one that was asked for: they are as even as can be."""
    number = -(-rows // most)
    text = count(number, "minibatch")
    if most > rows:
        return f"{text} (minibatch={most:,} is more than that)"
    return f"{text} of at most {-(-rows // number):,}" if rows % most else text


def _threads(graph: Graph, machine: Machine) -> str:
    if graph.mode == "inline":
        return f"1 process on {count(machine.cores, 'usable core')}"
    owners = {owner(graph, node, index) for node in graph.nodes for index in range(node.count)}
    threads = sum(graph.node(name).threads for name, _ in owners)
    return f"{count(len(owners), 'process')}, {count(threads, 'thread')} on {count(machine.cores, 'usable core')}"


def _stop(graph: Graph) -> str:
    stop = graph.stop
    parts = [count(stop.env_steps, "env step")] if stop.env_steps else []
    parts += [count(stop.updates, "update")] if stop.updates else []
    parts += [f"a mean return of {stop.episode_return:g}"] if stop.episode_return is not None else []
    parts += [f"{stop.seconds:g} s"] if stop.seconds else []
    return f"after {' or '.join(parts)}" if parts else "at Ctrl-C"


def _words(component: Component) -> str:
    return " ".join([component.use, *(f"{key}={_value(value)}" for key, value in component.args.items())])


def _value(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {_value(one)}" for key, one in value.items()) + "}"
    return "[" + ", ".join(map(_value, value)) + "]" if isinstance(value, list | tuple) else str(value)


def _times(node: Node) -> str:
    return node.name if node.count == 1 else f"{node.name} x {node.count}"


def _label(node: Node) -> str:
    return f'"{_times(node)}"'


def _id(name: str) -> str:
    return "".join(char if char.isalnum() else "_" for char in name)


def _numbers(spec: Any) -> int:
    return sum(leaf.nbytes // max(1, _itemsize(leaf.dtype)) for _, leaf in leaves(spec))


def _itemsize(dtype: str) -> int:
    import numpy as np

    return np.dtype(dtype).itemsize


def _size(number: float) -> str:
    for unit in ("B", "kB", "MB"):
        if number < 1000:
            return f"{number:.0f} {unit}" if unit == "B" or number >= 100 else f"{number:.1f} {unit}"
        number /= 1000
    return f"{number:.1f} GB"
