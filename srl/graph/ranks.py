"""Several trainers of one policy: how many there are of each, and how its batches are divided among them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from srl.config.experiment import Experiment
from srl.core.errors import UserError
from srl.core.text import count
from srl.graph.placement import feeds, node_hosts, processes
from srl.graph.spec import Graph, Node, Stream


def ranks_of(experiment: Experiment, policy: str) -> int:
    """Trainers of this policy, as `workers:` says."""
    found = 1
    for name, settings in experiment.workers.items():
        if name in ("trainer", f"trainer.{policy}"):
            number = settings.get("count", found)
            found = number if isinstance(number, int) and not isinstance(number, bool) else found
    return max(1, found)


def most_ranks(experiment: Experiment) -> int:
    """Trainers of the policy that has most of them: each needs an actor."""
    return max((ranks_of(experiment, name) for name in experiment.learning), default=1)


def with_sums(graph: Graph) -> Graph:
    """The graph with a stream between the trainers of each policy that are on several hosts."""
    names = [node.name for node in graph.nodes]
    if not graph.hosts or any(node.inside not in (None, *names) for node in graph.nodes):
        return graph  # an unknown name is found by `check`
    for node in graph.nodes:
        if "sums" not in node.kind.ports or "sums" in node.ports or len(node_hosts(graph, node)) == 1:
            continue
        policy = str(node.args.get("policy", "main"))
        stream = Stream(name=f"sums.{policy}", kind="sum", policy=policy)
        joined = replace(node, ports={**node.ports, "sums": stream.name})
        nodes = tuple(joined if one is node else one for one in graph.nodes)
        graph = replace(graph, nodes=nodes, streams=(*graph.streams, stream))
    return graph


def check_together(experiment: Experiment, layout: str, *, together: bool) -> None:
    """UserError where several trainers of a policy would share a process with each other, or with those of another policy."""
    ranks = most_ranks(experiment)
    if ranks == 1:
        return
    if experiment.mode == "inline" or (together and len(experiment.learning) > 1):
        what = "mode=inline" if experiment.mode == "inline" else f"layout {layout} with {len(experiment.learning)} policies"
        raise UserError(
            f"{ranks} trainers of one policy need a process each, and {what} has one process",
            ("try", "mode=local layout=auto, or workers.trainer.count=1: one trainer learns the same from the whole batch"),
            code="E10",
            path=("workers", "trainer", "count"),
        )
    if together and experiment.sampling.workers not in ("auto", ranks):
        raise UserError(
            f"layout {layout} has one actor for each of {ranks} trainers, not {experiment.sampling.workers} actors",
            ("try", f"sampling.workers={ranks}"),
            code="E04",
            path=("sampling", "workers"),
        )


def share(experiment: Experiment, policy: str, batch: int) -> int:
    """Rows of a batch of a replay that each trainer has."""
    ranks = ranks_of(experiment, policy)
    if batch % ranks:
        raise UserError(
            f"replay.batch={batch} is not divisible by {count(ranks, 'trainer')}",
            ("because", "each trainer of a policy has an equal part of every batch"),
            ("try", _sizes("replay.batch", batch, ranks)),
            code="E04",
            path=("replay", "batch"),
        )
    return batch // ranks


def check_ranks(node: Node, graph: Graph, knows_ranks: bool) -> None:
    """UserError unless the trainers of this node can train together: processes, rows and devices."""
    path = ("graph", "nodes", node.name)
    args, number = node.loaded, node.count
    if graph.mode == "inline":
        raise UserError(
            f"{number} trainers of one policy need a process each, and mode=inline has one process",
            ("try", f"workers.{node.name}.count=1: one trainer learns the same from the whole batch"),
            code="E10",
            path=(*path, "count"),
        )
    if not knows_ranks:
        raise UserError(
            f"{number} trainers '{node.name}' cannot train together with learner {args.learner.use}",
            ("try", f"workers.{node.name}.learner=single, or count=1"),
            code="E10",
            path=(*path, "count"),
        )
    if len(processes(graph, node)) < number:
        raise UserError(
            f"{number} trainers '{node.name}' of one policy need a process each, and '{node.inside}' has one for all of them",
            ("try", f"workers.{node.name}.inside=null"),
            code="E10",
            path=(*path, "inside"),
        )
    _check_feeds(node, graph, path)
    if args.slabs % number:
        raise UserError(
            f"a batch of {args.slabs} slabs is not divisible by {number} trainers",
            ("try", _sizes("slabs", args.slabs, number)),
            code="E04",
            path=(*path, "args", "slabs"),
        )


def _check_feeds(node: Node, graph: Graph, path: tuple[str, ...]) -> None:
    """Every trainer gets as many slabs as any other, from producers of its own."""
    fed = feeds(graph, node.ports["samples"])
    sources = {one: fed.get((node.name, one), []) for one in range(node.count)}
    groups = {name: getattr(graph.node(name).loaded, "groups", 1) for names in sources.values() for name, _ in names}
    rounds = [sum(groups[name] for name, _ in names) for names in sources.values()]
    own = node.loaded.slabs // node.count
    equal = min(rounds) == max(rounds) > 0 and len({len(one) for one in sources.values()}) == 1
    shared = len({name for names in sources.values() for name in names}) < sum(map(len, sources.values()))
    if equal and not shared and (not own or node.loaded.staleness or own % rounds[0] == 0):
        return
    producers = sorted({name for names in sources.values() for name, _ in names})
    total = sum(graph.node(name).count for name in producers)
    replayed = not node.loaded.slabs
    setting = f"workers.{producers[0]}.count" if replayed or len(producers) > 1 else "sampling.workers"
    raise UserError(
        f"{count(total, 'worker')} {' and '.join(repr(name) for name in producers)} cannot feed {node.count} trainers equally",
        ("because", "each trainer of a policy has rows of its own, the same number as every other trainer"),
        ("try", f"{setting}={-(-total // node.count) * node.count}"),
        code="E04",
        path=(*path, "count"),
    )


def _sizes(setting: str, size: int, parts: int) -> str:
    """The nearest sizes that are divisible."""
    sizes: Sequence[int] = [size // parts * parts, -(-size // parts) * parts]
    return " or ".join(f"{setting}={one}" for one in sizes if one)
