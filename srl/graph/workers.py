"""`workers:` of an experiment: settings of nodes by name or kind, whatever made them, and workers of other kinds."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

from srl.core.errors import UserError
from srl.core.load import dump, load
from srl.core.option import key_of
from srl.core.option import settings as option_fields
from srl.core.registry import REGISTRIES
from srl.graph.check import near
from srl.graph.placement import inside
from srl.graph.spec import Node, Stream

_OF_NODES = [one.name for one in fields(Node) if one.name not in ("name", "worker", "args", "ports")]


def with_workers(
    nodes: Sequence[Node], streams: Sequence[Stream], wanted: Mapping[str, Mapping[str, Any]], absent: Collection[str] = ()
) -> tuple[list[Node], list[Stream]]:
    """The nodes with these settings, and those that are added; the streams with those that new names stand for.

    `absent`: kinds of workers that the run does without. Settings of these may be there all the same.
    """
    done, joined = list(nodes), list(streams)
    for name, settings in wanted.items():
        given = dict(settings)
        use = given.pop("use", None)
        if use is not None:
            load(str, use, path=("workers", name, "use"))
        targets = [node for node in done if name in (node.name, node.worker)]
        if not targets and use is None and name in absent:
            continue
        if not targets and use is None:
            raise _unknown(name, done)
        new = [_changed(node, name, {**given, "worker": use or node.worker}, joined) for node in targets]
        if not targets:
            done.append(_added(name, use, given, done, joined))
        done = [next((one for one in new if one.name == node.name), node) for node in done]
    homes = {node.name: node for node in done}
    return [inside(node, homes[node.inside]) if node.inside in homes else node for node in done], joined


def _added(name: str, use: str, given: dict[str, Any], nodes: Sequence[Node], streams: list[Stream]) -> Node:
    home = next((node for node in nodes if node.name == given.get("inside")), None)
    blank = Node(name=name, worker=use, count=home.count if home is not None else 1)
    kind = REGISTRIES["worker"].resolve(use)
    named = {port.partition(":")[0] for port in given.get("ports", {})}
    params = [stream for stream in streams if stream.kind == "param"]
    for port, end in kind.ports.items():  # weights go to all who want them: nothing needs to be said
        if end.side == "subscriber" and port not in named:
            keys = {port: params[0].name} if len(params) == 1 else {f"{port}:{one.policy}": one.name for one in params}
            blank = replace(blank, ports={**blank.ports, **keys})
    return _changed(blank, name, {**given, "worker": use}, streams)


def _changed(node: Node, name: str, given: Mapping[str, Any], streams: list[Stream]) -> Node:
    """The node with these settings; those that are not of every node are its args."""
    path = ("workers", name)
    own = {key: value for key, value in given.items() if key in _OF_NODES}
    args = {key: value for key, value in given.items() if key not in (*_OF_NODES, "worker", "ports")}
    schema = REGISTRIES["worker"].resolve(given["worker"]).Args
    known = [*(key_of(one) for one in option_fields(schema)), *_OF_NODES, "ports", "use"]
    if wrong := [key for key in args if key not in known]:
        raise UserError(
            f"'workers.{name}' has no setting '{wrong[0]}'",
            *near(wrong[0], known, "settings"),
            code="E02",
            path=(*path, wrong[0]),
        )
    load(schema, {**node.args, **args}, path=path)
    ports = load(Mapping[str, str], given.get("ports", {}), path=(*path, "ports"))  # type: ignore[type-abstract]
    same = {key: value for key, value in dump(node).items() if key not in (*own, "worker", "args", "ports")}
    data = {**same, **own, "worker": given["worker"], "args": {**node.args, **args}, "ports": {**node.ports, **ports}}
    changed = load(Node, data, path=path)
    _make_streams(changed, streams)
    return changed


def _make_streams(node: Node, streams: list[Stream]) -> None:
    """A port that is connected to a name that no stream has makes a stream of its kind, of the policy of its other ports."""
    known = {stream.name: stream for stream in streams}
    ports = node.kind.ports
    policies = [known[name].policy for name in node.ports.values() if name in known]
    for port, name in node.ports.items():
        base, _, policy = port.partition(":")
        if name not in known and base in ports and ports[base].side in ("producer", "publisher", "server"):
            streams.append(Stream(name=name, kind=ports[base].kind, policy=policy or (policies or ["main"])[0]))


def _unknown(name: str, nodes: Sequence[Node]) -> UserError:
    known = list(dict.fromkeys([*(node.name for node in nodes), *(node.worker for node in nodes)]))
    return UserError(
        f"'workers.{name}' must name a node of the graph or a kind of its workers, or have `use`",
        *near(name, known, "known"),
        ("try", f"workers.{name}.use={name if name in REGISTRIES['worker'] else 'my_pkg.mod:Class'}, which adds such workers"),
        code="E02",
        path=("workers", name),
    )
