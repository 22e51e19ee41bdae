"""A transform that scales rewards between the actors and the trainer."""

import srl


class ScaleRewards(srl.Transform):
    def __init__(self, by: float = 1.0) -> None:
        self.by = by

    def apply(self, slab):
        return {"reward": slab["reward"] * self.by}
