"""A worker between actors and trainer that clips the rewards of each slab."""

from dataclasses import dataclass

import numpy as np

from srl.core.tree import copy_into
from srl.workers.base import Port, Worker


class ClipRewards(Worker):
    ports = {"source": Port("sample", "consumer"), "sink": Port("sample", "producer")}

    @dataclass(frozen=True)
    class Args:
        limit: float = 1.0

    def __init__(self, args, ends, context):
        super().__init__(args, ends, context)
        self.open = {}  # credit -> the slab to fill

    def poll(self):
        source, sink, done = self.ends["source"], self.ends["sink"], 0
        while (slab := sink.alloc()) is not None:  # the trainer gave a credit: give one with the same min_version
            self.open[slab.credit] = slab
            source.credit(slab.credit, slab.min_version)
            done += 1
        while (loan := source.get()) is not None:
            slab = self.open.pop(loan.credit)
            copy_into(slab.tree, loan.tree)
            np.clip(slab.tree["reward"], -self.args.limit, self.args.limit, out=slab.tree["reward"])
            loan.release()
            sink.put(slab)
            done += 1
        return done
