"""Which host each process of a graph runs on, and checks of what its hosts have."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from srl.core.errors import UserError
from srl.core.load import load, meant
from srl.core.registry import REGISTRIES
from srl.core.text import count
from srl.core.types import HOME, LOCAL, SIDES, Component, HostGroup
from srl.graph.placement import host_of, last_device, members, owner, processes_by_side, via_of, workers_by_process
from srl.graph.spec import Graph, Node, Stream

_LISTED = 8
"""Hosts of a group that the plan lists one by one."""


@dataclass(frozen=True, slots=True)
class Host:
    """One host that takes part in a run, besides the one that it is started on."""

    group: str
    index: int
    """Its number in the group."""
    address: str
    """As it is in the file; empty if the launcher finds hosts by itself."""

    @property
    def name(self) -> str:
        """`cpu/0`"""
        return f"{self.group}/{self.index}"

    @property
    def words(self) -> str:
        """`cpu/0 (10.0.0.1)`"""
        return f"{self.name} ({self.address})" if self.address else self.name


def hosts_of(graph: Graph) -> tuple[Host, ...]:
    """All hosts of the groups that nodes are placed on."""
    used = {node.hosts for node in graph.nodes if node.inside is None}
    return tuple(
        Host(name, index, group.addresses[index] if group.addresses else "")
        for name, group in graph.hosts.items()
        if name in used
        for index in range(group.size)
    )


def processes_by_host(graph: Graph) -> dict[str, list[str]]:
    """`home` and the name of each host -> its processes."""
    found: dict[str, list[str]] = {HOME: [], **{host.name: [] for host in hosts_of(graph)}}
    for process in workers_by_process(graph):
        name, _, index = process.rpartition("/")
        found[host_of(graph, name, int(index))].append(process)
    return found


def home_of(launcher: Component) -> Any:
    """The setting `home` of a launcher that starts the machine of the trainers too; None if that is this machine."""
    return getattr(_settings(launcher), "home", None)


def _settings(launcher: Component) -> Any:
    """The settings of the launcher, loaded; None for `local`, or without a launcher of this name."""
    registry = REGISTRIES["launcher"]
    if launcher.use == LOCAL or not (":" in launcher.use or launcher.use in registry.names()):
        return None
    return load(registry.resolve(launcher.use).Args, launcher.args, path=("launcher",))


def known_hosts(nodes: Sequence[Node], groups: Mapping[str, HostGroup], launcher: Component) -> None:
    """UserError if a node is placed on a group that is not in the file, or nothing is called like the launcher."""
    if HOME in groups:
        raise UserError(
            f"'hosts.{HOME}' is not a valid name of a group: it is the machine that the run is started on",
            ("try", "another name"),
            code="E03",
            path=("hosts", HOME),
        )
    for node in nodes:
        if node.hosts != HOME and node.hosts not in groups and node.inside is None:
            raise UserError(
                f"'{node.name}' is placed on hosts '{node.hosts}', but there is no such group",
                *meant(node.hosts, list(groups)),
                ("groups", ", ".join(groups) or "none"),
                ("try", f"hosts.{node.hosts}.addresses=[name-of-a-host]"),
                code="E10",
                path=("graph", "nodes", node.name, "hosts"),
            )
    if launcher.use != LOCAL and ":" not in launcher.use and launcher.use not in (names := REGISTRIES["launcher"].names()):
        raise UserError(
            f"no launcher is called '{launcher.use}'",
            *meant(launcher.use, [LOCAL, *names]),
            ("known", ", ".join([LOCAL, *names])),
            code="E07",
            path=("launcher",),
        )


def check_hosts(graph: Graph) -> None:
    """What is placed on a group fits its hosts, and can do its work there."""
    for node in graph.nodes:
        if node.inside is not None or node.hosts == HOME or graph.mode == "inline":
            continue
        group, path = graph.hosts[node.hosts], ("graph", "nodes", node.name)
        inner = [one for one in graph.nodes if one is node or one.inside == node.name]
        sides = {
            one.port(port).side for one in inner for port, stream in one.ports.items() if not _stays_inside(graph, node, stream)
        }
        if group.elastic and sides & {"consumer", "publisher"}:
            raise UserError(
                f"'{node.name}' cannot run on hosts '{node.hosts}': they are elastic, and others cannot continue without it",
                ("try", f"workers.{node.name}.hosts={HOME}, or hosts.{node.hosts}.elastic=false"),
                code="E10",
                path=(*path, "hosts"),
            )
        if group.cores is not None and node.threads > group.cores:
            raise UserError(
                f"'{node.name}' needs {node.threads} threads, but hosts '{node.hosts}' have {count(group.cores, 'core')}",
                ("try", f"workers.{node.name}.threads={group.cores}"),
                code="E08",
                path=(*path, "threads"),
            )
        for one in inner:
            device, number = last_device(graph, one)
            if device.startswith("cuda") and number >= group.gpus:
                raise UserError(
                    f"'{one.name}' needs device {device}, but hosts '{node.hosts}' have"
                    f" {count(group.gpus, 'GPU') if group.gpus else 'no GPU'}",
                    ("try", f"workers.{one.name}.device=cpu, or hosts.{node.hosts}.gpus={number + 1} if they have"),
                    code="E08",
                    path=("graph", "nodes", one.name, "device"),
                )
    for stream in graph.streams:
        if stream.via in ("shm", "ipc") and len(stream_hosts(graph, stream.name)) > 1:
            raise UserError(
                f"stream '{stream.name}' cannot use {stream.via}: its ends are on different hosts",
                ("hosts", ", ".join(sorted(stream_hosts(graph, stream.name)))),
                ("try", "via: auto, or via: zmq"),
                code="E10",
                path=("graph", "streams", stream.name, "via"),
            )


def _stays_inside(graph: Graph, node: Node, stream: str) -> bool:
    """Whether all ends of the stream are in processes of this node."""
    return all(owner(graph, one, 0)[0] == node.name for one, _, _ in members(graph, stream))


def is_elastic(graph: Graph, process: str) -> bool:
    """Whether the host of this process may come and go."""
    hosts = graph.node(process.rpartition("/")[0]).hosts
    return graph.mode != "inline" and hosts != HOME and graph.hosts[hosts].elastic


def stream_hosts(graph: Graph, stream: str) -> set[str]:
    """The hosts that the ends of this stream are on."""
    return {host_of(graph, *one) for side in processes_by_side(graph, stream).values() for one in side}


def crowded(graph: Graph) -> Iterator[str]:
    """Notes about hosts with more threads than cores, and hosts without work."""
    placed = processes_by_host(graph)
    for name, group in graph.hosts.items():
        own = {host: names for host, names in placed.items() if host.startswith(f"{name}/")}
        if not own:
            yield f"no worker is placed on hosts '{name}'"
            continue
        if idle := [host for host, names in own.items() if not names]:
            yield f"{count(len(idle), 'host')} of '{name}' without a worker: more sampling.workers would use them"
        most = max(sum(graph.node(one.rpartition("/")[0]).threads for one in names) for names in own.values())
        if group.cores is not None and most > group.cores:
            yield f"{most} threads share the {count(group.cores, 'core')} of a host of '{name}': fewer workers would waste less"


def hosts_lines(graph: Graph) -> str:
    """Which process is where, a line for each host; of a large group the first and the last ones."""
    placed = processes_by_host(graph)
    home = home_of(graph.launcher)
    there = "this machine" if home is None else f"started too, {count(home.cores, 'core')}, {count(home.gpus, 'GPU')}"
    rows = [f"{HOME} ({there}): {_short(placed[HOME])}"]
    for group, hosts in groupby(hosts_of(graph), lambda host: host.group):
        lines = [f"{host.words}: {_short(placed[host.name])}" for host in hosts]
        rows += lines if len(lines) <= _LISTED else [*lines[:2], f"... {len(lines) - 3} more of {group}", lines[-1]]
    return "\n".join(rows)


def dials(graph: Graph) -> dict[str, set[str]]:
    """Host -> the other hosts that its workers connect to."""
    found: dict[str, set[str]] = {}
    for stream in graph.streams:
        if via_of(graph, stream) != "zmq":
            continue
        far, there = ({host_of(graph, *one) for one in side} for side in _sides(graph, stream))
        for here in far:
            if others := there - {here}:
                found.setdefault(here, set()).update(others)
    return found


def _sides(graph: Graph, stream: Stream) -> tuple[list[tuple[str, int]], list[tuple[str, int]]]:
    """The processes that connect to others, and those that they connect to: consumers, servers, publishers, and ranks with a
    smaller index."""
    sides = processes_by_side(graph, stream.name)
    there = sorted(sides.pop(SIDES[stream.kind][stream.kind != "param"]))
    if stream.kind == "sum":
        return there[1:], there[:-1]
    return sorted({one for others in sides.values() for one in others}), there


def sockets_lines(graph: Graph) -> str:
    """Who connects to whom over the network."""
    port = getattr(_settings(graph.launcher), "port", 0)
    where = f"port {port}" if port else "any free port"
    rows = [f"supervisors of {count(len(hosts_of(graph)), 'host')} connect to {HOME}, {where}, by TLS"]
    how = "unencrypted" if graph.insecure else "encrypted"
    for stream in graph.streams:
        if via_of(graph, stream) in ("inproc", "shm") or len(stream_hosts(graph, stream.name)) < 2:
            continue
        far, there = _sides(graph, stream)
        at = ", ".join(dict.fromkeys(host_of(graph, *one) for one in there))
        apart = [one for one in far if one not in there or stream.kind == "sum"]
        ends = (_short([f"{name}/{index}" for name, index in side]) for side in (apart, there))
        ports = "any free ports" if len(there) > 1 else "any free port"
        rows.append(f"{stream.name}: {' connect to '.join(ends)} at {at}, {ports}, {how}")
    return "\n".join(rows)


def _short(processes: list[str]) -> str:
    """`actor/0-15, trainer/0`"""
    numbers: dict[str, list[int]] = {}
    for process in processes:
        name, _, index = process.rpartition("/")
        numbers.setdefault(name, []).append(int(index))
    if not numbers:
        return "nothing"
    return ", ".join(f"{name}/{own[0]}" + (f"-{own[-1]}" if len(own) > 1 else "") for name, own in numbers.items())
