"""The short form of an experiment: its schema as frozen dataclasses, whose help texts are what `--help` prints."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from srl.config.shorthand import POLICY, spelled_out
from srl.core.errors import UserError
from srl.core.load import load, option
from srl.core.option import dump
from srl.core.schedule import Schedule
from srl.core.types import (
    AUTO,
    HOME,
    LOCAL,
    Checkpoint,
    Component,
    HostGroup,
    Matches,
    OnFailure,
    PastVersions,
    PolicyEntry,
    Shown,
    Stop,
)
from srl.core.where import Provenance

Auto = Literal["auto"]
_MOST_PROCESSES = 1 << 15
_EXPECTED = re.compile(r"env_steps|return(/.+)?")


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """How batches are sampled. A batch of an on-policy algorithm has `envs` x `steps` rows of every agent."""

    envs: int | Auto = option("auto", "total number of envs; auto: 16, or 1 with a replay", low=1, high=1 << 20)
    steps: int | Auto = option(
        "auto", "steps of each env in a slab; auto: 128; with a replay a few, or 1 inline", low=1, high=1 << 20
    )
    workers: int | Auto = option("auto", "number of actors; auto: by the number of usable cores", low=1, high=_MOST_PROCESSES)
    groups: int | Auto = option(
        "auto", "groups of envs per actor; auto: 2 if actors ask a policy in another process, else 1", low=1, high=1024
    )


@dataclass(frozen=True, kw_only=True)
class Staleness:
    """Maximum age of slabs (trajectories of `steps` steps) when they are trained on."""

    max: int | Auto = option(
        "auto", "upper bound in updates, never exceeded; 0: strictly on-policy; auto: 0 inline, else 1", low=0
    )


@dataclass(frozen=True, kw_only=True)
class Evaluation(Matches):
    """Evaluation episodes, in envs with separate seeds. The best checkpoint is kept as `best`."""

    envs: int | Auto = option("auto", "envs stepped in parallel", low=1, high=1 << 16)


@dataclass(frozen=True, kw_only=True)
class Viewer(Shown):
    """The newest policy at play, for people to watch; `viewer: true` has the defaults. `srl watch RUN` shows any run."""

    share: float | Auto = option(
        "auto",
        "largest part of one core that it may use; auto: 0.25, or 0.015 inline, where training waits for it",
        low=0.001,
        high=1,
    )
    busy_share: float = option(0.015, "largest part of all cores that it may use while others want them", low=0.001, high=1)


@dataclass(frozen=True, kw_only=True)
class Replay:
    """The replay of each off-policy algorithm: it keeps the newest rows, and draws every batch from all of them."""

    size: int = option(1_000_000, "rows kept; memory is allocated for all of them", low=1)
    batch: int = option(256, "rows in a batch; sequences, if the algorithm trains on sequences", low=1)
    warmup: int | Auto = option("auto", "env steps before the first update; auto: 5,000, at most a 20th of the run", low=0)
    updates_per_step: float = option(1.0, "updates for every env step", above=0)
    ahead: int | Auto = option(
        "auto", "env steps that actors may be ahead of the updates; auto: a few slabs, or one inline", low=1
    )
    alpha: float = option(0.6, "with priorities: rows are drawn in proportion to priority ** alpha", low=0, high=1)
    beta: Schedule = option(
        Schedule(0.4), "with priorities: how much importance weights correct for them; 0: not at all, 1: fully", low=0, high=1
    )
    history: tuple[str, ...] = option((), "observations that are stacks of frames, kept as single frames: [obs], [obs/screen]")
    data: str | None = option(
        None, "recorded rows (.npz files), saved replays (RUN/replays) or minari:NAME, from which part of every batch is drawn"
    )
    share: float = option(0.5, "with data: the share of every batch that is drawn from it; 1: everything", above=0, high=1)
    shards: int = option(1, "number of replays that the rows are divided among, each with actors of its own", low=1, high=256)


@dataclass(frozen=True, kw_only=True)
class Record:
    """Write the rows that policies learn from to disk; `record: FOLDER` has the default size. `replay.data` reads them."""

    folder: str = option(help="folder for the files; with several policies, it has a folder for each")
    gigabytes: float = option(1.0, "maximum size of all files of a policy; beyond it the oldest are deleted", above=0)


@dataclass(frozen=True, kw_only=True)
class Opponents(PastVersions):
    """Past versions as opponents, for runs with one policy per team: some groups of envs play against them."""

    groups: int = option(1, "groups of envs per learning policy in which the other teams use past versions", low=1)


@dataclass(frozen=True, kw_only=True)
class Relays:
    """How parameters reach many workers on other hosts: one process on each host fetches them for all there."""

    above: int = option(
        64, "maximum processes of a group of hosts that fetch from the trainer; above it each host has a relay", low=0
    )
    fan_out: int = option(8, "in a tree: how many relays fetch from the trainer, and from each relay", low=1)


@dataclass(frozen=True, kw_only=True)
class StreamSettings:
    """Settings of one stream (`samples.main`), of a kind (`sample`, `infer`, `param`), or of `all`."""

    via: str | None = option(None, "transport: auto (by placement), inproc, shm, zmq, ipc, or a registered name")
    compress: Literal[None, "lz4"] = option(None, "compression for zmq between hosts; images shrink by a factor of 10 or more")
    route: Literal[None, "fair", "drop"] = option(
        None, "sample streams only; fair: to all consumers on demand; drop: discard all slabs"
    )


@dataclass(frozen=True, kw_only=True)
class WorkerSettings:
    """Settings of one node, or of all nodes of a kind: these, and those of its kind (`--help trainer`).

    `trainer: {count: 2}`: two trainers of one policy, each on half of every batch.

    Another name adds workers: `scribe: {use: my_pkg.mod:Scribe, every: 10}`.
    """

    use: str | None = option(None, "the worker class: a registered name, my_pkg.mod:Class or file.py:Class")
    count: int = option(1, "number of workers", low=1, high=_MOST_PROCESSES)
    inside: str | None = option(None, "place the workers inside those of this node, in the same processes")
    threads: int = option(1, "threads per worker", low=1)
    device: str = option("cpu", "cpu, cuda, cuda:1")
    on_failure: OnFailure = option("stop", "reaction to a failure: stop the run, restart the process, or leave it and continue")
    restarts: int = option(3, "restarts per hour before the run is stopped", low=0)
    hosts: str = option(HOME, "group of `hosts` that they run on; home: the machine that the run is started on")
    ports: Mapping[str, str] = option({}, "port -> stream; an unknown stream is created")


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """One experiment. Totals and names only: what runs where follows from the layout."""

    env: Component = option(help="a name (CartPole-v1), my_pkg.envs:Make, or {use: gym, id: ..., args: {}, stats: []}")
    policy: Component = field(default_factory=lambda: Component(POLICY))
    """{use: actor_critic, hidden: [64, 64]}; see --help policy"""
    algorithm: Component | None = option(None, "{use: ppo, lr: 3e-4}; see --help algorithm")
    load: str | None = option(None, "run folder, RUN@TAG, or checkpoint from which the policy takes its initial weights")
    fresh: tuple[str, ...] = option((), "patterns of layers that are not loaded: [logits.*, '*.norms.*']")
    policies: Mapping[str, PolicyEntry] = field(default_factory=dict)
    """Policies by name, each with policy, algorithm, load, fresh; default: one policy, main."""
    agents: Mapping[str, str] = option({"*": "main"}, "pattern of agent names -> policy; the first match counts")
    sampling: Sampling = field(default_factory=Sampling)
    """Envs, steps, workers, groups."""
    layout: str = option("auto", "which workers a run has and how they are connected; see --help layout")
    graph: Mapping[str, Any] | None = option(None, "nodes and streams, instead of a layout")
    staleness: Staleness = field(default_factory=Staleness)
    """Maximum age of slabs."""
    replay: Replay | None = option(
        None, "size, batch, warmup, updates_per_step, ...; null: the defaults, if the algorithm has one"
    )
    evaluation: Evaluation | None = option(None, "every, episodes, ...; null: no evaluation")
    dashboard: bool = option(
        False, "serve a page about this run on this host as long as it is active; srl dashboard shows any run"
    )
    viewer: Viewer | None = option(None, "show, fps, ...; true: the defaults; null: none")
    record: Record | None = option(None, "folder, gigabytes; null: rows are not recorded")
    opponents: Opponents | None = option(
        None, "play against past versions: groups, choose, keep_every, ...; null: only the newest"
    )
    stop: Stop = field(default_factory=Stop)
    """Stop conditions; the first one reached ends the run."""
    expect: Mapping[str, float] = option({}, "expected result: return (or return/TEAM), within env_steps; see srl expect --help")
    checkpoint: Checkpoint = field(default_factory=Checkpoint)
    """How often checkpoints are written, and how many are kept."""
    seed: int = option(1, "seed of all random generators", low=0)
    mode: Literal["local", "inline"] = option(
        "local", "local: several processes; inline: everything in one process, deterministic, with pdb"
    )
    device: str = option("auto", "device of the trainers: auto, cpu, cuda, cuda:1")
    learner: Component = option(
        Component(AUTO),
        "how trainers use their devices: single, or {use: split, devices: [cpu, cpu]}; auto: chosen for this machine",
    )
    streams: Mapping[str, StreamSettings] = field(default_factory=dict)
    """Settings by stream name, by kind, or for all: {all: {via: zmq}}"""
    relays: Relays = field(default_factory=Relays)
    """How parameters reach many workers on other hosts."""
    workers: Mapping[str, Mapping[str, Any]] = option({}, "settings of workers by node or kind, and additional workers")
    hosts: Mapping[str, HostGroup] = field(default_factory=dict)
    """Groups of hosts by name, each with count, cores, memory, gpus, addresses; docs/cluster.md"""
    launcher: Component = field(default_factory=lambda: Component(LOCAL))
    """What starts the workers on `hosts`; local: all of them run on this machine; see --help launcher"""
    insecure: bool = option(False, "do not encrypt streams between hosts: faster, for a network that only you can reach")
    sinks: tuple[Component, ...] = option(
        (), "receivers of reports besides console, metrics.jsonl and TensorBoard: wandb, prometheus, my.py:Csv"
    )
    plugins: tuple[str, ...] = option((), "modules or .py files to import, which register names; import=pkg.mod adds one")
    name: str = option("run", "name of the folder under runs/")

    def entries(self) -> dict[str, PolicyEntry]:
        """Every policy of the run, in order."""
        if self.policies:
            return dict(self.policies)
        return {"main": PolicyEntry(policy=self.policy, algorithm=self.algorithm, load=self.load, fresh=self.fresh)}

    @property
    def learning(self) -> tuple[str, ...]:
        """The policies that are trained."""
        return tuple(name for name, entry in self.entries().items() if entry.algorithm is not None)


OF_LAYOUT = ("sampling", "layout", "staleness", "replay", "evaluation", "viewer", "opponents", "device", "learner")
"""Settings that only layouts read; they have no effect beside `graph:`."""
SECTIONS: dict[str, type] = {
    "sampling": Sampling,
    "staleness": Staleness,
    "replay": Replay,
    "evaluation": Evaluation,
    "viewer": Viewer,
    "record": Record,
    "stop": Stop,
    "checkpoint": Checkpoint,
    "policies": PolicyEntry,
    "opponents": Opponents,
    "streams": StreamSettings,
    "relays": Relays,
    "workers": WorkerSettings,
    "hosts": HostGroup,
}
"""Sections of `--help SECTION`, besides algorithm, policy and env."""


def read_experiment(config: Mapping[str, Any], where: Provenance | None = None) -> Experiment:
    """Load a composed configuration. Unknown keys and wrong types are UserErrors with their origin."""
    try:
        return _read(spelled_out(config))
    except UserError as error:
        raise error.at(where) from None


def _read(plain: Mapping[str, Any]) -> Experiment:
    if {"nodes", "streams"} <= set(plain):
        raise UserError(
            "this is a graph, not an experiment: it has nodes and streams",
            ("try", "of a run: its folder, or the config.yaml there"),
            ("or", "its nodes and streams under `graph:` of a file that has env, policy and algorithm"),
            code="E11",
            path=("nodes",),
        )
    experiment = load(Experiment, plain)
    if not experiment.learning and experiment.graph is None:
        raise UserError(
            "nothing learns: no policy has an algorithm",
            ("expected", "algorithm (a name, or a mapping with `use`)"),
            ("try", "algorithm=ppo"),
            code="E14",
        )
    if strange := [name for name in experiment.expect if not _EXPECTED.fullmatch(name)]:
        headline, known = f"'expect' has no setting '{strange[0]}'", ("settings", "return, return/TEAM, env_steps")
        raise UserError(headline, known, code="E02", path=("expect", strange[0]))
    if experiment.policies and (both := next((key for key in ("policy", "load", "fresh") if plain.get(key)), None)):
        raise UserError(
            f"both `{both}` and `policies` are given",
            ("try", f"one of them: ~{both}, or ~policies"),
            code="E11",
            path=("policies",),
        )
    return experiment


def write_experiment(experiment: Experiment) -> dict[str, Any]:
    """Plain data that `read_experiment` reads back equal."""
    data: dict[str, Any] = dump(experiment)
    if experiment.policies:
        del data["policy"], data["algorithm"], data["fresh"]
    return {key: value for key, value in data.items() if value is not None}
