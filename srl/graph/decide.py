"""From an experiment to its graph: every `auto` is decided, a layout makes nodes and streams, settings of both are applied."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace

from srl.config.experiment import Experiment, Staleness, StreamSettings
from srl.core.errors import NotImportable, UserError
from srl.core.machine import Machine
from srl.core.registry import REGISTRIES
from srl.core.text import count
from srl.core.types import HOME, LOCAL, Component
from srl.core.where import Provenance
from srl.graph import replays
from srl.graph.builder import GraphBuilder
from srl.graph.by_hand import by_hand
from srl.graph.check import near
from srl.graph.hosts import known_hosts
from srl.graph.layouts import APART, REMOTE, TOGETHER, Sizes
from srl.graph.learners import choose_learner
from srl.graph.opponents import add_opponents
from srl.graph.ranks import check_together, most_ranks, ranks_of, with_sums
from srl.graph.recorders import with_recorders
from srl.graph.relays import with_relays
from srl.graph.spec import Graph, Node, Stream
from srl.graph.workers import with_workers

_VIEWED, _VIEWED_INLINE = 0.25, 0.015
"""Part of one core for the viewer: in a process of its own, which uses idle cores only, and in the trainer's."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Decided:
    """An experiment with every `auto` decided, its graph, and why."""

    experiment: Experiment
    graph: Graph
    why: tuple[str, ...] = ()


def decide(
    experiment: Experiment,
    *,
    machine: Machine | None = None,
    where: Provenance | None = None,
    replayed: Collection[str] | None = None,
) -> Decided:
    """Decide what is left open and wire it. `where`: the places of the settings; `replayed`: the policies that train from a
    replay, as far as they are known: otherwise by the names of their algorithms."""
    try:
        if experiment.graph is not None:
            graph = _graph(experiment, *by_hand(experiment, where))
            return Decided(experiment=experiment, graph=graph, why=("the graph is written by hand",))
        experiment = replays.with_replay(experiment, replayed)
        return _lay_out(experiment, _of_trainers(experiment, machine or Machine.here()), replays.replayed(experiment, replayed))
    except UserError as error:
        raise error.at(where) from None


def choose(experiment: Experiment, machine: Machine) -> tuple[str, str]:
    """The layout for `auto`, and the reason in words."""
    if experiment.layout != "auto":
        return experiment.layout, ""
    off = experiment.replay is not None
    if experiment.mode == "inline":
        return "inline", "layout inline: mode=inline puts everything in one process"
    if machine.cores == 1 and machine.gpus == 0 and not _away(experiment):
        return "inline", "layout inline: one usable core, so processes would only take turns"
    cores = count(machine.cores, "usable core")
    if off:
        return "offpolicy", f"layout offpolicy: {cores}, the policy runs inside each actor and the replay inside the trainer"
    if machine.gpus == 0 or experiment.device == "cpu":
        return "impala", f"layout impala: {cores} and no GPU, so the policy runs inside each actor"
    return "impala", f"layout impala: {cores}, the GPU is for the trainer (layout=seed uses it for inference too)"


