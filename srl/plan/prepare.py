"""From words on a command line, or a Python call, to a graph that is checked and ready to run."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from srl.config.compose import Composed, compose
from srl.config.experiment import Experiment, read_experiment, write_experiment
from srl.config.portable import absolute, by_name
from srl.config.render import render
from srl.config.yaml import dump
from srl.core.component import resolved
from srl.core.errors import UserError
from srl.core.machine import Machine
from srl.core.option import written
from srl.core.registry import REGISTRIES, dotted_path, load_plugins
from srl.core.types import LOCAL
from srl.core.where import DEFAULT, RESUME, Provenance, Where, dotted
from srl.graph.check import check, check_resources, notes
from srl.graph.decide import Decided, decide
from srl.graph.hosts import home_of
from srl.graph.spec import Graph
from srl.plan.check import check_memory, check_replays, check_windows, warnings
from srl.plan.child import derived_specs, held_here
from srl.plan.derive import with_streams
from srl.plan.lines import plan_lines
from srl.plan.specs import Derived
from srl.store.weights import check_fresh, check_weights, exact_run

_AUTO = {
    ("layout",), ("sampling", "workers"), ("sampling", "groups"), ("sampling", "envs"), ("sampling", "steps"),
    ("staleness", "max"), ("device",), ("evaluation", "envs"), ("replay", "warmup"), ("replay", "ahead"), ("checkpoint", "every"),
    ("learner",),
}  # fmt: skip


@dataclass(frozen=True, kw_only=True, slots=True)
class Prepared:
    """An experiment that can start."""

    composed: Composed
    wanted: Experiment
    """As it was written, with every `auto`."""
    experiment: Experiment
    graph: Graph
    machine: Machine
    why: tuple[str, ...] = ()
    changes: tuple[str, ...] = ()
    """When resuming: the settings that differ from those of the run."""
    derived: Derived | None = None
    shared: int = 0

    def config_text(self, *, provenance: bool = False) -> str:
        """The resolved configuration: running it repeats the run."""
        data, places = self._placed()
        return render(data, places) if provenance else dump(data)

    def text_for(self, launcher: Mapping[str, Any]) -> str:
        """The configuration as it was written, for a machine where another launcher starts it."""
        return dump({**write_experiment(self.wanted), "launcher": dict(launcher)})

    def flat(self, before: Mapping[str, str]) -> dict[str, tuple[Any, str]]:
        """Each setting by its dotted name: its value and where it came from. `before`: origins known of a resumed run."""
        data, places = self._placed()
        found = {}
        for path, value in _leaves(data):
            name, where = dotted(path), str(places.exact(path) or DEFAULT)
            found[name] = (value, before.get(name, where) if where.startswith(RESUME.source) else where)
        return found

    def _placed(self) -> tuple[dict[str, Any], Provenance]:
        """The resolved configuration, and where each value came from."""
        data, places = write_experiment(self.experiment), Provenance(dict(self.composed.provenance))
        _mark_decided(self.composed.data, data, places)
        return data, places

    def inspected(self, *, resumed: bool = False) -> Prepared:
        """This experiment with all specs, for which env and policies are built once."""
        try:
            done = self.fitted(derived_specs(self.graph))
            assert done.derived is not None
            check_replays(done.graph, done.derived)
            check_windows(done.graph, done.derived)
            shared = check_memory(done.graph, done.derived, done.machine)
        except UserError as error:
            raise error.at(self.composed.provenance) from None
        check_weights(done.graph.policies, {name: info.params for name, info in done.derived.policies.items()}, resumed=resumed)
        return replace(done, shared=shared)

    def fitted(self, derived: Derived) -> Prepared:
        """The same with these specs. What algorithms of one's own train from is known only now: laid out again if need be."""
        replayed = {name for name, info in derived.policies.items() if info.replay is not None}
        laid_out = {node.args.get("policy", "main") for node in self.graph.nodes if node.worker == "replay"}
        if self.experiment.graph is not None or replayed == laid_out:
            return replace(self, derived=derived)
        done = _decided(self.wanted, self.machine, self.composed, replayed)
        return replace(
            self, experiment=done.experiment, graph=done.graph, why=done.why, derived=with_streams(done.graph, derived)
        )

    def lines(self) -> list[tuple[str, str]]:
        """The start plan."""
        lines = plan_lines(self.graph, self.machine, self.why, self.derived, self.shared)
        if self.derived is not None:
            lines += [("warning", text) for text in warnings(self.graph, self.derived)]
        lines += [("note", text) for text in (*self.composed.notes, *notes(self.graph, self.machine))]
        return lines + [("changed", text) for text in self.changes]


def prepare(
    experiment: str | Path | None = None,
    overrides: Sequence[str] = (),
    *,
    settings: Mapping[str, Any] | None = None,
    resume: Path | None = None,
    machine: Machine | None = None,
    inspect: bool = True,
) -> Prepared:
    """Compose, decide, wire and check. `inspect`: also build env and policies once, in a process of their own."""
    composed, changes = _compose(experiment, overrides, by_name(settings or {}), resume)
    wanted = read_experiment(composed.data, composed.provenance)
    if "name" not in composed.data:
        wanted = replace(wanted, name=composed.name.rpartition(":" if ":" in composed.name else "/")[2])
    try:
        if _needs_plugins(wanted):
            load_plugins(wanted.plugins)
    except UserError as error:
        raise error.at(composed.provenance) from None
    machine = machine or _home(wanted)
    done = _decided(wanted, machine, composed)
    prepared = Prepared(
        composed=composed,
        wanted=wanted,
        experiment=done.experiment,
        graph=done.graph,
        machine=machine,
        why=done.why,
        changes=changes,
    )
    return prepared.inspected(resumed=resume is not None) if inspect else prepared


