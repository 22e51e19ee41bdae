"""A worker between actors and trainer: slabs pass through it, and leave with clipped rewards."""

from dataclasses import dataclass

import numpy as np

from srl.core.tree import copy_into
from srl.workers.base import Port, Worker


@dataclass(frozen=True, kw_only=True)
class ClipArgs:
    limit: float = 1.0


class ClipRewards(Worker):
    ports = {"source": Port("sample", "consumer"), "sink": Port("sample", "producer")}
    Args = ClipArgs

    def __init__(self, args, ends, context):
        super().__init__(args, ends, context)
        self.source, self.sink = ends["source"], ends["sink"]
        self.open = {}  # grant -> the slab that waits to be filled

    @classmethod
    def record(cls, args, port, node, graph, policies, records):
        return records.get(node.ports["source"]) if port == "sink" else None  # what comes in goes out

    def poll(self):
        while (slab := self.sink.alloc()) is not None:  # the trainer wants a slab: want one, of the same age
            self.open[slab.grant] = slab
            self.source.grant(slab.grant, slab.min_version)
        if (lease := self.source.get()) is None:
            return 0
        slab = self.open.pop(lease.grant)
        copy_into(slab.tree, lease.tree)
        np.clip(slab.tree["reward"], -self.args.limit, self.args.limit, out=slab.tree["reward"])
        lease.release()
        return int(self.sink.put(slab))
