"""Graphs in Python: streams and nodes are handles, and an argument is checked on the line where it is written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

from srl.core.errors import UserError
from srl.core.load import load
from srl.core.registry import REGISTRIES, dotted_path
from srl.core.where import caller
from srl.graph.build import wiring_to_data
from srl.graph.check import check_node
from srl.graph.placement import inside as placed_inside
from srl.graph.spec import Node, Stream

_OF_NODES = ("count", "threads", "device", "on_failure", "restarts", "hosts")
_NAMES = {"sample": "samples", "infer": "ask", "param": "params"}


class GraphBuilder:
    """Collects nodes and streams.

    g = GraphBuilder()
    samples, params, ask = g.sample(), g.param(), g.infer()
    actor = g.node("actor", count=2, envs=32, steps=64, infer=ask, samples=samples)
    g.node("policy", inside=actor, asks=ask, params=params)
    g.node("trainer", slabs=2, samples=samples, params=params)
    """

    def __init__(self) -> None:
        self._nodes: dict[str, Node] = {}
        self._streams: dict[str, Stream] = {}

    def sample(self, policy: str = "main", name: str = "", **settings: Any) -> Stream:
        """A stream of this policy's slabs: `samples.main`, unless another name is given."""
        return self._stream("sample", policy, name, settings)

    def infer(self, policy: str = "main", name: str = "", **settings: Any) -> Stream:
        """A stream of questions to this policy: `ask.main`."""
        return self._stream("infer", policy, name, settings)

    def param(self, policy: str = "main", name: str = "", **settings: Any) -> Stream:
        """A stream of this policy's parameters: `params.main`."""
        return self._stream("param", policy, name, settings)

    def node(self, worker: str | type, name: str = "", *, inside: Node | str | None = None, **given: Any) -> Node:
        """A group of like workers. `given`: streams by port, settings of the node (`count`, `threads`, `device`,
        `on_failure`, `restarts`, `hosts`), and the arguments of the worker class.

        A port that exists for each policy takes a list of streams, or a mapping from what follows `port:`.
        `inside`: in the processes of the workers of that node.
        """
        use = worker if isinstance(worker, str) else dotted_path(worker)
        name = name or use.rpartition(":")[2].lower()
        ports: dict[str, str] = {}
        own: dict[str, Any] = {"count": inside.count} if isinstance(inside, Node) else {"inside": inside}
        args: dict[str, Any] = {}
        accepted = set(REGISTRIES["worker"].resolve(use).Args.__dataclass_fields__)
        for key, value in given.items():
            if isinstance(value, Stream):
                ports[key] = value.name
            elif isinstance(value, Sequence) and any(isinstance(one, Stream) for one in value):
                ports |= {f"{key}:{stream.policy}": stream.name for stream in value}
            elif isinstance(value, Mapping) and any(isinstance(one, Stream) for one in value.values()):
                ports |= {f"{key}:{part}": stream.name for part, stream in value.items()}
            else:
                (own if key in _OF_NODES and key not in accepted else args)[key] = value
        try:
            if name in self._nodes:
                raise UserError(f"there is a node '{name}' already", code="E10")
            node = load(Node, {"name": name, "worker": use, "args": args, "ports": ports, **own}, path=(name,))
            check_node(node, self._streams.values())
        except UserError as error:
            raise error.at(caller(__file__)) from None
        self._nodes[name] = placed_inside(node, inside) if isinstance(inside, Node) else node
        return self._nodes[name]

    @property
    def nodes(self) -> tuple[Node, ...]:
        """In the order in which they were added."""
        return tuple(self._nodes.values())

    @property
    def streams(self) -> tuple[Stream, ...]:
        """In the order in which they were added."""
        return tuple(self._streams.values())

    def data(self) -> dict[str, Any]:
        """What stands under `graph:` in a file: `srl.run(graph=g.data(), ...)`."""
        return wiring_to_data(self.nodes, self.streams)

    def _stream(self, kind: Literal["sample", "infer", "param"], policy: str, name: str, settings: dict[str, Any]) -> Stream:
        stream = replace(Stream(name=name or f"{_NAMES[kind]}.{policy}", kind=kind, policy=policy), **settings)
        if self._streams.setdefault(stream.name, stream) != stream:
            raise UserError(f"there is another stream '{stream.name}' already", code="E10").at(caller(__file__))
        return stream
