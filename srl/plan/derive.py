"""Everything that follows from a graph and a look at its env and policies: all specs, before anything starts."""

from __future__ import annotations

import signal
import subprocess
import sys
from dataclasses import replace
from typing import cast

import msgpack

from srl.core.blame import blaming
from srl.core.errors import SrlError, UserError
from srl.core.load import dump, load
from srl.core.registry import REGISTRIES, load_plugins
from srl.core.spec import TreeSpec
from srl.core.types import PolicyEntry
from srl.graph.placement import via_of
from srl.graph.spec import Graph
from srl.plan.specs import Derived
from srl.streams.base import Route, StreamSpec


def derive(graph: Graph) -> Derived:
    """Build env and policies once, act on zeros, and write down every spec. Imports what they import."""
    from srl.plan.inspect import inspect_env, inspect_policies

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
        [sys.executable, "-m", "srl.plan.derive"],
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
    from srl.plan.derive import derive as look  # this file is `__main__` here: its classes are not the ones others import

    try:
        answer = look(load(Graph, asked["graph"])).to_data()
    except SrlError as error:
        answer = {"error": error.to_data(), "trace": traceback.format_exc()}
    wire.write(msgpack.packb(answer))
    wire.flush()


if __name__ == "__main__":
    _main()
