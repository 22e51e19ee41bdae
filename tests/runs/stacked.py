"""CartPole that shows its last three states, and an algorithm that checks whether they follow each other."""

from __future__ import annotations

from typing import Any

import gymnasium
import torch

from srl.api.algorithm import Algorithm, Batch, Metrics, Needs, Replayed, Window

SECONDS = 0.02


def make(**settings: Any) -> Any:
    return gymnasium.wrappers.FrameStackObservation(gymnasium.make("CartPole-v1"), 3, **settings)


class Stacks(Algorithm):
    @classmethod
    def needs(cls, config: Any, spec: Any) -> Needs:
        return Needs(window=Window(length=1), replay=Replayed())

    def setup(self) -> None:
        self.begins = 0

    def update(self, batch: Batch) -> Metrics:
        now, later = batch.obs
        assert torch.equal(now[:, 1:], later[:, :-1])
        for stack in (now, later):
            older, newer = stack[:, :-1], stack[:, 1:]
            moved = torch.isclose(older[..., 0] + SECONDS * older[..., 1], newer[..., 0], atol=1e-5)
            padded = (older == newer).all(-1) | (older == 0).all(-1)
            assert (moved | padded).all() and not padded.all()
            self.begins += int(padded.any(1).sum())
        return {}
