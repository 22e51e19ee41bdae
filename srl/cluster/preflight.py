"""Checks of hosts as they join: that they have what the experiment says of them, and reach each other where streams will."""

from __future__ import annotations

import contextlib
import platform
import socket
import threading
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from srl.core.errors import UserError
from srl.core.machine import Machine, memory_limit
from srl.core.text import count, size
from srl.core.types import HOME, HostGroup
from srl.graph.hosts import Host, dials
from srl.graph.spec import Graph
from srl.workers.messages import Message

if TYPE_CHECKING:  # grpc's server: a supervisor has no need of it
    from srl.cluster.rpc import RemoteBackend

_WITHIN = 5.0
"""Seconds to connect."""
_SHORT = 0.95
"""Part of the memory that a host must show: some of it is the kernel's."""


class Probe:
    """A port that others try to connect to. Nothing is said on it."""

    def __init__(self, address: str) -> None:
        self._socket = socket.create_server((address, 0), backlog=4096)
        self._socket.setblocking(False)
        name, port = self._socket.getsockname()
        self.address = f"{name}:{port}"

    def fileno(self) -> int:
        return self._socket.fileno()

    def accept(self) -> None:
        """Hang up on everybody."""
        with contextlib.suppress(OSError):
            while True:
                self._socket.accept()[0].close()

    def close(self) -> None:
        self._socket.close()


class Preflight:
    """The controller's side. It never waits; what is wrong is a UserError that ends the run."""

    def __init__(self, graph: Graph, hosts: Sequence[Host], remote: RemoteBackend, *, checked: bool) -> None:
        self._graph, self._hosts, self._remote, self._checked = graph, hosts, remote, checked
        self._dials = dials(graph)
        self._probe = Probe(remote.address.rpartition(":")[0])
        self._addresses = {HOME: self._probe.address}
        self._due = {host.name for host in hosts} | {HOME}
        """Hosts that have not been asked whom they reach."""
        self._missed: Mapping[str, str] = {}
        """Whom this machine does not reach, and why."""

    def poll(self) -> None:
        """Check what hosts have said, and ask them whom they reach once these are there."""
        self._probe.accept()
        for number, message in self._remote.told():
            host = self._hosts[number]
            if message["type"] == "facts":
                if self._checked:
                    check_facts(host, self._graph.hosts[host.group], message)
                self._addresses[host.name] = message["probe"]
                self._due.add(host.name)
            elif message["missed"]:
                raise _not_reached(host.words, message["missed"])
        if self._missed:
            raise _not_reached(f"{HOME} (this machine)", self._missed)
        for number, host in enumerate(self._hosts):
            if host.name in self._due and host.name in self._addresses and (wanted := self._wanted(host.name)) is not None:
                self._due.discard(host.name)
                self._remote.tell(number, {"type": "reach", "addresses": wanted})
        if HOME in self._due and (wanted := self._wanted(HOME)) is not None:
            self._due.discard(HOME)
            threading.Thread(target=self._try, args=(wanted,), daemon=True).start()

    def close(self) -> None:
        self._probe.close()

    def _wanted(self, name: str) -> Mapping[str, str] | None:
        """Host -> address, of those that it connects to; None while one is missing."""
        wanted = self._dials.get(name, ())
        return {one: self._addresses[one] for one in wanted} if all(one in self._addresses for one in wanted) else None

    def _try(self, addresses: Mapping[str, str]) -> None:
        self._missed = unreached(addresses)


def facts(probe: str) -> Message:
    """What a supervisor says of its host."""
    here = Machine.here()
    own = {"name": platform.node(), "cores": here.cores, "gpus": here.gpus, "memory": memory_limit(), "probe": probe}
    return {"type": "facts", "process": "", **own}


def unreached(addresses: Mapping[str, str]) -> dict[str, str]:
    """Host -> its address and why nothing answers there."""
    found = {}
    for host, address in addresses.items():
        name, _, port = address.rpartition(":")
        try:
            socket.create_connection((name, int(port)), _WITHIN).close()
        except OSError as error:
            found[host] = f"{address}: {error.strerror or error}"
    return found


def check_facts(host: Host, group: HostGroup, found: Message) -> None:
    """UserError if a host has less than its group says."""
    wanted = f"hosts.{host.group}"
    missing = []
    if group.cores is not None and found["cores"] < group.cores:
        missing.append((f"{group.cores} cores", count(found["cores"], "core"), f"{wanted}.cores={found['cores']}"))
    if found["gpus"] < group.gpus:
        missing.append((f"{group.gpus} GPUs", count(found["gpus"], "GPU"), f"{wanted}.gpus={found['gpus']}"))
    if group.memory is not None and found["memory"] < _SHORT * 1e9 * group.memory:
        memory = max(1, int(found["memory"] / 1e9))
        missing.append((f"{group.memory:g} GB of memory", size(found["memory"]), f"{wanted}.memory={memory}"))
    for expected, there, hint in missing:
        raise UserError(
            f"host {host.words} must have {expected}, as '{wanted}' says",
            ("found", f"{there} that may be used on {found['name']}"),
            ("try", f"{hint}, or another host"),
            code="E08",
            path=("hosts", host.group),
        )


def _not_reached(host: str, missed: Mapping[str, str]) -> UserError:
    other, why = next(iter(missed.items()))
    hint = "launcher.address=... with an address of this machine that the host reaches" if other == HOME else "other hosts"
    return UserError(
        f"host {host} cannot reach {other} at {why.partition(': ')[0]}",
        ("cause", why.partition(": ")[2]),
        ("because", "workers there connect to each other directly, at any free ports"),
        ("try", f"a firewall that lets these hosts connect, {hint}, or workers that talk to each other on one host"),
        code="E08",
    )
