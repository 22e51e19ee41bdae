"""Everything that follows from a graph and a look at its env and policies: all specs, before anything starts."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, cast

import msgpack

from srl.api.env import EnvSpec
from srl.api.policy import PolicySpec
from srl.core.blame import blaming
from srl.core.errors import SrlError, UserError
from srl.core.load import dump, load
from srl.core.registry import REGISTRIES, load_plugins
from srl.core.spec import Leaf, TreeSpec, from_data, lead, to_data
from srl.graph.placement import via_of
from srl.graph.plain import env_from_data, env_to_data, policy_from_data, policy_to_data
from srl.graph.spec import Graph, PolicyEntry
from srl.streams.base import Route, StreamSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyInfo:
    """What the engine knows of one policy."""

    name: str
    use: str
    config: Mapping[str, Any]
    spec: PolicySpec
    teams: tuple[str, ...]
    """Whose agents it acts for, in the order of its rows."""
    memory: TreeSpec
    reads: tuple[str, ...]
    bounds: str
    extra: Mapping[str, TreeSpec]
    """Recorded leaves of `Act.extra`: only those that the algorithm needs."""
    signals: Mapping[str, TreeSpec]
    params: TreeSpec
    twin: str | None
    """A torch-free policy that acts the same."""
    memory_every: int | None
    needs_torch: bool
    """Whether acting needs torch."""
    source: str | None = None
    """The policy whose past versions it acts with."""
    chunk: int | None = None
    """Rows of the sequences that its algorithm cuts."""
    burn_in: int = 0

    @property
    def question(self) -> TreeSpec:
        """One env's rows as they are asked."""
        agents = self.spec.agents
        unit: dict[str, Any] = {
            "first": Leaf((agents,), "bool"),
            "ids": Leaf((agents,), "int64"),
            "keys": Leaf((agents,), "uint64"),
        }
        if "obs" in self.reads:
            unit["obs"] = lead(self.spec.obs, agents)
        if "mask" in self.reads and self.spec.mask:
            unit["mask"] = lead(self._mask, agents)
        if "state" in self.reads and self.spec.state is not None:
            unit["state"] = self.spec.state
        if self.memory != {}:
            unit["memory"] = lead(self.memory, agents)
        if self.source is not None:
            unit |= {"faced": Leaf((), "int64"), "won": Leaf((), "float32")}  # how the env's last episode against it ended
        return unit

    @property
    def answer(self) -> TreeSpec:
        """One env's rows as they are answered."""
        from srl.api.env import action_leaves

        agents = self.spec.agents
        unit: dict[str, Any] = {"action": lead(action_leaves(self.spec.action), agents)}
        if self.memory != {}:
            unit["memory"] = lead(self.memory, agents)
        if self.extra:
            unit["extra"] = {name: lead(leaf, agents) for name, leaf in self.extra.items()}
        return unit

    @property
    def published(self) -> TreeSpec:
        """One version of the parameters, with the clock of their trainer."""
        return {"params": self.params, "env_steps": Leaf((1,), "int64")}

    @property
    def _mask(self) -> TreeSpec:
        from srl.api.env import mask_leaves

        return mask_leaves(self.spec.action)


@dataclass(frozen=True, slots=True, kw_only=True)
class Derived:
    """All specs of a run: plain data to and from, so that it can be cached and sent."""

    env: EnvSpec
    policies: Mapping[str, PolicyInfo]
    streams: Mapping[str, StreamSpec] = field(default_factory=dict)

    @property
    def players(self) -> dict[str, PolicyInfo]:
        """The policies that `agents` names; past opponents only stand in for them."""
        return {name: info for name, info in self.policies.items() if info.source is None}

    def to_data(self) -> dict[str, Any]:
        """Plain data for msgpack."""
        return {
            "env": env_to_data(self.env),
            "policies": {
                name: {
                    "use": info.use,
                    "config": dict(info.config),
                    "spec": policy_to_data(info.spec),
                    "teams": list(info.teams),
                    "memory": to_data(info.memory),
                    "reads": list(info.reads),
                    "bounds": info.bounds,
                    "extra": {key: to_data(leaf) for key, leaf in info.extra.items()},
                    "signals": {key: to_data(leaf) for key, leaf in info.signals.items()},
                    "params": to_data(info.params),
                    "twin": info.twin,
                    "memory_every": info.memory_every,
                    "needs_torch": info.needs_torch,
                    "source": info.source,
                    "chunk": info.chunk,
                    "burn_in": info.burn_in,
                }
                for name, info in self.policies.items()
            },
            "streams": {
                name: {
                    "kind": spec.kind,
                    "via": spec.via,
                    "record": to_data(spec.record),
                    "answer": to_data(spec.answer),
                    "route": spec.route,
                    "compress": spec.compress,
                }
                for name, spec in self.streams.items()
            },
        }

    @staticmethod
    def from_data(data: Mapping[str, Any]) -> Derived:
        """The inverse of `to_data`."""
        policies = {}
        for name, info in data["policies"].items():
            trees: dict[str, Any] = {key: from_data(info[key]) for key in ("memory", "params")}
            groups: dict[str, Any] = {
                key: {leaf: from_data(spec) for leaf, spec in info[key].items()} for key in ("extra", "signals")
            }
            names = ("use", "config", "bounds", "twin", "memory_every", "needs_torch", "source", "chunk", "burn_in")
            same: dict[str, Any] = {key: info[key] for key in names}
            policies[name] = PolicyInfo(
                name=name,
                spec=policy_from_data(info["spec"]),
                teams=tuple(info["teams"]),
                reads=tuple(info["reads"]),
                **trees,
                **groups,
                **same,
            )
        streams = {
            name: StreamSpec(**{**spec, "name": name, "record": from_data(spec["record"]), "answer": from_data(spec["answer"])})
            for name, spec in data["streams"].items()
        }
        return Derived(env=env_from_data(data["env"]), policies=policies, streams=streams)