def _lay_out(experiment: Experiment, machine: Machine, replayed: tuple[str, ...]) -> Decided:
    name, why = choose(experiment, machine)
    if name not in REGISTRIES["layout"] and ":" not in name:
        known = ["auto", *REGISTRIES["layout"].names()]
        raise NotImportable(f"no layout is called '{name}'", *near(name, known, "known"), path=("layout",)).add(
            "try", "path/to/file.py:function, or `graph:` in the file"
        )
    layout = REGISTRIES["layout"].resolve(name)
    together = layout in TOGETHER
    check_together(experiment, name, together=together)
    envs, steps = replays.sampled(experiment, together=together)
    experiment = replace(experiment, sampling=replace(experiment.sampling, envs=envs, steps=steps))
    sizes = _sizes(experiment, machine, remote=layout in REMOTE, together=together, apart=layout in APART)
    sizes = replace(sizes, replayed=replayed)
    if name == "inline" and sizes.workers > most_ranks(experiment):
        why = f"{why}; {sizes.workers} actors share its one process"
    evaluation = experiment.evaluation
    if evaluation is not None and evaluation.envs == "auto":
        evaluation = replace(evaluation, envs=min(evaluation.episodes, 8))
    viewer = experiment.viewer
    if viewer is not None and viewer.share == "auto":
        viewer = replace(viewer, share=_VIEWED_INLINE if layout in TOGETHER or experiment.mode == "inline" else _VIEWED)
    sampling = replace(experiment.sampling, workers=sizes.workers, groups=sizes.groups)
    done = replace(
        experiment,
        layout=name,
        sampling=sampling,
        replay=replays.decided(experiment, sampling, together=together or experiment.mode == "inline"),
        staleness=Staleness(max=sizes.staleness),
        device=sizes.device,
        learner=_learner(experiment, sizes),
        evaluation=evaluation,
        viewer=viewer,
    )
    built = layout(done, sizes)
    if not isinstance(built, GraphBuilder):
        raise UserError(f"layout '{name}' must return a GraphBuilder, not {type(built).__name__}", code="E10", path=("layout",))
    if done.opponents is not None:
        add_opponents(built, done, sizes)
    reasons = [why, *(_named(name, chosen.why, sizes) for name, chosen in sizes.learners.items() if chosen.why)]
    graph = _graph(done, built.nodes, built.streams)
    unused = set(done.workers) - {name for node in graph.nodes for name in (node.name, node.worker)}
    reasons += [f"workers.{kind} has no effect: {_absent(done)[kind]} is null" for kind in sorted(unused)]
    return Decided(experiment=done, graph=graph, why=tuple(filter(None, reasons)))


def _absent(experiment: Experiment) -> dict[str, str]:
    """Kinds of workers that the experiment does without, and the section that is null."""
    sections = {"evaluator": "evaluation", "viewer": "viewer", "league": "opponents"}
    return {kind: section for kind, section in sections.items() if getattr(experiment, section) is None}


def _named(policy: str, why: str, sizes: Sizes) -> str:
    return why if len(sizes.learning) == 1 else f"{policy}: {why}"


def _learner(experiment: Experiment, sizes: Sizes) -> Component:
    """What `learner:` has become, if it is the same for all policies."""
    found = [chosen.learner for chosen in sizes.learners.values()]
    return found[0] if found and found.count(found[0]) == len(found) else experiment.learner


