"""A worker between trainer and policies that delays parameters, so that actors are always some updates behind."""

from collections import deque
from dataclasses import dataclass

import numpy as np

from srl.core.tree import map_tree
from srl.workers.base import Port, Worker


class HeldBack(Worker):
    ports = {"source": Port("param", "subscriber"), "sink": Port("param", "publisher")}

    @dataclass(frozen=True)
    class Args:
        updates: int = 8

    def __init__(self, args, ends, context):
        super().__init__(args, ends, context)
        self.seen = -1
        self.held = deque()  # (version, parameters), oldest first

    def poll(self):
        newer = self.ends["source"].latest(self.seen)
        if newer is None:
            return 0
        self.seen, tree = newer
        self.held.append((self.seen, map_tree(np.array, tree)))
        if len(self.held) > self.args.updates + 1:
            self.held.popleft()
        elif len(self.held) > 1:
            return 1  # the first version is passed on at once, so that actors can start
        self.ends["sink"].publish(*self.held[0])
        return 1
