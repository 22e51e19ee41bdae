"""All specs of a run, from its graph and its env and policies, which are built once before anything starts."""

from __future__ import annotations

from dataclasses import replace

from srl.core.errors import UserError, about
from srl.core.registry import load_plugins
from srl.core.spec import TreeSpec
from srl.core.types import PolicyEntry
from srl.core.user_code import user_code
from srl.graph.placement import via_of
from srl.graph.spec import Graph
from srl.plan.specs import Derived
from srl.streams.base import StreamSpec
from srl.streams.sum import RECORD


def derive(graph: Graph) -> Derived:
    """Build env and policies once, act on zeros, and write down every spec. Imports what they import."""
    from srl.plan.inspect import inspect_env, inspect_policies

    load_plugins(graph.plugins)
    name = str(graph.env.args.get("id", graph.env.use))
    with about("env"), user_code(f"cannot make env '{name}'", ("try", f"srl check env {name} --trace")):
        env = inspect_env(graph)
    named = [f"policy '{name}' ({used(entry)})" for name, entry in graph.policies.items()]
    with user_code(f"cannot build {', '.join(named)}", ("try", "--trace, which shows the traceback")):
        policies = inspect_policies(graph, env)
    return with_streams(graph, Derived(env=env, policies=policies))


def with_streams(graph: Graph, derived: Derived) -> Derived:
    """The same with the specs of the streams of this graph."""
    records: dict[str, TreeSpec] = {}
    for _ in graph.streams:  # a relay's record is known once its source's is
        for node in graph.nodes:
            args = node.loaded
            for port, name in node.ports.items():
                known = {other: records[stream] for other, stream in node.ports.items() if stream in records}
                record = node.kind.declares(args, port, derived, known)
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
        found = {"infer": info.question, "param": info.published, "sum": RECORD}.get(stream.kind) or records.get(stream.name)
        if found is None:
            raise UserError(
                f"the contents of stream '{stream.name}' are unknown",
                ("expected", "a worker that produces into it: an actor, or a worker class with `declares`"),
                code="E10",
            )
        streams[stream.name] = StreamSpec(
            name=stream.name,
            kind=stream.kind,
            via=via_of(graph, stream),
            record=found,
            answer=info.answer if stream.kind == "infer" else {},
            route=stream.route,
            compress=stream.compress,
        )
    return replace(derived, streams=streams)


def used(entry: PolicyEntry) -> str:
    """`actor_critic, ppo`"""
    return f"{entry.policy.use}, {entry.algorithm.use}" if entry.algorithm is not None else entry.policy.use
