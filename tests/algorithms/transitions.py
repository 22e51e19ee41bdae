"""Batches of single transitions as a replay draws them, and a learner for them."""

from __future__ import annotations

from typing import Any

import numpy as np

from srl.api.env import Box
from srl.core.spec import Leaf
from srl.core.tree import Array
from srl.learners.single import SingleLearner
from tests.algorithms.slabs import make

INPUTS, SIZE = 5, 2


def learner(
    algorithm: Any, *, rows: int = 12, policy: dict[str, Any] | None = None, seed: int = 0, threads: int = 1, **config: Any
) -> SingleLearner:
    """For small networks."""
    return make(
        Box((SIZE,), (-1.0,) * SIZE, (1.0,) * SIZE),
        algorithm=algorithm,
        policy=algorithm.Policy,
        config={"critic": {"hidden": [16, 16]}, **config},
        policy_config={"hidden": [16, 16], **(policy or {})},
        obs=Leaf((INPUTS,), "float32"),
        steps=1,
        envs=rows,
        seed=seed,
        threads=threads,
    )


def transitions(seed: int = 0, rows: int = 12, **columns: Array) -> dict[str, Any]:
    """Random ones; a third of them end their episode. `columns` `[rows, ...]` replace what is random."""
    noise = np.random.default_rng(seed)
    ends = noise.random(rows) < 0.33
    found: dict[str, Any] = {
        "obs": noise.standard_normal((2, rows, INPUTS)).astype(np.float32),
        "action": np.tanh(noise.standard_normal((rows, SIZE))).astype(np.float32),
        "reward": noise.standard_normal(rows).astype(np.float32),
        "discount": np.where(ends, 0.0, 0.9).astype(np.float32),
        "terminated": ends,
        "truncated": np.zeros(rows, bool),
        "valid": np.ones(rows, bool),
        **columns,
    }
    batch = {name: leaf[:, :, None] if name == "obs" else leaf[None, :, None] for name, leaf in found.items() if name != "weight"}
    batch["first"] = np.zeros((2, rows, 1), bool)
    weight = found.get("weight", noise.random(rows).astype(np.float32) + 0.5)
    return {**batch, "ids": np.arange(rows), "version": np.zeros(rows, np.int64), "weight": weight}
