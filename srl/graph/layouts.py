"""Layouts: how the workers of an experiment are wired and placed. To add one, write a function and a line in LAYOUTS."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from srl.config.experiment import Experiment, Part, StreamSettings, Workers, settled
from srl.core.errors import NotImportable, UserError
from srl.core.load import dump, nearest
from srl.core.machine import Machine
from srl.core.text import count
from srl.core.where import Provenance
from srl.graph.by_hand import by_hand
from srl.graph.opponents import with_opponents
from srl.graph.placement import inside
from srl.graph.spec import Graph, Node, Stream


@dataclass(frozen=True, kw_only=True, slots=True)
class Sizes:
    """The numbers that a layout works with, every `auto` decided."""

    envs: int
    steps: int
    workers: int
    groups: int
    staleness: int
    device: str
    entries: tuple[str, ...]
    """All policies."""
    learning: tuple[str, ...]
    """Those that are trained."""

    @property
    def per_group(self) -> int:
        """Envs of one group."""
        return self.envs // (self.workers * self.groups)

    @property
    def slabs(self) -> int:
        """Slabs of one batch: every group gives one."""
        return self.workers * self.groups


@dataclass(frozen=True, kw_only=True, slots=True)
class Layout:
    """One way to wire: its nodes, and what `auto` means in it."""

    nodes: Callable[[Experiment, Sizes], list[Node]]
    about: str
    remote: bool = False
    """Inference by other processes than the actors': two groups hide its latency."""
    together: bool = False
    """Everything in one process: synchronous, one actor."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """An experiment with every `auto` decided, its graph, and why."""

    experiment: Experiment
    graph: Graph
    why: tuple[str, ...] = ()


def plan(
    experiment: Experiment,
    *,
    machine: Machine | None = None,
    where: Provenance | None = None,
) -> Plan:
    """Decide what is left open and wire it."""
    machine = machine or Machine.here()
    if experiment.graph is not None:
        stated, joined = by_hand(experiment, where)
        whole = _graph(experiment, stated, apply_stream_settings(experiment.streams, joined))
        return Plan(experiment=experiment, graph=whole, why=("the graph is stated by hand",))
    name, why = choose(experiment, machine)
    layout = find_layout(name)
    sizes = _sizes(experiment, layout, machine, where)
    if name == "inline" and sizes.workers > 1:
        why = f"{why}; {sizes.workers} actors share its one process"
    done = settled(
        experiment,
        layout=name,
        workers=sizes.workers,
        groups=sizes.groups,
        staleness=sizes.staleness,
        device=sizes.device,
        eval_envs=_evaluation_envs(experiment),
    )
    nodes = layout.nodes(done, sizes)
    graph = _graph(done, nodes, _streams(done, sizes))
    if done.opponents is not None:
        graph = with_opponents(graph, done, sizes, home=graph.node(nodes[0].inside) if nodes[0].inside else None)
    return Plan(experiment=done, graph=graph, why=(why,) if why else ())


def find_layout(name: str) -> Layout:
    """The layout of that name."""
    if name in LAYOUTS:
        return LAYOUTS[name]
    error = NotImportable(f"no layout is called '{name}'")
    if near := nearest(name, ["auto", *LAYOUTS]):
        error.add("did you mean", f"{near}?")
    raise error.add("known", ", ".join(["auto", *LAYOUTS])).add("try", "`graph:` in the file, to wire it by hand")


def choose(experiment: Experiment, machine: Machine) -> tuple[str, str]:
    """The layout that `auto` means here, and why, in words."""
    if experiment.layout != "auto":
        return experiment.layout, ""
    if experiment.mode == "inline":
        return "inline", "layout inline: mode=inline puts everything in one process"
    if machine.cores == 1 and machine.gpus == 0:
        return "inline", "layout inline: one usable core, so processes would only take turns"
    cores = count(machine.cores, "usable core")
    if machine.gpus == 0 or experiment.device == "cpu":
        return "impala", f"layout impala: {cores} and no GPU, so actors act by themselves"
    return "impala", f"layout impala: {cores}, the GPU is for the trainer (layout=seed lets it answer the actors too)"


# what `auto` means ----------------------------------------------------------------------------------------------------


def _sizes(experiment: Experiment, layout: Layout, machine: Machine, where: Provenance | None) -> Sizes:
    sampling = experiment.sampling
    groups = sampling.groups if sampling.groups != "auto" else 2 if layout.remote and sampling.envs % 2 == 0 else 1
    if sampling.workers != "auto":
        workers = sampling.workers
    else:
        wish = 1 if layout.together else max(1, machine.cores - (1 if layout.remote and machine.cores > 2 else 0))
        workers = next((n for n in range(wish, 0, -1) if sampling.envs % (n * groups) == 0), 1)
    _divides(sampling.envs, workers, groups, where)
    staleness = experiment.staleness.max
    asked = experiment.trainer.device if experiment.trainer.device != "auto" else experiment.device
    return Sizes(
        envs=sampling.envs,
        steps=sampling.steps,
        workers=workers,
        groups=groups,
        staleness=staleness if staleness != "auto" else 0 if layout.together or experiment.mode == "inline" else 1,
        device=asked if asked != "auto" else "cuda" if machine.gpus else "cpu",
        entries=tuple(experiment.entries()),
        learning=experiment.learning,
    )


def _divides(envs: int, workers: int, groups: int, where: Provenance | None) -> None:
    """E04, with the two nearest sizes that go."""
    parts = workers * groups
    if envs % parts == 0:
        return
    below, above = envs // parts * parts, -(-envs // parts) * parts
    near = " or ".join(f"sampling.envs={size}" for size in (below, above) if size)
    place = where.at(("sampling", "envs")) if where is not None else None
    raise UserError(
        f"{envs} envs cannot be shared evenly by {count(workers, 'actor')} with {count(groups, 'group')} each",
        *([("from", str(place))] if place is not None else []),
        ("expected", f"sampling.envs as a multiple of {parts} (workers x groups)"),
        ("try", near),
        code="E04",
    )


def _evaluation_envs(experiment: Experiment) -> int | None:
    evaluation = experiment.evaluation
    if evaluation is None:
        return None
    return evaluation.envs if evaluation.envs != "auto" else min(evaluation.episodes, 8)


# the layouts ----------------------------------------------------------------------------------------------------------


def _inline(experiment: Experiment, sizes: Sizes) -> list[Node]:
    """All of it in the process of the first trainer."""
    trainers = _trainers(experiment, sizes)
    inner = [_actors(experiment, sizes), *_policies(experiment, sizes, count=1), *trainers[1:], *_evaluator(experiment, sizes)]
    placed = [inside(node, trainers[0]) for node in inner]
    return [*placed[: 1 + len(sizes.entries)], trainers[0], *placed[1 + len(sizes.entries) :]]


def _impala(experiment: Experiment, sizes: Sizes) -> list[Node]:
    """A policy worker inside each actor; trainers run on their own."""
    actors = _actors(experiment, sizes)
    return [
        actors,
        *(inside(node, actors, threads=actors.threads) for node in _policies(experiment, sizes, count=sizes.workers)),
        *_trainers(experiment, sizes),
        *_evaluator(experiment, sizes),
    ]


def _seed(experiment: Experiment, sizes: Sizes) -> list[Node]:
    """One policy worker for all actors, beside the trainer and on its device."""
    device = sizes.device if experiment.inference.device == "auto" else experiment.inference.device
    return _separate(experiment, sizes, count=1, device=device)


def _decoupled(experiment: Experiment, sizes: Sizes) -> list[Node]:
    """Policy workers of their own, as many as wanted."""
    wanted = experiment.inference.count
    device = "cpu" if experiment.inference.device == "auto" else experiment.inference.device
    return _separate(experiment, sizes, count=max(1, sizes.workers // 2) if wanted == "auto" else wanted, device=device)


def _separate(experiment: Experiment, sizes: Sizes, *, count: int, device: str) -> list[Node]:
    return [
        _actors(experiment, sizes),
        *(replace(node, device=device) for node in _policies(experiment, sizes, count=count)),
        *_trainers(experiment, sizes),
        *_evaluator(experiment, sizes),
    ]


LAYOUTS: dict[str, Layout] = {
    "inline": Layout(nodes=_inline, about="one process, one after the other: synchronous, deterministic", together=True),
    "impala": Layout(nodes=_impala, about="the policy acts inside each actor; the trainer runs beside them"),
    "seed": Layout(nodes=_seed, about="one policy worker answers all actors, on the trainer's device", remote=True),
    "decoupled": Layout(nodes=_decoupled, about="policy workers in processes of their own answer the actors", remote=True),
}


# nodes and streams ----------------------------------------------------------------------------------------------------


def _actors(experiment: Experiment, sizes: Sizes) -> Node:
    ports = {f"infer:{name}": f"ask.{name}" for name in sizes.entries}
    ports |= {f"samples:{name}": f"samples.{name}" for name in sizes.learning}
    return Node(
        name="actor",
        worker="actor",
        count=sizes.workers,
        args={"groups": sizes.groups, "envs": sizes.per_group, "steps": sizes.steps},
        ports=ports,
        **_placement(experiment.actors),
    )


def _policies(experiment: Experiment, sizes: Sizes, *, count: int) -> list[Node]:
    wanted = experiment.inference
    together = count == sizes.workers and sizes.groups == 1
    all_units = sizes.per_group * sizes.groups if together else sizes.envs
    args: dict[str, Any] = {"max_batch": wanted.max_batch if wanted.max_batch != "auto" else all_units}
    if wanted.min_batch != 1:
        args["min_batch"] = wanted.min_batch
    if wanted.max_wait:
        args["max_wait"] = wanted.max_wait
    nodes = []
    for name in sizes.entries:
        ports = {"asks": f"ask.{name}"}
        if name in sizes.learning:
            ports["params"] = f"params.{name}"
        node_name = _node_name("policy", name, sizes.entries)
        node = Node(name=node_name, worker="policy", count=count, args={"policy": name, **args}, ports=ports)
        nodes.append(replace(node, **_placement(wanted)))
    return nodes


def _trainers(experiment: Experiment, sizes: Sizes) -> list[Node]:
    wanted = experiment.trainer
    return [
        Node(
            name=_node_name("trainer", name, sizes.learning),
            worker="trainer",
            args={
                "policy": name,
                "slabs": sizes.slabs,
                "staleness": sizes.staleness,
                "publish_every": wanted.publish_every,
                "keep_every": wanted.keep_every,
                **({"learner": dump(wanted.learner.component())} if wanted.learner != Part("single") else {}),
            },
            ports={"samples": f"samples.{name}", "params": f"params.{name}"},
            device=sizes.device,
            **_placement(wanted),
        )
        for name in sizes.learning
    ]


def _evaluator(experiment: Experiment, sizes: Sizes) -> list[Node]:
    evaluation = experiment.evaluation
    if evaluation is None:
        return []
    return [
        Node(
            name="evaluator",
            worker="evaluator",
            args={
                "envs": evaluation.envs,
                "episodes": evaluation.episodes,
                "every": evaluation.every,
                "greedy": evaluation.greedy,
                "sampled": evaluation.sampled,
                "cross_play": evaluation.cross_play,
                "film_every": evaluation.film_every,
            },
            ports={f"params:{name}": f"params.{name}" for name in sizes.learning},
            **_placement(experiment.evaluator),
        )
    ]


def _placement(workers: Workers) -> dict[str, Any]:
    return {"threads": workers.threads, "on_failure": workers.on_failure, "restarts": workers.restarts}


def _node_name(kind: str, policy: str, policies: tuple[str, ...]) -> str:
    return kind if len(policies) == 1 else f"{kind}.{policy}"


def _streams(experiment: Experiment, sizes: Sizes) -> list[Stream]:
    streams = [Stream(name=f"ask.{name}", kind="infer", policy=name) for name in sizes.entries]
    for name in sizes.learning:
        streams.append(Stream(name=f"samples.{name}", kind="sample", policy=name))
        streams.append(Stream(name=f"params.{name}", kind="param", policy=name))
    return apply_stream_settings(experiment.streams, streams)


def apply_stream_settings(wanted: Mapping[str, StreamSettings], streams: Sequence[Stream]) -> list[Stream]:
    """What the file says of a stream by its name, else of all of its kind, else of all."""
    known = {"all", "sample", "infer", "param", *(stream.name for stream in streams)}
    for name in wanted:
        if name not in known:
            error = NotImportable(f"no stream is called '{name}'")
            if near := nearest(name, sorted(known)):
                error.add("did you mean", f"{near}?")
            raise error.add("known", ", ".join(sorted(known)))
    done = []
    for stream in streams:
        settings = wanted.get(stream.name) or wanted.get(stream.kind) or wanted.get("all")
        changes = {key: value for key, value in asdict(settings).items() if value is not None} if settings else {}
        done.append(replace(stream, **changes))
    return done


# graphs ---------------------------------------------------------------------------------------------------------------


def _graph(experiment: Experiment, nodes: Sequence[Node], streams: Sequence[Stream]) -> Graph:
    return Graph(
        env=experiment.env.component(),
        policies=experiment.entries(),
        agents=dict(experiment.agents),
        nodes=tuple(nodes),
        streams=tuple(streams),
        mode=experiment.mode,
        seed=experiment.seed,
        stop=experiment.stop,
        checkpoint=experiment.checkpoint,
        plugins=experiment.plugins,
        sinks=experiment.sinks,
        name=experiment.name,
        expect=dict(experiment.expect),
    )
