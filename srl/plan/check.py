"""Checks of a run once its specs are known: windows, shared memory, and settings that are probably unintended."""

from __future__ import annotations

from srl.core.errors import SettingError, UserError
from srl.core.machine import Machine
from srl.core.spec import total_bytes
from srl.core.types import HOME
from srl.graph.check import node_path
from srl.graph.hosts import processes_by_host, stream_hosts
from srl.graph.placement import members
from srl.graph.spec import Graph, Stream
from srl.plan.specs import Derived


def check_replays(graph: Graph, derived: Derived) -> None:
    """UserError if an algorithm with a replay is trained on slabs, or one without on batches of a replay."""
    for node in graph.nodes:
        name = node.args.get("policy", "main")
        entry = graph.policies.get(name)
        if node.worker != "trainer" or entry is None or entry.algorithm is None:
            continue
        needs, has = derived.policies[name].replay is not None, node.args.get("slabs", 1) == 0
        if needs == has:
            continue
        known = "trains from a replay" if needs else "is on-policy"
        found = "slabs of actors" if needs else "batches of a replay"
        raise UserError(
            f"algorithm {entry.algorithm.use} {known}, and trainer '{node.name}' gets {found}",
            ("try", "layout=offpolicy, or a replay node in the graph (docs/extending.md)" if needs else "~replay"),
            code="E10",
            path=node_path(node) if needs else ("replay",),
        )


def check_windows(graph: Graph, derived: Derived) -> None:
    """UserError if the window of an algorithm cannot be cut out of the slabs that it gets."""
    for name, info in derived.policies.items():
        if info.replay is not None:
            continue  # a replay cuts windows from the rows of many slabs
        section = "algorithm" if list(graph.policies) == ["main"] else f"policies.{name}.algorithm"
        for steps in sorted(_slab_lengths(graph, name)):
            window = info.window.within(steps if info.memory != {} else 1)
            length = window.length or 1
            if window.fits(steps):
                continue
            if steps % length:
                divisor = max(rows for rows in range(1, min(steps, length) + 1) if steps % rows == 0)
                must, code = f"divide the {steps} rows of a slab, found {length}", "E04"
                instead = f"{section}.window={divisor}, or sampling.steps={-(-steps // length) * length}"
            else:
                must, code = f"fit into the {steps} rows of a slab, found {window.rows} rows", "E03"
                instead = f"sampling.steps={-(-window.rows // length) * length}, or a smaller {section}.window.burn_in"
            path = (*section.split("."), "window")
            raise UserError(f"'{section}.window' must {must}", ("try", instead), code=code, path=path)


def check_memory(graph: Graph, derived: Derived, machine: Machine) -> int:
    """Bytes of shared memory that the run takes; E08 if the machine has less."""
    wanted = {one.name: _shared_bytes(graph, one, derived) for one in graph.streams if HOME in stream_hosts(graph, one.name)}
    total = sum(wanted.values())
    if total > machine.shared_free:
        most = max(wanted, key=lambda name: wanted[name])
        raise UserError(
            f"the streams take {total / 1e9:.1f} GB of shared memory, and {machine.shared_free / 1e9:.1f} GB are free",
            ("most of it", f"stream '{most}', {wanted[most] / 1e9:.1f} GB"),
            ("try", "fewer sampling.envs, fewer sampling.steps, or a smaller staleness.max"),
            code="E08",
        )
    for host, group in ((name, graph.hosts[name.partition("/")[0]]) for name in processes_by_host(graph) if name != HOME):
        there = sum(_shared_bytes(graph, one, derived) for one in graph.streams if stream_hosts(graph, one.name) == {host})
        if group.memory is not None and there > group.memory * 1e9:
            raise UserError(
                f"the streams within host {host} take {there / 1e9:.1f} GB of memory, and it has {group.memory:g} GB",
                ("try", "fewer sampling.envs, fewer sampling.steps, or more hosts"),
                code="E08",
            )
    _check_replay_memory(graph, derived, machine.shared_free - total)
    return total


def warnings(graph: Graph, derived: Derived) -> list[str]:
    """Settings that work but are probably unintended."""
    return [
        f"policy '{name}' acts untrained, at its random weights: it has no algorithm, and loads nothing"
        f" (give it {'' if list(graph.policies) == ['main'] else f'policies.{name}.'}load=RUN, or an algorithm)"
        for name, entry in graph.policies.items()
        if entry.algorithm is None and entry.load is None and derived.policies[name].params != {}
    ]


def _check_replay_memory(graph: Graph, derived: Derived, free: int) -> None:
    """What workers keep to themselves fits into what streams leave."""
    for node in graph.nodes:
        try:
            own = node.kind.memory(node.loaded, node, graph, derived)
        except SettingError as error:
            path = ("replay", *(error.path or ()))
            raise UserError(f"'{'.'.join(map(str, path))}' {error.must}", *error.facts, code="E03", path=path) from None
        if own <= free:
            free -= own
            continue
        size = node.loaded.size
        raise UserError(
            f"'{node.name}' takes {own / 1e9:.1f} GB of memory, and {free / 1e9:.1f} GB are free",
            ("found", f"size: {size:,} rows of {own / size:,.0f} bytes"),
            ("try", f"replay.size={_round(0.8 * free * size / own)}"),
            code="E08",
            path=("replay", "size"),
        )


def _round(number: float) -> int:
    """Down to two digits."""
    unit = 10 ** max(0, len(str(int(number))) - 2)
    return int(number // unit * unit)


def _slab_lengths(graph: Graph, policy: str) -> set[int]:
    """Rows of the slabs that the trainer of a policy gets."""
    names = [stream.name for stream in graph.streams if stream.kind == "sample" and stream.policy == policy]
    producers = [node for name in names for node, _, side in members(graph, name) if side == "producer"]
    return {node.loaded.steps for node in producers if isinstance(getattr(node.loaded, "steps", None), int)}


def _shared_bytes(graph: Graph, stream: Stream, derived: Derived) -> int:
    """Bytes of the segments of a stream, as far as sizes are known before the start."""
    spec = derived.streams[stream.name]
    if spec.via != "shm":
        return 0
    total = 0
    for node, port, side in members(graph, stream.name):
        sizes = node.kind.sizes(node.loaded, port, graph)
        if side == "producer":
            total += node.count * int(sizes.get("slots", 2)) * total_bytes(spec.record)
        elif side == "client":
            rows = int(sizes.get("groups", 1)) * int(sizes.get("units", 1))
            total += node.count * rows * (total_bytes(spec.record) + total_bytes(spec.answer))
        elif side == "publisher":
            total += 3 * total_bytes(spec.record)
    return total
