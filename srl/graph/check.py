"""Checks of a graph before anything starts: wiring, placement, resources."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from srl.core.errors import Fact, UserError
from srl.core.learner import split_config
from srl.core.load import load, meant
from srl.core.machine import Machine
from srl.core.option import written
from srl.core.registry import REGISTRIES
from srl.core.text import article, count
from srl.core.types import HOME, LOCAL, SIDES
from srl.core.where import dotted
from srl.graph.connections import check_connections
from srl.graph.hosts import check_hosts, crowded, home_of, processes_by_host
from srl.graph.placement import members, owner, processes, processes_by_side, via_of
from srl.graph.spec import Graph, Node, Stream


def check(graph: Graph) -> None:
    """All checks that need neither env nor policy. The paths of errors are those of a handwritten `graph:`."""
    if not graph.nodes:
        raise UserError(
            "the graph has no nodes",
            ("try", "`srl graph experiment=cartpole --yaml` prints nodes and streams to start from"),
            code="E10",
            path=("graph",),
        )
    for node in graph.nodes:
        check_node(node, graph.streams)
        _policies(graph, node)
    for node in graph.nodes:
        _placement(graph, node)
    for stream in graph.streams:
        _stream(graph, stream)
    check_hosts(graph)
    check_connections(graph)
    for node in graph.nodes:
        node.kind.check(node.loaded, node, graph)


def check_node(node: Node, streams: Iterable[Stream]) -> None:
    """The args of a node are those of its worker class, and its ports are joined to streams of their kind."""
    kind, own = node.kind, node_path(node, "args")
    if key := next(
        (key for key in ("threads", "device") if key in node.args and key not in kind.Args.__dataclass_fields__), None
    ):
        raise UserError(
            f"'{key}' is a setting of the node, not of its args",
            ("try", f"{dotted(node_path(node, key))}={written(node.args[key])}"),
            code="E02",
            path=(*own, key),
        )
    load(kind.Args, node.args, path=own)
    check_ports(kind, node, streams)


def check_ports(kind: Any, node: Node, streams: Iterable[Stream]) -> None:
    """Every port of the node exists and has a stream of its kind; none is missing."""
    known = {stream.name: stream for stream in streams}
    for port, name in node.ports.items():
        base = port.partition(":")[0]
        path = node_path(node, "ports", port)
        _require(base, kind.ports, "ports", f"worker '{node.worker}' has no port '{base}'", path)
        headline = f"port '{port}' of '{node.name}' is connected to '{name}', but there is no such stream"
        _require(name, known, "streams", headline, path)
        if known[name].kind != kind.ports[base].kind:
            wants = article(f"{kind.ports[base].kind} stream")
            raise _wrong(f"port '{port}' of '{node.name}' must be connected to {wants}, not {known[name].kind}", path)
    joined = {port.partition(":")[0] for port in node.ports}
    for base, port_kind in kind.ports.items():
        if base not in joined and not port_kind.optional:
            candidates = [name for name, stream in known.items() if stream.kind == port_kind.kind]
            raise _wrong(
                f"port '{base}' of '{node.name}' is not connected to a stream",
                node_path(node),
                ("expected", f"ports: {{{base}: {article(f'{port_kind.kind} stream')}}}"),
                *([("streams", ", ".join(candidates))] if candidates else []),
            )


def check_resources(graph: Graph, machine: Machine) -> None:
    """Check that this machine has the devices and threads of every node."""
    devices = ["cpu", *(f"cuda:{number}" for number in range(machine.gpus))]
    for node in graph.nodes:
        if node.hosts != HOME:
            continue
        if node.threads > machine.cores:
            raise UserError(
                f"'{node.name}' needs {node.threads} threads, but this machine has {count(machine.cores, 'usable core')}",
                ("try", f"{dotted(('workers', node.name, 'threads'))}={machine.cores}"),
                code="E08",
                path=node_path(node, "threads"),
            )
        if (split := split_config(getattr(node.loaded, "learner", None))) is not None:
            split.check(machine, ("workers", node.name, "learner"))
        if node.device not in devices and not (node.device == "cuda" and machine.gpus):
            there = (count(machine.gpus, "GPU") if machine.gpus else "no GPU") if node.device.startswith("cuda") else None
            raise UserError(
                f"'{node.name}' needs device {node.device}, but this machine has {there or ', '.join(devices)}",
                ("try", f"{dotted(('workers', node.name, 'device'))}={devices[-1]}"),
                code="E08",
                path=node_path(node, "device"),
            )
        if node.device == "cuda" and node.kind.gang and node.count > machine.gpus:
            raise UserError(
                f"{node.count} workers '{node.name}' on cuda need a GPU each, but this machine has {count(machine.gpus, 'GPU')}",
                ("try", f"workers.{node.name}.count={machine.gpus}, or workers.{node.name}.device=cpu"),
                code="E08",
                path=node_path(node, "count"),
            )


def notes(graph: Graph, machine: Machine) -> list[str]:
    """Notes about settings that are allowed but probably unintended."""
    threads = sum(graph.node(name.rpartition("/")[0]).threads for name in processes_by_host(graph)[HOME])
    found = list(crowded(graph))
    for node in graph.nodes:
        if (split := split_config(getattr(node.loaded, "learner", None))) is None:
            continue
        if split.mode != "asynchronous" and "max_lag" in node.loaded.learner.args:
            found.append(f"learner.max_lag has no effect with mode: {split.mode}, where both sides have the same version")
        if graph.mode == "local" and split.devices[0] == "cpu" and machine.cores < 2:
            found.append("learner split: actor and critics share 1 usable core: learner=single is faster")
    if graph.mode == "local" and threads > 4 * machine.cores:
        found.append(f"{threads} threads share {count(machine.cores, 'core')}: fewer sampling.workers would waste less")
    for stream in graph.streams:
        if graph.mode == "inline" and stream.via not in ("auto", "inproc"):
            found.append(
                f"stream '{stream.name}': via: {stream.via} has no effect with mode=inline, where every stream is inproc"
            )
        if stream.compress is not None and (via := via_of(graph, stream)) in ("inproc", "shm"):
            found.append(f"stream '{stream.name}': compress={stream.compress} has no effect over {via}, only over zmq")
    if graph.launcher.use != LOCAL and all(node.hosts == HOME for node in graph.nodes) and home_of(graph.launcher) is None:
        found.append(
            f"launcher {graph.launcher.use} has nothing to start: place workers on hosts, as with workers.actor.hosts=NAME"
        )
    if graph.stop == type(graph.stop)():
        found.append("no stop condition: the run ends at Ctrl-C, and schedules stay at their start")
    elif not (graph.stop.env_steps or graph.stop.updates or graph.stop.seconds):
        found.append("stop.return has no progress: schedules stay at their start until there is another stop condition")
    return found


def node_path(node: Node, *keys: str) -> tuple[str, ...]:
    """The path of a setting of this node in a handwritten graph."""
    return ("graph", "nodes", node.name, *keys)


def near(name: str, known: Sequence[str], what: str) -> list[Fact]:
    """Facts for an unknown name: the most similar one, and all known ones."""
    return [*meant(name, known), (what, ", ".join(known) or "none")]


# nodes and streams ----------------------------------------------------------------------------------------------------


def _policies(graph: Graph, node: Node) -> None:
    """The policies that a node names are defined."""
    for port in node.ports:
        if policy := port.partition(":")[2].partition("/")[0]:
            _require_policy(graph, policy, f"port '{port}' of '{node.name}'", node_path(node, "ports", port))
    if isinstance(acts_for := node.args.get("policy"), str):
        _require_policy(graph, acts_for, f"'{node.name}'", node_path(node, "args", "policy"))


def _placement(graph: Graph, node: Node) -> None:
    needed = [port for port, one in node.kind.ports.items() if one.side != "subscriber"]
    if node.on_failure == "leave" and needed:
        raise _wrong(
            f"'{node.name}' cannot be left when it fails: others wait for it",
            node_path(node, "on_failure"),
            ("because", f"it has the port {needed[0]}, and only subscribers of parameters can be missed"),
            ("try", "on_failure: restart"),
        )
    if node.inside is None:
        return
    headline = f"'{node.name}' is placed inside '{node.inside}', but there is no such node"
    _require(node.inside, [one.name for one in graph.nodes], "nodes", headline, node_path(node, "inside"))
    owner(graph, node, 0)
    home = graph.node(node.inside)
    if home.count not in (1, node.count):
        raise UserError(
            f"{node.count} workers '{node.name}' cannot be placed inside {home.count} workers '{home.name}'",
            ("expected", f"count: {home.count}, one in each, or any number inside a single worker"),
            code="E04",
            path=node_path(node, "count"),
        )


def _stream(graph: Graph, stream: Stream) -> None:
    path = ("graph", "streams", stream.name)
    _require_policy(graph, stream.policy, f"stream '{stream.name}'", (*path, "policy"))
    if stream.via != "auto":
        REGISTRIES["transport"].resolve(stream.via)
    if stream.kind == "sum" and graph.mode != "inline" and (via := via_of(graph, stream)) not in ("zmq", "ipc"):
        raise _wrong(
            f"stream '{stream.name}' cannot use {via}: only zmq and ipc carry sums", (*path, "via"), ("try", "via: auto")
        )
    if stream.kind != "sample" and stream.route != "fair":
        raise _wrong(
            f"stream '{stream.name}': only sample streams have a route",
            (*path, "route"),
            ("try", f"remove it, or streams: {{sample: {{route: {stream.route}}}}}"),
        )
    ends = list(members(graph, stream.name))
    if not ends:
        raise _wrong(f"stream '{stream.name}' is not connected to any port", path, ("try", "remove it, or name it under `ports`"))
    have = {side for _, _, side in ends}
    for side in SIDES[stream.kind]:
        if side not in have and not (side == "consumer" and stream.route == "drop"):
            raise _wrong(
                f"stream '{stream.name}' has no {side}",
                path,
                ("connected", ", ".join(f"'{port}' of '{node.name}'" for node, port, _ in ends)),
                ("try", f"connect it to a port that is a {side}{_ports_of(side)}"),
            )
    kinds = [(node, node.port(port)) for node, port, _ in ends]
    waiting = [node.name for node, kind in kinds if kind.side == "consumer" and not kind.optional]
    if stream.route == "drop" and waiting:
        raise _wrong(
            f"'{waiting[0]}' would wait forever: stream '{stream.name}' drops everything (route: drop)",
            path,
            ("try", "route: fair"),
        )
    publishers = [node for node, kind in kinds if kind.side == "publisher" and not kind.relays]
    number = sum(1 if kind.first else node.count for node, kind in kinds if kind.side == "publisher" and not kind.relays)
    if number > 1:
        raise _wrong(
            f"stream '{stream.name}' has {number} publishers",
            path,
            ("connected", ", ".join(f"'{node.name}' x {node.count}" for node in publishers)),
            ("expected", "one trainer for each policy"),
        )
    _own_process(graph, stream)


def _own_process(graph: Graph, stream: Stream) -> None:
    """Check which ends must share a process, and which must not."""
    homes = processes_by_side(graph, stream.name)
    if stream.via == "inproc" and graph.mode != "inline" and len({frozenset(home) for home in homes.values()}) > 1:
        raise _wrong(
            f"stream '{stream.name}' cannot use inproc: its ends live in different processes",
            ("graph", "streams", stream.name, "via"),
            ("processes", ", ".join(sorted(f"{name}/{index}" for home in homes.values() for name, index in home))),
            ("try", "via: auto, or place them together with `inside:`"),
        )
    if stream.kind != "infer" or graph.mode == "inline":
        return
    slow = [node for node in graph.nodes if node.kind.slow]
    shared = homes["server"] & set().union(*(processes(graph, node) for node in slow))
    if shared and homes["client"] - shared:
        name, index = next(iter(shared))
        client, number = next(iter(homes["client"] - shared))
        raise _wrong(
            f"stream '{stream.name}' would be answered inside the process of {name}/{index}, between its updates",
            ("graph", "streams", stream.name),
            ("clients", f"{client}/{number} and others wait in processes of their own"),
            ("try", "a process of its own for the policy worker (no `inside:`), or inside: actor"),
        )


def _require(name: str, known: Iterable[str], what: str, headline: str, path: tuple[str, ...]) -> None:
    """The name is one of those that are known."""
    names = list(known)
    if name not in names:
        raise _wrong(headline, path, *near(name, names, what))


def _require_policy(graph: Graph, name: str, subject: str, path: tuple[str, ...]) -> None:
    _require(name, graph.policies, "policies", f"{subject} refers to policy '{name}', which is not defined", path)


def _wrong(headline: str, path: tuple[str, ...], *facts: Fact) -> UserError:
    return UserError(headline, *facts, code="E10", path=path)


def _ports_of(side: str) -> str:
    workers = REGISTRIES["worker"]
    ports = [(name, port, one) for name in workers.names() for port, one in workers.resolve(name).ports.items()]
    names = [f"{port} of {name}" for name, port, one in ports if one.side == side]
    return f" ({', '.join(names)})" if names else ""
