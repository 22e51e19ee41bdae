"""What is wrong with a graph, before anything starts: wiring, placement, sizes, resources."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from srl.core.errors import UserError
from srl.core.load import load, nearest
from srl.core.machine import Machine
from srl.core.registry import REGISTRIES
from srl.core.where import Provenance, dotted
from srl.graph.placement import members, owner, via_of
from srl.graph.spec import Graph, Node, Stream

_SIDES = {
    "sample": ("producer", "consumer"),
    "infer": ("client", "server"),
    "param": ("publisher", "subscriber"),
}
_OF_NODES = ("threads", "device")
"""What every node has, and a trainer takes from there."""


def check(graph: Graph, where: Provenance | None = None) -> None:
    """Everything that can be seen without building env or policy. `where` holds the places of a `graph:` by hand."""
    if not graph.nodes:
        place = where.at(("graph",)) if where is not None else None
        raise UserError(
            "the graph has no nodes: nothing would run",
            *([("from", str(place))] if place is not None else []),
            ("try", "`srl graph experiment=cartpole --yaml` prints nodes and streams to start from"),
            code="E10",
        )
    for node in graph.nodes:
        _node(graph, node, where)
    for node in graph.nodes:
        _placement(graph, node)
    for stream in graph.streams:
        _stream(graph, stream)
    fed = _fed(graph)
    for node in graph.nodes:
        if node.worker == "trainer":
            _reached(graph, node, fed)
            _trainer(graph, node)
        elif node.worker == "policy":
            _waits(node, where)


def check_resources(graph: Graph, machine: Machine, where: Provenance | None = None) -> None:
    """Devices and threads against those of this machine."""
    devices = ["cpu", *(f"cuda:{number}" for number in range(machine.gpus))]
    for node in graph.nodes:
        if node.threads > machine.cores:
            raise UserError(
                f"'{node.name}' wants {node.threads} threads, and this machine has {_cores(machine)} to use",
                *_from(where, node, "threads"),
                ("expected", f"at most {machine.cores} (affinity and cgroup quota counted)"),
                ("try", f"{_setting(node, 'threads', where)}={machine.cores}"),
                code="E08",
            )
        if node.device not in devices and not (node.device == "cuda" and machine.gpus):
            there = _gpus(machine) if node.device.startswith("cuda") else ", ".join(devices)
            raise UserError(
                f"'{node.name}' wants device {node.device}, and this machine has {there}",
                *_from(where, node, "device"),
                ("try", f"{_setting(node, 'device', where)}={devices[-1]}"),
                code="E08",
            )


def notes(graph: Graph, machine: Machine) -> list[str]:
    """What is allowed, but worth a word."""
    owners = {owner(graph, node, index) for node in graph.nodes for index in range(node.count)}
    threads = sum(graph.node(name).threads for name, _ in owners)
    found = []
    if graph.mode == "local" and threads > 4 * machine.cores:
        found.append(f"{threads} threads share {_cores(machine)}: fewer sampling.workers would waste less")
    for stream in graph.streams:
        if graph.mode == "inline" and stream.via not in ("auto", "inproc"):
            found.append(
                f"stream '{stream.name}': via: {stream.via} has no effect with mode=inline, where every stream is inproc"
            )
        if stream.compress is not None and (via := via_of(graph, stream)) in ("inproc", "shm"):
            found.append(f"stream '{stream.name}' goes by {via}: compress: {stream.compress} has no effect there, it is for zmq")
    if graph.stop == type(graph.stop)():
        found.append("no stop condition: it runs until Ctrl-C, and schedules stay at their start")
    elif not (graph.stop.env_steps or graph.stop.updates or graph.stop.seconds):
        found.append("stop.return has no progress: schedules stay at their start until there is another stop condition")
    return found


# nodes ----------------------------------------------------------------------------------------------------------------


def _node(graph: Graph, node: Node, where: Provenance | None) -> None:
    kind = REGISTRIES["worker"].resolve(node.worker)
    by_hand = _is_by_hand(node, where)
    if node.worker == "trainer" and (key := next((key for key in _OF_NODES if key in node.args), None)):
        raise UserError(
            f"the args of '{node.name}' have no setting '{key}': it is one of the node",
            *_from(where, node, "args", key),
            ("try", f"{dotted(('graph', 'nodes', node.name, key))}={node.args[key]}"),
            code="E02",
        )
    path: tuple[str | int, ...] = ("graph", "nodes", node.name, "args") if by_hand else (node.name,)
    args = load(kind.Args, node.args, where if by_hand else None, path=path)
    streams = {stream.name: stream for stream in graph.streams}
    for port, name in node.ports.items():
        base, _, policy = port.partition(":")
        if base not in kind.ports:
            raise _wrong(
                f"worker '{node.worker}' has no port '{base}'", node, port, where, *_near(base, list(kind.ports), "ports")
            )
        if policy and policy not in graph.policies:
            raise _wrong(
                f"port '{port}' of '{node.name}' names no policy",
                node,
                port,
                where,
                *_near(policy, list(graph.policies), "policies"),
            )
        if name not in streams:
            raise _wrong(
                f"port '{port}' of '{node.name}' is joined to '{name}', which is no stream", node, port, where,
                *_near(name, list(streams), "streams"),
            )  # fmt: skip
        if streams[name].kind != kind.ports[base].kind:
            wants, got = _a(kind.ports[base].kind), streams[name].kind
            raise _wrong(f"port '{port}' of '{node.name}' takes {wants} stream; '{name}' is of kind {got}", node, port, where)
    joined = {port.partition(":")[0] for port in node.ports}
    for base, port_kind in kind.ports.items():
        if base not in joined and not port_kind.optional:
            raise _wrong(
                f"port '{base}' of '{node.name}' is joined to no stream", node, None, where,
                ("expected", f"ports: {{{base}: a stream of kind {port_kind.kind}}}"),
                *_candidates(graph, port_kind.kind),
            )  # fmt: skip
    acts_for = getattr(args, "policy", None)
    if isinstance(acts_for, str) and acts_for not in graph.policies:
        raise _wrong(f"'{node.name}' is of policy '{acts_for}', which the file does not define", node, None, where,
                     *_near(acts_for, list(graph.policies), "policies"))  # fmt: skip


def _placement(graph: Graph, node: Node) -> None:
    if node.inside is None:
        return
    names = [one.name for one in graph.nodes]
    if node.inside not in names:
        raise UserError(
            f"'{node.name}' is placed inside '{node.inside}', which is no node", *_near(node.inside, names, "nodes"), code="E10"
        )
    owner(graph, node, 0)
    home = graph.node(node.inside)
    if home.count not in (1, node.count):
        raise UserError(
            f"{node.count} workers '{node.name}' cannot be placed inside {home.count} workers '{home.name}'",
            ("expected", f"count: {home.count}, one in each, or any number inside a single worker"),
            code="E04",
        )


# streams --------------------------------------------------------------------------------------------------------------


def _stream(graph: Graph, stream: Stream) -> None:
    if stream.policy not in graph.policies:
        raise UserError(
            f"stream '{stream.name}' is of policy '{stream.policy}', which the file does not define",
            *_near(stream.policy, list(graph.policies), "policies"),
            code="E10",
        )
    if stream.via != "auto":
        REGISTRIES["transport"].resolve(stream.via)
    if stream.kind != "sample" and stream.route != "fair":
        raise UserError(
            f"stream '{stream.name}' is of kind {stream.kind}, which has no route: {stream.route}",
            ("because", "only samples are shared out; a question finds its server, and weights go to all"),
            ("try", f"remove it, or streams: {{sample: {{route: {stream.route}}}}}"),
            code="E10",
        )
    ends = list(members(graph, stream.name))
    have = {side for _, _, side in ends}
    gives, takes = _SIDES[stream.kind]
    if not have:
        raise UserError(
            f"stream '{stream.name}' joins nobody", ("try", "remove it, or name it under the ports of a node"), code="E10"
        )
    for side in (gives, takes):
        if side not in have and not (side == "consumer" and stream.route == "drop"):
            others = ", ".join(f"'{port}' of '{node.name}'" for node, port, _ in ends)
            raise UserError(
                f"stream '{stream.name}' has no {side}",
                ("joined", others),
                ("try", f"join it to a port that is a {side} of {_a(stream.kind)} stream" + _ports_of(side)),
                code="E10",
            )
    publishers = [node for node, _, side in ends if side == "publisher"]
    if sum(node.count for node in publishers) > 1:
        raise UserError(
            f"stream '{stream.name}' has {sum(node.count for node in publishers)} publishers",
            ("joined", ", ".join(f"'{node.name}' x {node.count}" for node in publishers)),
            ("expected", "one trainer for each policy"),
            code="E10",
        )
    _own_process(graph, stream, ends)


def _own_process(graph: Graph, stream: Stream, ends: Sequence[tuple[Node, str, str]]) -> None:
    """Rules about who shares a process."""
    homes = {
        side: {owner(graph, node, index) for node, _, own in ends if own == side for index in range(node.count)}
        for side in {side for _, _, side in ends}
    }
    if stream.via == "inproc" and graph.mode != "inline" and len({frozenset(home) for home in homes.values()}) > 1:
        raise UserError(
            f"stream '{stream.name}' says via: inproc, but its ends live in different processes",
            ("processes", ", ".join(sorted(f"{name}/{index}" for home in homes.values() for name, index in home))),
            ("try", "via: auto, or place them together with `inside:`"),
            code="E10",
        )
    if stream.kind != "infer" or graph.mode == "inline":
        return
    trainers = {owner(graph, node, index) for node in graph.nodes if node.worker == "trainer" for index in range(node.count)}
    shared = homes["server"] & trainers
    if shared and homes["client"] - shared:
        name, index = next(iter(shared))
        client, number = next(iter(homes["client"] - shared))
        raise UserError(
            f"stream '{stream.name}' would be answered inside the process of {name}/{index}, between its updates",
            ("clients", f"{client}/{number} and others wait in processes of their own"),
            ("try", "a process of its own for the policy worker (no `inside:`), or inside: actor"),
            code="E10",
        )


def _fed(graph: Graph) -> set[str]:
    """The sample streams whose consumers can get anything: actors start, others pass on what they get."""
    fed: set[str] = set()
    while True:
        giving = {gives for node in graph.nodes if _can_give(node, fed) for gives in _joined(node, "producer")}
        grown = {name for name in giving if graph.stream(name).route != "drop"}
        if grown == fed:
            return fed
        fed = grown


def _can_give(node: Node, fed: set[str]) -> bool:
    needs = _joined(node, "consumer", needed=True)
    return not needs or bool(needs & fed)


def _joined(node: Node, side: str, *, needed: bool = False) -> set[str]:
    """The streams at ports of that side; `needed`: of those that the worker cannot do without."""
    known = REGISTRIES["worker"].resolve(node.worker).ports
    kinds = {port: known[port.partition(":")[0]] for port in node.ports}
    return {node.ports[port] for port, kind in kinds.items() if kind.side == side and not (needed and kind.optional)}


def _reached(graph: Graph, node: Node, fed: set[str]) -> None:
    samples = node.ports["samples"]
    if samples in fed:
        return
    dropping = ", ".join(f"'{stream.name}'" for stream in graph.streams if stream.route == "drop")
    raise UserError(
        f"nothing can reach '{node.name}' on '{samples}': it would wait for ever",
        *([("because", f"route: drop discards everything that reaches {dropping}")] if dropping else []),
        ("try", f"route: fair, or a graph without '{node.name}'" if dropping else "a worker that makes samples: actor"),
        code="E10",
    )


# sizes ----------------------------------------------------------------------------------------------------------------


def _trainer(graph: Graph, node: Node) -> None:
    args = load(REGISTRIES["worker"].resolve(node.worker).Args, node.args)
    if args.publish_every > args.staleness + 1:
        raise UserError(
            f"'trainer.publish_every' must be at most staleness.max + 1 = {args.staleness + 1}, found {args.publish_every}",
            ("because", "a credit waits for a version that would never be published"),
            ("try", f"trainer.publish_every={args.staleness + 1} or staleness.max={args.publish_every - 1}"),
            code="E03",
        )
    feeding = [one for one, _, side in members(graph, node.ports["samples"]) if side == "producer" and one.worker == "actor"]
    groups = sum(one.count * int(one.args.get("groups", 1)) for one in feeding)
    if args.staleness == 0 and groups and args.slabs % groups:
        below, above = args.slabs // groups * groups, -(-args.slabs // groups) * groups
        near = " or ".join(f"slabs: {size}" for size in (below, above) if size)
        raise UserError(
            f"a batch of {args.slabs} slabs is not a multiple of the {groups} groups that feed '{node.name}'",
            ("because", "staleness.max is 0: the groups left over would wait with rows of an older version"),
            ("try", f"{near}, or staleness.max=1"),
            code="E04",
        )


def _waits(node: Node, where: Provenance | None) -> None:
    args = load(REGISTRIES["worker"].resolve(node.worker).Args, node.args)
    if args.min_batch > 1 and not args.max_wait:
        most, least = (_setting(node, key, where, "args") for key in ("max_wait", "min_batch"))
        raise UserError(
            f"'{node.name}' is to wait for {args.min_batch} envs, and for 0 s: it never waits",
            *_from(where, node, "args", "min_batch"),
            ("because", "min_batch has no effect without max_wait"),
            ("try", f"{most}=0.001, or {least}=1"),
            code="E03",
        )


# words ----------------------------------------------------------------------------------------------------------------


def _wrong(headline: str, node: Node, port: str | None, where: Provenance | None, *lines: tuple[str, str]) -> UserError:
    return UserError(headline, *_from(where, node, *(("ports", port) if port is not None else ())), *lines, code="E10")


def _from(where: Provenance | None, node: Node, *path: str) -> list[tuple[str, str]]:
    place = where.at(("graph", "nodes", node.name, *path)) if where is not None and _is_by_hand(node, where) else None
    return [("from", str(place))] if place is not None else []


def _is_by_hand(node: Node, where: Provenance | None) -> bool:
    return where is not None and where.exact(("graph", "nodes", node.name)) is not None


def _near(name: str, known: Sequence[str], what: str) -> list[tuple[str, str]]:
    near = nearest(name, known)
    return [*([("did you mean", f"{near}?")] if near else []), (what, ", ".join(known) or "none")]


def _candidates(graph: Graph, kind: str) -> list[tuple[str, str]]:
    names = [stream.name for stream in graph.streams if stream.kind == kind]
    return [("streams", ", ".join(names))] if names else []


def _ports_of(side: str) -> str:
    names = []
    for name, worker in sorted(REGISTRIES["worker"]._targets.items()):
        kind: Any = REGISTRIES["worker"].resolve(worker)
        names += [f"{port} of {name}" for port, one in kind.ports.items() if one.side == side]
    return f" ({', '.join(names)})" if names else ""


def _a(kind: str) -> str:
    return f"{'an' if kind[0] in 'aeiou' else 'a'} {kind}"


def _setting(node: Node, key: str, where: Provenance | None, *inside: str) -> str:
    """Where a file says it: the graph by hand, or the section that the layout reads."""
    if _is_by_hand(node, where):
        return dotted(("graph", "nodes", node.name, *inside, key))
    section = {"actor": "actors", "policy": "inference"}.get(node.worker, node.worker)
    return key if (section, key) == ("trainer", "device") else f"{section}.{key}"


def _cores(machine: Machine) -> str:
    return f"{machine.cores} core{'' if machine.cores == 1 else 's'}"


def _gpus(machine: Machine) -> str:
    return f"{machine.gpus} GPU{'' if machine.gpus == 1 else 's'}" if machine.gpus else "no GPU"