def derive(graph: Graph) -> Derived:
    """Build env and policies once, act on zeros, and write down every spec. Imports what they import."""
    from srl.graph.policies import inspect_env, inspect_policies

    load_plugins(graph.plugins)
    name = str(graph.env.args.get("id", graph.env.use))
    with blaming(f"cannot make env '{name}'", ("try", f"srl check env {name} --trace")):
        env = inspect_env(graph)
    named = [f"policy '{name}' ({_used(entry)})" for name, entry in graph.policies.items()]
    with blaming(f"cannot build {', '.join(named)}", ("try", "--trace, which shows the traceback")):
        policies = inspect_policies(graph, env)
    return with_streams(graph, Derived(env=env, policies=policies))


def with_streams(graph: Graph, derived: Derived) -> Derived:
    """The same with the specs of the streams of this graph."""
    records: dict[str, TreeSpec] = {}
    for _ in graph.streams:  # a relay's record is known once its source's is
        for node in graph.nodes:
            kind = REGISTRIES["worker"].resolve(node.worker)
            args = load(kind.Args, node.args)
            for port, name in node.ports.items():
                known = {other: records[stream] for other, stream in node.ports.items() if stream in records}
                record = kind.declares(args, port, derived.policies, known)
                if record is None:
                    continue
                if records.setdefault(name, record) != record:
                    raise UserError(
                        f"stream '{name}' would carry two kinds of records",
                        ("from", f"node '{node.name}', port '{port}'"),
                        ("try", "give the nodes that feed one stream the same sizes (envs, steps), or a stream each"),
                        code="E10",
                    )
    streams = {}
    for stream in graph.streams:
        info = derived.policies[stream.policy]
        found = {"infer": info.question, "param": info.published}.get(stream.kind) or records.get(stream.name)
        if found is None:
            raise UserError(
                f"nobody says what stream '{stream.name}' carries",
                ("expected", "a worker that produces into it: an actor, or a worker class with `declares`"),
                code="E10",
            )
        streams[stream.name] = StreamSpec(
            name=stream.name,
            kind=stream.kind,
            via=via_of(graph, stream),
            record=found,
            answer=info.answer if stream.kind == "infer" else {},
            route=cast(Route, stream.route),
            compress=stream.compress,
        )
    return replace(derived, streams=streams)


def derive_in_child(graph: Graph) -> Derived:
    """`derive` in a process of its own, so that neither env nor torch stays in this one."""
    child = subprocess.run(
        [sys.executable, "-m", "srl.graph.derive"],
        input=msgpack.packb({"graph": dump(graph), "path": sys.path}),
        stdout=subprocess.PIPE,
        check=False,
    )
    if not child.stdout:
        raise _no_answer(graph, child.returncode)
    answer = msgpack.unpackb(child.stdout)
    if "error" in answer:
        error = SrlError.from_data(answer["error"])
        error.add_note(answer["trace"])  # seen with --trace only
        raise error
    return Derived.from_data(answer)


def _used(entry: PolicyEntry) -> str:
    return f"{entry.policy.use}, {entry.algorithm.use}" if entry.algorithm is not None else entry.policy.use


def _no_answer(graph: Graph, code: int) -> UserError:
    """Something ended the process without a word: native code that crashed, the kernel, `os._exit`."""
    how = f"died of {signal.Signals(-code).name}" if code < 0 else f"was ended with exit code {code}"
    return UserError(
        f"the process that builds env and policies {how}",
        ("built", ", ".join([graph.env.use, *(_used(entry) for entry in graph.policies.values())])),
        ("likely", "native code that crashed: its stack is above" if code < 0 else "code that ends the process (os._exit)"),
        ("try", f"srl check env {graph.env.args.get('id', graph.env.use)}, which builds the env alone"),
    )


def _main() -> None:
    import faulthandler
    import os
    import traceback

    faulthandler.enable()
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C is the parent's to explain
    wire = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # an env that prints must not write into the answer
    asked = msgpack.unpackb(sys.stdin.buffer.read())
    sys.path[:] = asked["path"]
    from srl.graph.derive import derive as look  # this file is `__main__` here: its classes are not the ones others import

    try:
        answer = look(load(Graph, asked["graph"])).to_data()
    except SrlError as error:
        answer = {"error": error.to_data(), "trace": traceback.format_exc()}
    wire.write(msgpack.packb(answer))
    wire.flush()


if __name__ == "__main__":
    _main()
