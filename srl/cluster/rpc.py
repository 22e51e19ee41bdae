"""The messages of the control plane over gRPC: one bidirectional call per supervisor. A host lives as long as its call is open.

Workers never import this.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import secrets
import select
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc

from srl.cluster.asking import Access, served
from srl.cluster.files import KINDS, Arrivals
from srl.cluster.reliable import ReliableChannel
from srl.cluster.security import Credentials, Join
from srl.cluster.wire import ASK, KEEPALIVE, LEASE, METHOD, SERVICE, TOKEN, Inbox
from srl.control.backend import Backend
from srl.control.desk import CONTROL
from srl.core.errors import CannotWrite, HostileFrame
from srl.workers.messages import Message, pack, unpack

_SERVER = [
    *KEEPALIVE,
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 1_000),
    ("grpc.http2.max_ping_strikes", 0),  # pings of a busy machine come in bursts: hundreds of hosts would be sent away
    ("grpc.server_handshake_timeout_ms", 3_000),
    ("grpc.max_connection_idle_ms", 10_000),
    ("grpc.max_concurrent_streams", 8),
    ("grpc.so_reuseport", 0),
]
_GOODBYE = 3.0
"""Seconds without a word in which hosts may say goodbye."""
_RECEIVING = 2.0
"""Seconds after a piece of a file in which the next one is expected."""
_UP = ("bound", "detached", "ready", "drained", "failed", "exit", "bye", "leaving", "facts", "reached")
"""What supervisors send, besides `hello` and reports."""
_HELLO_WITHIN = 5.0
"""Seconds that a caller has for its `hello`."""


@dataclass(slots=True)
class _Host:
    """One supervisor, as the controller knows it."""

    index: int
    channel: ReliableChannel = field(default_factory=ReliableChannel)
    processes: set[str] = field(default_factory=set)
    call: Any = None
    """The queue of the call that is open now."""
    since: float = float("inf")
    """When its last call ended. A host that never connected does not count as lost: the stall limit of the run covers it."""
    gone: bool = False
    """Whether its supervisor has said goodbye."""
    life: int = 0
    """The number that its supervisor drew at its start; 0: none has connected yet."""
    lost: set[int] = field(default_factory=set)
    """The numbers of supervisors that were given up: they may not come back."""
    reason: str = ""
    """Why the launcher has given it up."""
    leaving: bool = False
    """Whether it was told to end, and may leave: what is sent now is for its next supervisor."""
    later: list[Message] = field(default_factory=list)
    seeded: bool = False
    """Whether it was told about the run folder."""

    def renew(self) -> None:
        """Forget its supervisor. The next one begins anew, with the messages that are sent from now on."""
        self.lost.add(self.life)
        self.channel, self.processes, self.call = ReliableChannel(), set(), None
        self.since, self.life, self.reason, self.seeded = float("inf"), 0, "", False


class RemoteBackend(Backend):
    """Supervisors on other hosts that dial in. Messages sent before they do are kept for them."""

    def __init__(
        self,
        hosts: int,
        host_of: Callable[[str], int],
        *,
        credentials: Credentials,
        run: str = "run",
        bind: str = "127.0.0.1:0",
        lease: float = LEASE,
        folder: Path | None = None,
        seeds: Callable[[int], Iterable[Message]] = lambda host: (),
        encrypt: bool = True,
        elastic: Collection[int] = (),
        may_leave: Collection[int] = (),
        name_of: Callable[[int], str] = str,
    ) -> None:
        """`folder`: the run folder, for files of other hosts. `seeds`: what a host is sent before its first process starts.

        `encrypt`: the streams between hosts too. The control plane always is. `elastic`: hosts that come and go.
        `may_leave`: hosts without which the run continues for a while.
        """
        self._life = secrets.randbits(62) + 1
        self._hosts = [_Host(index) for index in range(hosts)]
        self._host_of, self._credentials, self._run, self._lease = host_of, credentials, run, lease
        self._folder, self._seeds, self._encrypt = folder, seeds, encrypt
        self._elastic, self._may_leave, self._name_of = elastic, may_leave, name_of
        self._told: list[tuple[int, Message]] = []
        self._heard = 0.0
        """When the last piece of a file came."""
        self._refused: Counter[str] = Counter()
        self._ask_token = secrets.token_urlsafe(32)
        self._inbox = Inbox()
        self._lock = threading.Lock()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="srl-rpc", daemon=True)
        self._thread.start()
        self._server, port = self._await(self._serve(bind))
        self.address = f"{bind.rpartition(':')[0]}:{port}"
        if folder is not None:
            ca = credentials.ca.decode()
            Access(run=str(folder), address=self.address, ca=ca, token=self._ask_token).write(folder / CONTROL)

    @property
    def join(self) -> Join:
        """The address and secrets for a supervisor."""
        return Join(self._run, self.address, self._credentials.ca.decode(), self._credentials.token)

    @property
    def network(self) -> dict[str, Any]:
        return {"bind": f"tcp://{self.address.rpartition(':')[0]}", "encrypt": self._encrypt}

    @property
    def refused(self) -> Mapping[str, int]:
        """Callers that fail in TLS are not counted: gRPC drops them itself."""
        return self._refused

    def supervisor(self, host: int) -> int:
        """The number that the supervisor of this host drew at its start; 0: none has joined since the last one was lost."""
        return self._hosts[host].life

    def absent(self, process: str) -> bool:
        host = self._hosts[self._host_of(process)]
        return host.index in self._elastic and (host.life == 0 or host.leaving)

    def told(self) -> list[tuple[int, Message]]:
        """What supervisors have said of their hosts since the last call."""
        told, self._told = self._told, []
        return told

    def tell(self, host: int, message: Message) -> None:
        """A message to the supervisor itself."""
        self._post(self._hosts[host], message)

    def give_up(self, host: int, reason: str) -> None:
        """Its supervisor has ended: do not wait for the lease."""
        self._hosts[host].reason = reason

    @property
    def receiving(self) -> bool:
        return time.monotonic() - self._heard < _RECEIVING

    def fileno(self) -> int:
        return self._inbox.fileno()

    def send(self, message: Message) -> None:
        host = self._hosts[self._host_of(message["process"])]
        if host.leaving:
            host.later.append(message)
            return
        if message["type"] == "start":
            host.processes.add(message["process"])
            if not host.seeded:
                host.seeded = True
                for seed in self._seeds(host.index):
                    self._post(host, seed)
        self._post(host, message)

    def poll(self, timeout: float) -> list[Message]:
        if timeout > 0:
            select.select([self._inbox], [], [], timeout)
        received: list[Message] = []
        host: _Host
        life: int
        message: Message
        for host, life, message in self._inbox.take():
            if life != host.life:  # of a supervisor that was given up meanwhile
                continue
            if message["type"] in KINDS:
                self._arrived(host, message)
                continue
            if message["type"] in ("facts", "reached"):
                self._told.append((host.index, message))
                continue
            if message["type"] == "exit":
                host.processes.discard(message["process"])
                if host.leaving:
                    message["left"] = True
            if message["type"] == "leaving" and host.index in self._may_leave:
                self._post(host, {"type": "leave"})
                host.leaving = True
                continue
            if message["type"] == "bye" and not message["process"] and host.leaving:
                self._left(host)
            if message["type"] not in ("hello", "bye") or message.get("process"):
                received.append(message)
        now = time.monotonic()
        return received + [message for host in self._hosts for message in self._lost(host, now)]

    def close(self) -> None:
        if self._loop.is_closed():
            return
        for host in self._hosts:
            if not host.gone:
                self._post(host, {"type": "bye", "process": ""})
        begun = time.monotonic()
        with contextlib.suppress(CannotWrite):  # the run has failed, and says so
            while time.monotonic() < max(begun, self._heard) + _GOODBYE and any(host.call is not None for host in self._hosts):
                self.poll(0.05)  # supervisors end their calls when they have read it, and sent their last files
        if self._folder is not None:
            (self._folder / CONTROL).unlink(missing_ok=True)
        self._await(self._server.stop(0.2))
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        self._inbox.close()

    def _arrived(self, host: _Host, message: Message) -> None:
        """A piece of a file; the host sends more once it knows that it was written."""
        self._heard = time.monotonic()
        try:
            if self._folder is not None:
                Arrivals(self._folder, f"host{host.index}").take(message)
        except HostileFrame:
            self._refused["a file outside the run folder"] += 1
        self._post(host, {"type": "ack"})

    def _left(self, host: _Host) -> None:
        """A host that may leave has ended as it was told. Another supervisor may come for it."""
        with self._lock:
            host.renew()
            host.gone = host.leaving = False
        later, host.later = host.later, []
        for message in later:
            self.send(message)

    def _lost(self, host: _Host, now: float) -> list[Message]:
        """After `lease` seconds without a call, or if it was given up, everything on that host counts as dead."""
        if host.gone or not (host.processes or host.reason):
            return []
        if not host.reason and (host.call is not None or now - host.since < self._lease):
            return []
        silence = f"no contact with host {self._name_of(host.index)} for {self._lease:g} seconds"
        names = sorted(host.processes | {message["process"] for message in host.later})
        reason = host.reason or silence
        with self._lock:
            if host.call is not None:
                self._loop.call_soon_threadsafe(host.call.put_nowait, None)
            host.renew()
            host.leaving, host.later = False, []
        return [{"type": "lost", "process": name, "reason": reason, "at": now} for name in names]

    def _post(self, host: _Host, message: Message) -> None:
        with self._lock:
            numbered = host.channel.send(message)
            if host.call is not None:
                self._loop.call_soon_threadsafe(host.call.put_nowait, numbered)

    def _await(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(30)

    # in the thread of the loop --------------------------------------------------------------------------------------

    async def _serve(self, bind: str) -> tuple[Any, int]:
        server = grpc.aio.server(options=_SERVER)
        handlers = {
            METHOD: grpc.stream_stream_rpc_method_handler(self._attach),
            ASK: grpc.unary_unary_rpc_method_handler(self._ask),
        }
        server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(SERVICE, handlers)])
        pair = (self._credentials.key, self._credentials.certificate)
        port = server.add_secure_port(bind, grpc.ssl_server_credentials([pair]))
        await server.start()
        return server, port

    async def _ask(self, data: bytes, context: Any) -> bytes:
        """A question of a person, answered from the run folder."""
        token = str(dict(context.invocation_metadata()).get(TOKEN, ""))
        if self._folder is None or not hmac.compare_digest(token.encode(), self._ask_token.encode()):
            self._refused["no or wrong token"] += 1
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, "no or wrong token")
        assert self._folder is not None
        return served(self._folder, data)

    async def _attach(self, requests: AsyncIterator[bytes], context: Any) -> AsyncIterator[bytes]:
        """One call, from `hello` to its end. Its iterator also ends normally when the peer vanishes."""
        if not self._credentials.admits(dict(context.invocation_metadata()).get(TOKEN, "")):
            self._refused["no or wrong token"] += 1
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, "no or wrong token")
        try:
            hello = unpack(await asyncio.wait_for(anext(requests), _HELLO_WITHIN))
            host = self._checked_hello(hello)
            life: int = hello["life"]
        except (HostileFrame, TimeoutError, StopAsyncIteration):
            self._refused["no hello of this run"] += 1
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "no hello of this run")
        if hello["controller"] not in (0, self._life):
            self._refused["of an earlier controller"] += 1
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, "this supervisor was one of an earlier controller")
        if life in host.lost:
            self._refused["given up before"] += 1
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, "this supervisor was given up")
        if host.life not in (0, life):
            if not hello["waits"]:
                host.reason = host.reason or "its supervisor was started again"
            await context.abort(grpc.StatusCode.UNAVAILABLE, "the supervisor before this one is not yet given up")
        own: asyncio.Queue[Message | None] = asyncio.Queue()
        with self._lock:
            if host.call is not None:
                host.call.put_nowait(None)  # an older call that is dead but not yet noticed
            host.call, host.life = own, life
            own.put_nowait({"type": "welcome", "controller": self._life, "taken": host.channel.taken})
            for message in host.channel.resend(hello["taken"]):
                own.put_nowait(message)
        reader = asyncio.ensure_future(self._read(host, life, requests, own))
        try:
            while (due := await own.get()) is not None:
                yield pack(due)
        finally:
            reader.cancel()
            with self._lock:
                if host.call is own:
                    host.call, host.since = None, time.monotonic()

    def _checked_hello(self, hello: Message) -> _Host:
        if (
            hello["type"] != "hello"
            or hello["run"] != self._run
            or not 0 <= hello["host"] < len(self._hosts)
            or not hello["life"]
        ):
            raise HostileFrame("no hello of this run")
        return self._hosts[hello["host"]]

    async def _read(self, host: _Host, life: int, requests: AsyncIterator[bytes], own: asyncio.Queue[Message | None]) -> None:
        try:
            async for data in requests:
                message = self._own(host, unpack(data))
                with self._lock:
                    if host.call is not own:  # there is a newer call, which repeats what this one has not acknowledged
                        break
                    news = host.channel.receive(message)
                if news:
                    self._inbox.put((host, life, message))
                if message["type"] == "bye" and not message["process"]:
                    host.gone = True
                    break
        except HostileFrame:
            self._refused["not a message of a supervisor"] += 1
        except grpc.aio.AioRpcError:
            pass
        own.put_nowait(None)

    def _own(self, host: _Host, message: Message) -> Message:
        """The message, if it is one that a supervisor sends, about processes of its host."""
        if message["type"] in KINDS:
            return message
        names = message["processes"] if message["type"] == "report" else [message["process"]] if message["type"] in _UP else ["?"]
        with contextlib.suppress(KeyError):
            if all(self._host_of(name) == host.index for name in names if name):
                return message
        raise HostileFrame(f"host {host.index} has no business to send '{message['type']}'")