def _home(wanted: Experiment) -> Machine:
    """The machine that trainers run on: this one, unless the launcher starts that machine too."""
    here, home = Machine.here(), home_of(wanted.launcher)
    return here if home is None else Machine(home.cores, home.gpus, int((home.memory or 0) * 1e9) or here.shared_free)


def _decided(wanted: Experiment, machine: Machine, composed: Composed, replayed: Collection[str] | None = None) -> Decided:
    """Laid out and checked, as far as that is possible without building env and policies."""
    try:
        done = decide(wanted, machine=machine, where=composed.provenance, replayed=replayed)
        graph = done.graph
        if graph.mode != "inline":
            for held in held_here(graph):
                dotted_path(held)  # or an error that says why no other process finds it
        check(graph)
        check_fresh(graph.policies)
        check_resources(graph, machine)
        for sink in graph.sinks:
            kind, _ = resolved("sink", sink, ("sinks",))
            if home_of(wanted.launcher) is None:  # otherwise the run logs on a machine that is not this one
                kind.check()
    except UserError as error:
        if wanted.graph is None and error.path is not None and error.path[:2] == ("graph", "nodes"):
            error.path = ("workers", *(key for key in error.path[2:] if key != "args"))  # where a file can set it
        raise error.at(composed.provenance) from None
    return done


def _compose(
    experiment: str | Path | None, overrides: Sequence[str], settings: Mapping[str, Any] | None, resume: Path | None
) -> tuple[Composed, tuple[str, ...]]:
    if resume is None:
        composed = _everywhere(compose(experiment, overrides, settings=settings))
        if not composed.name and not settings and "env" not in composed.data:
            raise UserError(
                "no experiment is named",
                ("try", "experiment=cartpole    all: python -m srl list"),
                ("or", "env=CartPole-v1 algorithm=ppo"),
                code="E14",
            )
        return composed, ()
    file = resume / "config.yaml"
    before = compose(file, (), origin=RESUME)
    after = _everywhere(compose(file, overrides, settings=settings, origin=RESUME))
    return after, tuple(_differences(before.data, after.data, after.provenance))


def _everywhere(composed: Composed) -> Composed:
    name = composed.name or _called(composed.data.get("env"))
    return replace(composed, data=absolute(composed.data, exact_run), name=name)


def _called(env: Any) -> str:
    """The name of an experiment without a file: that of its env, `CartPole-v1` also of `{use: gym_vector, id: CartPole-v1}`."""
    if isinstance(env, Mapping):
        use, named = env.get("use", "gym"), env.get("id")
        env = named if use in REGISTRIES["env"].names() and isinstance(named, str) else env.get("use")
    return env if isinstance(env, str) else ""


def _differences(before: Any, after: Any, places: Provenance, path: tuple[str, ...] = ()) -> list[str]:
    """`algorithm.lr: 0.001 -> 0.0003 (command line)`"""
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        return [
            line
            for key in dict.fromkeys([*before, *after])
            for line in _differences(before.get(key), after.get(key), places, (*path, key))
        ]
    if before == after:
        return []
    old, new = ("nothing" if value is None else written(value) for value in (before, after))
    return [f"{dotted(path)}: {old} -> {new} ({places.at(path)})"]


def _mark_decided(given: Any, decided: Any, places: Provenance, path: tuple[str, ...] = ()) -> None:
    """The origin of a decided value is `auto`, not the file or a default."""
    for key, value in decided.items():
        here = (*path, key)
        old = given.get(key) if isinstance(given, Mapping) else None
        if isinstance(value, Mapping):
            _mark_decided(old, value, places, here)
        elif here in _AUTO and old in (None, "auto"):
            places.put(here, Where("auto"))


def _leaves(data: Mapping[str, Any], path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    for key, value in data.items():
        if isinstance(value, Mapping) and value:
            yield from _leaves(value, (*path, key))
        else:
            yield (*path, key), value


def _needs_plugins(experiment: Experiment) -> bool:
    """Whether the graph names something that is not registered yet."""
    given = (experiment.graph or {}).get("nodes")
    nodes = given if isinstance(given, Mapping) else {}
    names: list[tuple[str, Any]] = [("layout", experiment.layout)] if experiment.layout != "auto" else []
    names += [("worker", node.get("worker")) for node in nodes.values() if isinstance(node, Mapping)]
    names += [("worker", settings.get("use")) for settings in experiment.workers.values()]
    names += [("sink", sink.use) for sink in experiment.sinks]
    names += [("transport", stream.via) for stream in experiment.streams.values() if stream.via != "auto"]
    names += [("launcher", experiment.launcher.use)] if experiment.launcher.use != LOCAL else []
    names += [("rule", experiment.opponents.choose)] if experiment.opponents is not None else []
    return any(isinstance(name, str) and name not in REGISTRIES[kind] and ":" not in name for kind, name in names)
