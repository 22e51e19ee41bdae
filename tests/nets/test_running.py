"""The running scale of inputs against plain formulas."""

from __future__ import annotations

import numpy as np
import torch

from srl.nets.running import RunningScale


def test_a_scale_is_the_mean_of_batches_without_the_pull_of_its_start() -> None:
    rng = np.random.default_rng(0)
    scale, decay = RunningScale(3, decay=0.9), 0.9
    batches = [rng.normal(5.0 + i, 2.0, (50 + i, 3)) for i in range(8)]
    for rows in batches:
        scale.observe(torch.from_numpy(rows))
    weights = np.array([decay ** (7 - i) for i in range(8)])
    mean = sum(w * rows.mean(0) for w, rows in zip(weights, batches, strict=True)) / weights.sum()
    square = sum(w * (rows**2).mean(0) for w, rows in zip(weights, batches, strict=True)) / weights.sum()
    np.testing.assert_allclose(scale.mean.numpy(), mean, rtol=1e-5)
    np.testing.assert_allclose(scale.scale.numpy(), 1.0 / np.sqrt(square - mean**2), rtol=1e-5)


def test_small_deviations_count_as_a_tenth_and_large_inputs_are_clipped() -> None:
    scale = RunningScale(2)
    scale.observe(torch.tensor([[1.0, 0.0], [1.0, 10.0]]).double())
    torch.testing.assert_close(scale(torch.tensor([[1.2, 1e9]])), torch.tensor([[2.0, 5.0]]))


def test_no_rows_change_nothing() -> None:
    scale = RunningScale(2)
    scale.observe(torch.zeros(0, 2))
    torch.testing.assert_close(scale(torch.tensor([[1.0, -2.0]])), torch.tensor([[1.0, -2.0]]))