def _sizes(experiment: Experiment, machine: Machine, *, remote: bool, together: bool, apart: bool) -> Sizes:
    """What `auto` means. `remote`: other processes infer. `together`: all is in one process. `apart`: nobody waits."""
    sampling = experiment.sampling
    envs = int(sampling.envs)
    groups = sampling.groups if sampling.groups != "auto" else 2 if remote and envs % 2 == 0 else 1
    if sampling.workers != "auto":
        workers = sampling.workers
    else:
        cores = _sampling_cores(experiment, machine)
        wish = 1 if together else max(1, cores - (1 if remote and cores > 2 else 0))
        wish = max(wish, experiment.replay.shards if experiment.replay else 1)
        ranks = most_ranks(experiment)  # each of several trainers of a policy has actors of its own
        wish = -(-wish // ranks) * ranks
        workers = next((n for n in range(wish, 0, -ranks) if envs % (n * groups) == 0), ranks)
    if envs % (parts := workers * groups):
        below, above = envs // parts * parts, -(-envs // parts) * parts
        raise UserError(
            f"sampling.envs={envs} is not divisible by {count(workers, 'actor')} x {count(groups, 'group')} = {parts}",
            ("try", " or ".join(f"sampling.envs={size}" for size in (below, above) if size)),
            code="E04",
            path=("sampling", "envs"),
        )
    staleness = experiment.staleness.max
    ranks_by_policy = {name: ranks_of(experiment, name) for name in experiment.learning}
    device = experiment.device if experiment.device != "auto" else "cuda" if machine.gpus else "cpu"
    learners = {name: choose_learner(experiment, machine, name, device=device, apart=apart) for name in experiment.learning}
    return Sizes(
        envs=envs,
        steps=int(sampling.steps),
        workers=workers,
        groups=groups,
        staleness=staleness if staleness != "auto" else 0 if together or experiment.mode == "inline" else 1,
        device=device,
        entries=tuple(experiment.entries()),
        learning=experiment.learning,
        learners=learners,
        ranks=ranks_by_policy,
    )


def _with_settings(streams: Sequence[Stream], wanted: Mapping[str, StreamSettings]) -> tuple[Stream, ...]:
    """Apply the settings of each stream: by its name, else by its kind, else those of `all`."""
    known = {"all", "sample", "infer", "param", *(stream.name for stream in streams)}
    for name in wanted:
        if name not in known:
            raise NotImportable(f"no stream is called '{name}'", *near(name, sorted(known), "known"), path=("streams", name))
    done = []
    for stream in streams:
        settings = wanted.get(stream.name) or wanted.get(stream.kind) or wanted.get("all")
        changes = {key: value for key, value in asdict(settings).items() if value is not None} if settings else {}
        done.append(replace(stream, **changes))
    return tuple(done)


def _graph(experiment: Experiment, nodes: Sequence[Node], streams: Sequence[Stream]) -> Graph:
    """The graph, with the settings of `workers:` and `streams:` applied."""
    nodes, streams = with_workers(nodes, streams, experiment.workers, _absent(experiment))
    nodes, streams = with_recorders(nodes, streams, experiment.record)
    checkpoint = experiment.checkpoint
    drawn = {node.args.get("slabs") == 0 for node in nodes if node.worker == "trainer"}
    if len(drawn) == 1:  # else each trainer has an interval of its own
        checkpoint = replace(checkpoint, every=checkpoint.interval(from_replay=drawn.pop()))
    known_hosts(nodes, experiment.hosts, experiment.launcher)
    if not (away := _away(experiment)):
        nodes = [replace(node, hosts=HOME) for node in nodes]
    streams = _with_settings(streams, experiment.streams)
    if away:
        nodes, streams = with_relays(nodes, streams, dict(experiment.hosts), experiment.relays)
    graph = Graph(
        env=experiment.env,
        policies=experiment.entries(),
        agents=dict(experiment.agents),
        nodes=tuple(nodes),
        streams=tuple(streams),
        mode=experiment.mode,
        seed=experiment.seed,
        stop=experiment.stop,
        checkpoint=checkpoint,
        plugins=experiment.plugins,
        sinks=experiment.sinks,
        name=experiment.name,
        expect=dict(experiment.expect),
        hosts=dict(experiment.hosts) if away else {},
        launcher=experiment.launcher if away else Component(LOCAL),
        insecure=experiment.insecure and away,
    )
    return with_sums(graph)


def _away(experiment: Experiment) -> bool:
    """Whether workers may run on other hosts: else the file's placement has no effect, so that it runs on a desktop too."""
    return experiment.launcher.use != LOCAL and experiment.mode != "inline"


def _of_trainers(experiment: Experiment, machine: Machine) -> Machine:
    """This machine, but with the GPUs of the hosts that trainers are placed on."""
    group = experiment.hosts.get(str(experiment.workers.get("trainer", {}).get("hosts", HOME)))
    return replace(machine, gpus=group.gpus) if group is not None and _away(experiment) else machine


def _sampling_cores(experiment: Experiment, machine: Machine) -> int:
    """Cores that actors have: those of their hosts, if they are placed on some that say how many they have."""
    settings = experiment.workers.get("actor", {})
    group = experiment.hosts.get(str(settings.get("hosts", HOME)))
    if group is None or not _away(experiment):
        return machine.cores
    return group.size * (group.cores or 1)
