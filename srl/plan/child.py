"""Specs without the cost: env and policies are inspected in another process, and what was found there is cached."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgpack

from srl.core.errors import SrlError, UserError
from srl.core.load import dump, load
from srl.core.machine import version_of
from srl.core.registry import REGISTRIES
from srl.graph.spec import Graph
from srl.plan.derive import derive, used, with_streams
from srl.plan.specs import Derived
from srl.store.atomic import replace_file

_PACKAGES = ("numpy", "torch", "gymnasium", "mujoco-core", "pettingzoo")


def derived_specs(graph: Graph) -> Derived:
    """All specs of the run: from the cache where nothing can have changed. Else env and policies are built, in another process
    unless the run has only this one."""
    file = cache_file(graph)
    if file is not None:
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            return with_streams(graph, Derived.from_plain(msgpack.unpackb(file.read_bytes())))
    derived = derive(graph) if graph.mode == "inline" else derive_in_child(graph)  # inline, the run imports the same code here
    if file is not None:
        file.parent.mkdir(parents=True, exist_ok=True)
        replace_file(file, msgpack.packb(derived.to_plain()))
    return derived


def cache_file(graph: Graph) -> Path | None:
    """The cache file for these specs, named after everything that they depend on; None if user code takes part."""
    if graph.plugins or any(":" in name for _, name in _names(graph)) or held_here(graph):
        return None
    sources = list(Path(__file__).parents[1].rglob("*.py"))
    versions = [f"{package} {version_of(package)}" for package in _PACKAGES]
    newest = max(file.stat().st_mtime for file in sources)
    facts = [dump(graph.env), dump(graph.policies), dump(graph.agents), versions, len(sources), newest]
    key = hashlib.sha256(json.dumps(facts, sort_keys=True, default=str).encode()).hexdigest()[:24]
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "srl" / "specs" / f"{key}.msgpack"


def held_here(graph: Graph) -> list[Any]:
    """The classes that this process registered itself and that the graph names."""
    return [held for kind, name in _names(graph) if (held := REGISTRIES[kind].held(name)) is not None]


def derive_in_child(graph: Graph) -> Derived:
    """`derive` in a process of its own, so that neither env nor torch stays in this one."""
    child = subprocess.run(
        [sys.executable, "-m", "srl.plan.child"],
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
    return Derived.from_plain(answer)


def _names(graph: Graph) -> list[tuple[str, str]]:
    """Everything that is imported for this graph, as kind and name."""
    names = [("env", graph.env.use), *(("worker", node.worker) for node in graph.nodes)]
    for entry in graph.policies.values():
        names += [("policy", entry.policy.use), *([("algorithm", entry.algorithm.use)] if entry.algorithm else [])]
    return names


def _no_answer(graph: Graph, code: int) -> UserError:
    """The process ended without an answer: native code that crashed, the kernel, `os._exit`."""
    how = f"died of {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
    return UserError(
        f"the process that builds env and policies {how}",
        ("built", ", ".join([graph.env.use, *(used(entry) for entry in graph.policies.values())])),
        ("likely", "native code that crashed: its stack is above" if code < 0 else "code that ends the process (os._exit)"),
        ("try", f"srl check env {graph.env.args.get('id', graph.env.use)}, which builds the env alone"),
    )


def _main() -> None:
    import faulthandler
    import traceback

    faulthandler.enable()
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # the parent handles Ctrl-C
    wire = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # an env that prints must not write into the answer
    asked = msgpack.unpackb(sys.stdin.buffer.read())
    sys.path[:] = asked["path"]
    try:
        answer = derive(load(Graph, asked["graph"])).to_plain()
    except SrlError as error:
        answer = {"error": error.to_data(), "trace": traceback.format_exc()}
    wire.write(msgpack.packb(answer))
    wire.flush()


if __name__ == "__main__":
    _main()
