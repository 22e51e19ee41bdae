"""A worker that subscribes to the weights and reports how far they have moved from the first version."""

from dataclasses import dataclass

import numpy as np

import srl
from srl.core.tree import leaves


class Drift(srl.Worker):
    noun = "drift meter"
    ports = {"params": srl.Port("param", "subscriber")}

    @dataclass(frozen=True)
    class Args:
        order: int = srl.option(2, "of the norm: 1 or 2", low=1, high=2)

    def __init__(self, args, ends, context):
        super().__init__(args, ends, context)
        self.version, self.first = -1, None

    @classmethod
    def about(cls, args):
        return f"distance from the first weights, L{args.order}"

    def poll(self):
        newer = self.ends["params"].latest(self.version)
        if newer is None:
            return 0
        self.version, tree = newer
        weights = np.concatenate([leaf.ravel() for _, leaf in leaves(tree["params"])])
        self.first = weights.copy() if self.first is None else self.first
        self.reading.mean("drift", float(np.linalg.norm(weights - self.first, self.args.order)))
        return 1
