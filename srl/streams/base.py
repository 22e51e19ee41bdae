"""The two ends of each kind of stream. Ends never wait: only the process loop does, on one wakeup.

kind     way                      ends
sample   slabs, one way           SampleProducer -> SampleConsumer     nothing lost silently
infer    question and answer      InferClient <-> InferServer          stateless servers, tickets
param    newest version wins      ParamPublisher -> ParamSubscriber
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from srl.core.spec import TreeSpec
from srl.core.tree import Tree
from srl.core.types import Counts, Waiting

Version: TypeAlias = int
"""(epoch, updates) in one number: epoch << 40 | updates. Epochs grow at each start of a trainer."""

Kind: TypeAlias = Literal["sample", "infer", "param"]
Side: TypeAlias = Literal["producer", "consumer", "client", "server", "publisher", "subscriber"]
Route: TypeAlias = Literal["fair", "pair", "broadcast", "null"]
"""Sample streams: `fair` many to many, a slab goes to the consumer whose credit it carries, demand is spread round robin;
`pair` producer i to consumer i mod n; `broadcast` every consumer gets each slab; `null` (`nobody` in files) nobody does, and
credits are free."""

_UPDATE_BITS = 40


def version(epoch: int, updates: int) -> Version:
    """The version after `updates` updates in `epoch`."""
    return epoch << _UPDATE_BITS | updates


def epoch_of(number: Version) -> int:
    return number >> _UPDATE_BITS


def updates_of(number: Version) -> int:
    return number & ((1 << _UPDATE_BITS) - 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamSpec:
    """What both ends of a stream agree on; its digest is compared when they attach."""

    name: str
    kind: Kind
    via: str
    """A registered transport: inproc, shm, zmq, ipc."""
    record: TreeSpec
    """sample: one slab. infer: one unit (one env's rows) of a question. param: the parameters."""
    answer: TreeSpec = field(default_factory=dict)
    """infer: one unit of an answer."""
    route: Route = "fair"
    compress: Literal[None, "lz4"] = None


FOREIGN = ("hostile", "stranger")
"""Reasons in `dropped` for what no peer had put: bytes that are no message, and ends that are not attached (or too early)."""


class End(ABC):
    """One end of a stream. One worker's thread owns it; messages reach it through the wakeup of its process."""

    name: str
    """Unique in the run: `stream:worker/index`."""

    @abstractmethod
    def address(self) -> Mapping[str, Any]:
        """What a peer needs to attach: plain data that msgpack carries, with the digest of the spec."""

    @abstractmethod
    def attach(self, peer: str, address: Mapping[str, Any], incarnation: int) -> None:
        """Connect to a peer end by the name and address it has now. A wrong spec raises W01."""

    @abstractmethod
    def detach(self, peer: str, reason: str) -> Counts:
        """Forget a peer that died or left; what was in flight with it is counted as dropped for `reason`."""

    @property
    @abstractmethod
    def counts(self) -> Counts:
        """Totals since this end was opened, detached peers included."""

    @property
    def workers(self) -> tuple[str, ...]:
        """`node/index` of the attached peers."""
        return ()

    def waits(self) -> Waiting | None:
        """What this end waits for now: for the table and for the deadlock report."""
        return None

    @abstractmethod
    def close(self) -> None:
        """Give everything back. Idempotent."""


@dataclass(slots=True)
class Slab:
    """Memory for one record, in the transport's own memory, to be filled and put."""

    tree: Tree
    slot: int
    credit: int
    min_version: Version
    """Row 0 must be answered by this version or a newer one."""


class SampleProducer(End):
    """Where slabs are made."""

    @abstractmethod
    def alloc(self) -> Slab | None:
        """Memory for the next slab; None = no credit (or no slot) yet: the wish is noted and the wakeup rings when it changes.

        A call that got None counts as one standing wish until a later call succeeds; call it once per waiting group and sweep.
        The same slot always gives the same views, so callers may cache by `slab.slot`.
        """

    @abstractmethod
    def put(self, slab: Slab) -> bool:
        """Send a filled slab. False = refused, it is still yours. A slab whose consumer is gone is dropped and counted."""

    @abstractmethod
    def discard(self, slab: Slab, reason: str) -> None:
        """Give an unfinished slab back (drain, barrier): it counts as put and as dropped for `reason`."""

    @abstractmethod
    def withdraw(self) -> None:
        """Cancel all requests and return the credits that no slab has used (barrier): whoever asks first then is served first."""

    @property
    @abstractmethod
    def slots(self) -> int:
        """How many slabs may be open or in flight."""


@dataclass(slots=True)
class Loan:
    """A slab on the consumer's side: a read-only view until it is released."""

    tree: Tree
    credit: int
    producer: str
    end: SampleConsumer
    slot: int

    def release(self) -> None:
        """Give the slot back to the producer."""
        self.end.release(self)

    def discard(self, reason: str) -> None:
        """Give the slot back without having used the slab: it counts as dropped for `reason`, not as taken."""
        self.end.release(self)
        self.end.counts.taken -= 1
        self.end.counts.released -= 1
        self.end.counts.drop(reason)


class SampleConsumer(End):
    """Where slabs arrive."""

    @abstractmethod
    def credit(self, number: int, min_version: Version) -> None:
        """Permit one slab: it goes to whoever waited longest, or waits for a producer. Credits of the dead are issued again."""

    @abstractmethod
    def get(self) -> Loan | None:
        """The next slab that has arrived, in order per producer."""

    @abstractmethod
    def release(self, loan: Loan) -> None:
        """Give the slot of a loan back."""

    @property
    @abstractmethod
    def unused_credits(self) -> int:
        """Credits that no slab has used yet."""


Ticket: TypeAlias = int
"""Numbers a question of one client; starts at incarnation << 32."""


@dataclass(slots=True)
class Answer:
    """A server's answer to one question; valid until the next post of the same group."""

    tree: Tree
    version: Version


class InferClient(End):
    """Where questions are asked: one open question per group."""

    @abstractmethod
    def post(self, group: int, rows: Tree, min_version: Version) -> Ticket:
        """Ask for one group: `rows` has [units, ...] leaves, as many units as this client declared for its groups."""

    @abstractmethod
    def ready(self, group: int) -> Answer | None:
        """The answer to the group's open question, else None."""


@dataclass(slots=True)
class Asked:
    """All questions that were taken together, stacked on axis 0."""

    rows: Tree
    sizes: tuple[int, ...]
    """Units of each question."""
    server: InferServer
    tickets: tuple[Any, ...]

    def reply(self, answer: Tree, version: Version) -> None:
        """Send each client its part; [sum(sizes), ...] leaves."""
        self.server.reply(self, answer, version)


class InferServer(End):
    """Where questions are answered. Keeps nothing between questions."""

    @abstractmethod
    def take(self, limit: int, version: Version) -> Asked | None:
        """What has queued, oldest first, up to `limit` units (at least one question), leaving those that need a newer version."""

    @abstractmethod
    def waiting(self) -> tuple[int, float]:
        """(units queued, seconds that the oldest has waited): for min_batch and max_wait."""

    @abstractmethod
    def reply(self, asked: Asked, answer: Tree, version: Version) -> None:
        """Answer all questions of one take."""


class ParamPublisher(End):
    """Where new parameters come from."""

    @abstractmethod
    def publish(self, version: Version, params: Tree, keep: bool = False) -> None:
        """Make this the newest version. The tree is copied before this returns. `keep`: also remember it for `fetch`."""

    @property
    @abstractmethod
    def kept(self) -> Mapping[Version, Tree]:
        """What is remembered, oldest first; nothing where only shared memory holds it."""


class ParamSubscriber(End):
    """Where the newest parameters are read."""

    @abstractmethod
    def latest(self, newer_than: Version) -> tuple[Version, Tree] | None:
        """The newest version if it is newer than that (cheap: ask as often as you like). Valid until the next call."""

    @abstractmethod
    def fetch(self, selector: str) -> tuple[Version, Tree] | None:
        """A kept version: `latest-10`, `uniform:<draw in [0, 1)>` or `=<version>`; None until it has come: ask again."""

    @property
    @abstractmethod
    def kept(self) -> tuple[Version, ...]:
        """The versions that `fetch` can find, oldest first, as far as this end has heard."""
