"""The messages between ends, and what carries them: a transport knows nothing of credits, tickets or versions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from srl.core.tree import Tree
from srl.streams.codec import Arena, Layout

if TYPE_CHECKING:
    from srl.streams.peers import Peers


# Every message between two ends: (kind, slot, number, value), and a record where one is named. Handlers in sample.py, infer.py,
# param.py and sum.py name their arguments in this order. A kind fits into 16 bits; 0 is left to the transports.
#
# sample streams                             slot       number     value                          record
REQUEST = 1  #     producer -> consumer      ledger row -          1: no other consumer to ask    -
CANCEL = 2  #      producer -> consumer      -          -          -                              -
WAIT = 3  #        consumer -> producer      -          -          -                              -
CREDIT = 4  #      consumer -> producer      -          credit     min_version                    -
PUT = 5  #         producer -> consumer      slot       credit     -                              the slab
FREE = 6  #        consumer -> producer      slot       -          -                              -
RETURN = 7  #      producer -> consumer      -          credit     -                              -

# infer streams
ASK = 16  #        client -> server          group      ticket     min_version                    the rows
ANSWER = 17  #     server -> client          group      ticket     version                        the answer

# param streams
CHANGED = 24  #    publisher -> subscriber   -          -          -                              - (shared memory: look again)
POLL = 25  #       subscriber -> publisher   -          version+1  -                              - (send what is newer)
PARAMS = 26  #     publisher -> subscriber   -          -          version                        the parameters

# sum streams
PART = 32  #       rank -> rank              -          -          -                              what is added up


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """How the ends of this process can be reached over sockets."""

    bind: str = "tcp://127.0.0.1"
    """Where sockets bind, without the port."""
    curve: tuple[bytes, bytes] | None = None
    """Public and secret key of this process; None: in the clear."""


class Transport(ABC):
    """How one end reaches its peers: owned by its end."""

    by: Literal["reference", "memory", "bytes"]
    """How a record travels: by reference, by the producer's shared memory, or as the bytes of a message."""

    @abstractmethod
    def __init__(self, wakeup: Any, network: Network) -> None:
        """For an end of a process with this wakeup."""

    @abstractmethod
    def open(self, end: Peers[Any], arena: Arena) -> Any:
        """Memory for the arena, for reading and writing."""

    @abstractmethod
    def address(self) -> dict[str, Any]:
        """Plain data for `connect`."""

    @abstractmethod
    def connect(self, source: int, address: Mapping[str, Any], bodies: Mapping[int, Layout]) -> Wire:
        """The way to a peer end. `bodies`: which kinds of message carry a record, in either direction, and of what layout."""

    def settle(self) -> None:
        """Read what a dead peer wrote before it died."""

    @abstractmethod
    def close(self) -> None:
        """Give everything back. Idempotent."""


class Wire(ABC):
    """The way to one attached peer."""

    __slots__ = ()

    @abstractmethod
    def send(self, kind: int, slot: int = 0, number: int = 0, value: int = 0, body: Tree | None = None) -> None:
        """Hand a message over, in order; never waits, never loses it while both ends live."""

    @property
    def memory(self) -> Any:
        """The peer's arena, where this transport can see it, else None."""
        return None

    @property
    def away(self) -> float | None:
        """Since when (time.monotonic) there is no connection; None: there is one, or this side cannot tell."""
        return None

    @abstractmethod
    def close(self) -> None:
        """Release the peer. Idempotent."""
