"""The graph: frozen dataclasses, equal to their YAML. The engine knows nothing else of an experiment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from srl.core.load import load, option
from srl.core.registry import REGISTRIES
from srl.core.types import HOME, LOCAL, Checkpoint, Component, HostGroup, OnFailure, PolicyEntry, Stop


@dataclass(frozen=True, kw_only=True)
class Node:
    """A group of like workers."""

    name: str
    worker: str
    count: int = option(1, "how many workers", low=1, high=1 << 15)
    args: Mapping[str, Any] = field(default_factory=dict)
    ports: Mapping[str, str] = field(default_factory=dict)
    """Port of the worker class -> name of a stream."""
    inside: str | None = None
    """Placed inside the workers of that node: worker i in the process of worker i (or 0, if that has one only)."""
    threads: int = option(1, "threads that each worker may use", low=1)
    device: str = "cpu"
    on_failure: OnFailure = "stop"
    restarts: int = option(3, "restarts an hour before the run ends", low=0)
    hosts: str = HOME
    """The group of hosts that its processes are spread over."""

    @property
    def kind(self) -> Any:
        """The worker class."""
        return REGISTRIES["worker"].resolve(self.worker)

    @property
    def loaded(self) -> Any:
        """`args`, loaded into the `Args` of the worker class."""
        return load(self.kind.Args, self.args)

    def port(self, name: str) -> Any:
        """What the worker class declares of a port; `samples:main` is one of its `samples`."""
        return self.kind.ports[name.partition(":")[0]]


@dataclass(frozen=True, kw_only=True)
class Stream:
    """One stream by name. The ports of the nodes say which workers use it."""

    name: str
    kind: Literal["sample", "infer", "param", "sum"]
    via: str = "auto"
    """A registered transport, or auto: by placement."""
    route: Literal["fair", "drop"] = "fair"
    """Sample streams. `fair`: to the consumers by demand; `drop`: there are none, every slab is dropped."""
    compress: Literal[None, "lz4"] = None
    policy: str = "main"
    """The policy whose rows, questions or parameters it carries; its specs follow from this."""


@dataclass(frozen=True, kw_only=True)
class Graph:
    """The whole run."""

    env: Component
    policies: Mapping[str, PolicyEntry]
    agents: Mapping[str, str]
    """Glob over agent names -> policy name; the first match counts."""
    nodes: tuple[Node, ...]
    streams: tuple[Stream, ...]
    mode: Literal["inline", "local"] = "local"
    seed: int = option(1, "seed of all random generators", low=0)
    stop: Stop = field(default_factory=Stop)
    checkpoint: Checkpoint = field(default_factory=Checkpoint)
    plugins: tuple[str, ...] = ()
    sinks: tuple[Component, ...] = ()
    """Registered names or paths, beside the console, metrics.jsonl and TensorBoard."""
    name: str = "run"
    expect: Mapping[str, float] = field(default_factory=dict)
    hosts: Mapping[str, HostGroup] = field(default_factory=dict)
    launcher: Component = field(default_factory=lambda: Component(LOCAL))
    insecure: bool = False
    """Streams between hosts are not encrypted."""

    @property
    def learning(self) -> dict[str, PolicyEntry]:
        """The policies that are trained."""
        return {name: entry for name, entry in self.policies.items() if entry.algorithm is not None}

    def node(self, name: str) -> Node:
        return next(node for node in self.nodes if node.name == name)

    def stream(self, name: str) -> Stream:
        return next(stream for stream in self.streams if stream.name == name)
