"""What all streams share: versions and specs.

kind     way                      ends
sample   slabs, one way           SampleProducer -> SampleConsumer     nothing lost silently     sample.py
infer    question and answer      InferClient <-> InferServer          stateless servers         infer.py
param    newest version wins      ParamPublisher -> ParamSubscriber                              param.py
sum      each to each             SumRank <-> SumRank                  nothing lost              sum.py
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from srl.core.spec import TreeSpec

Version: TypeAlias = int
"""(epoch, updates) in one number: epoch << 40 | updates. Epochs grow at each start of a trainer."""

Kind: TypeAlias = Literal["sample", "infer", "param", "sum"]
Side: TypeAlias = Literal["producer", "consumer", "client", "server", "publisher", "subscriber", "rank"]
Route: TypeAlias = Literal["fair", "drop"]
"""Sample streams: `fair` many to many, a slab goes to the consumer whose credit it uses, requests are spread round robin;
`drop` has no consumers: every slab is counted as dropped, and no credit is needed."""

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
    """sample: one slab. infer: one unit (one env's rows) of a question. param: the parameters. sum: the largest part."""
    answer: TreeSpec = field(default_factory=dict)
    """infer: one unit of an answer."""
    route: Route = "fair"
    compress: Literal[None, "lz4"] = None
