"""Sum streams: the trainers of one policy, on several hosts, send each other what they add up.

    rank                                      every other rank
    send: a part          -- PART -------->   next: the parts of each rank, in the order in which they were sent

Of two ranks the one with the larger index connects to the other. Nobody grants credits: a rank that has sent its part of a sum
sends no more before it has those of all others, so few parts are under way. Only `zmq` and `ipc` carry them.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from srl.core.errors import HostileFrame
from srl.core.spec import Leaf, TreeSpec
from srl.core.tree import Array, Tree
from srl.core.types import Counts
from srl.streams.base import StreamSpec
from srl.streams.codec import Arena, Layout
from srl.streams.peers import Peer, Peers, index_of
from srl.streams.transport import PART, Transport, Wire

LARGEST = 1 << 20
"""Bytes of one part."""
RECORD: TreeSpec = {"part": Leaf((LARGEST,), "int8")}
AWAY = 35.0
"""Seconds without a connection after which a rank counts as lost: links that break for a shorter time lose nothing."""


class _Part(Layout):
    """Any number of bytes, up to the size of the leaf."""

    def pack(self, tree: Tree, room: int = 0) -> bytearray:
        return bytearray().join((bytes(room), tree["part"]))  # type: ignore[index, arg-type]

    def unpack(self, data: Any) -> Tree:
        if len(data) > self.size:
            raise HostileFrame(f"a part of {len(data)} bytes where at most {self.size} were agreed")
        return {"part": np.frombuffer(data, np.int8)}


@dataclass(slots=True, eq=False)
class _RankPeer(Peer):
    parts: deque[Array] = field(default_factory=deque)
    """Those that no call of `next` has taken, as bytes."""
    ended: bool = False


class SumRank(Peers[_RankPeer]):
    """The end of one trainer."""

    def __init__(self, spec: StreamSpec, name: str, transport: Transport) -> None:
        super().__init__(spec, "rank", name, transport, Arena(0, []))
        self.index = index_of(name)
        self.others: dict[int, _RankPeer] = {}
        """Index -> what is known of that rank, also once it is gone."""
        self._records = {PART: _Part(spec.record)}
        self._handlers = {PART: self._on_part}

    def send(self, rank: int, part: Array) -> None:
        """Hand over a contiguous array of at most LARGEST bytes, which is copied. What is sent to a rank that is gone is lost."""
        self.counts.put += 1
        self.counts.bytes += part.nbytes
        if not self.others[rank].ended:
            self.others[rank].wire.send(PART, body={"part": part})

    def has(self, rank: int) -> bool:
        """Whether a part of this rank is there."""
        return bool(self.others[rank].parts)

    def next(self, rank: int, like: Array) -> Array:
        """The oldest part of this rank, which is of the dtype and size of `like`."""
        self.counts.taken += 1
        return self.others[rank].parts.popleft().view(like.dtype).reshape(like.shape)

    def lost(self, rank: int) -> str:
        """Why nothing more comes from this rank; empty if something may."""
        peer = self.others[rank]
        if peer.ended:
            return "its process has ended"
        away = peer.wire.away
        return f"no connection to it for {AWAY:g} seconds" if away is not None and time.monotonic() - away > AWAY else ""

    def dials(self, address: Mapping[str, Any]) -> bool:
        return index_of(address["name"]) < self.index

    def lose(self, peer: str) -> None:
        if peer in self._by_name:
            self._by_name[peer].ended = True

    def _join(self, name: str, address: Mapping[str, Any], wire: Wire) -> _RankPeer:
        joined = self.others[index_of(name)] = _RankPeer(name, address["source"], wire)
        return joined

    def _detached(self, peer: _RankPeer, reason: str) -> Counts:
        peer.ended = True
        return Counts()

    def _on_part(self, peer: _RankPeer, _slot: int, _number: int, _value: int, body: Tree | None) -> None:
        if body is None:
            self.refuse()
        else:
            peer.parts.append(body["part"])  # type: ignore[index, arg-type]
