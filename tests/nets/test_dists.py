"""Distributions against torch.distributions and against sums over all choices."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import distributions as reference

from srl.api.env import Box, Discrete, MultiBinary, MultiDiscrete
from srl.core.seeds import Rng, row_keys
from srl.nets.dists import make_dist

ACTIONS: dict[str, Any] = {
    "discrete": Discrete(5),
    "multi_discrete": MultiDiscrete((3, 2)),
    "multi_binary": MultiBinary(5),
    "box": Box((5,), (-1.0,) * 5, (1.0,) * 5),
    "dict": {"a": Discrete(3), "b": Box((2,), (0.0,) * 2, (1.0,) * 2)},
}
MASKS = {"discrete": 5, "multi_discrete": 5, "multi_binary": 5}


def _head(seed: int, rows: int = 7) -> torch.Tensor:
    return torch.randn(rows, 5, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def _rng(rows: int) -> Rng:
    return Rng(row_keys(0, np.arange(rows), 0))


def _log_std(action: str) -> torch.Tensor | None:
    size = {"box": 5, "dict": 2}.get(action, 0)
    return torch.linspace(-0.5, 0.5, size, dtype=torch.float64) if size else None


def _theirs(action: str, head: torch.Tensor) -> list[Any]:
    """Independent parts, each with the columns of the action that belong to it."""
    if action == "discrete":
        return [reference.Categorical(logits=head)]
    if action == "multi_discrete":
        return [reference.Categorical(logits=head[:, :3]), reference.Categorical(logits=head[:, 3:])]
    if action == "multi_binary":
        return [reference.Independent(reference.Bernoulli(logits=head), 1)]
    if action == "box":
        return [reference.Independent(reference.Normal(head, _log_std("box").exp()), 1)]
    return [
        reference.Categorical(logits=head[:, :3]),
        reference.Independent(reference.Normal(head[:, 3:], _log_std("dict").exp()), 1),
    ]


def _parts(action: str, sample: Any) -> list[torch.Tensor]:
    if action == "dict":
        return [sample["a"], sample["b"].double()]
    if action == "multi_discrete":
        return [sample[:, 0], sample[:, 1]]
    return [sample.double() if action in ("multi_binary", "box") else sample]


@pytest.mark.parametrize("action", ACTIONS)
def test_log_prob_entropy_and_divergence_are_those_of_torch(action: str) -> None:
    one = make_dist(ACTIONS[action], _head(1), None, _log_std(action))
    two = make_dist(ACTIONS[action], _head(2), None, _log_std(action))
    sample = one.sample(_rng(7))
    theirs, others = _theirs(action, _head(1)), _theirs(action, _head(2))
    parts = _parts(action, sample)
    torch.testing.assert_close(one.log_prob(sample), sum(dist.log_prob(part) for dist, part in zip(theirs, parts, strict=True)))
    torch.testing.assert_close(one.entropy(), sum(dist.entropy() for dist in theirs))
    expected = sum(reference.kl_divergence(dist, other) for dist, other in zip(theirs, others, strict=True))
    torch.testing.assert_close(one.kl(two), expected)
    assert (one.kl(one).abs() < 1e-12).all()


def test_masked_entropy_counts_the_allowed_choices_only() -> None:
    head = _head(3)
    mask = torch.rand(7, 5, generator=torch.Generator().manual_seed(0)) < 0.6
    mask[0] = False  # no choice at all
    mask[1] = torch.tensor([False, False, True, False, False])
    dist = make_dist(Discrete(5), head, mask)
    for row in range(1, 7):
        allowed = head[row][mask[row]]
        chance = torch.softmax(allowed, 0)
        torch.testing.assert_close(dist.entropy()[row], -(chance * chance.log()).sum())
        torch.testing.assert_close(dist.logits[row][mask[row]], chance.log())
    assert dist.entropy()[1] == 0.0
    torch.testing.assert_close(dist.logits[0], torch.log_softmax(head[0], 0))


@pytest.mark.parametrize("action", MASKS)
def test_masked_numbers_have_no_gradient_and_nothing_is_nan(action: str) -> None:
    head = _head(4).requires_grad_()
    mask = torch.rand(7, 5, generator=torch.Generator().manual_seed(1)) < 0.5
    mask[:, 0] = True
    mask[:, 3] = True
    dist = make_dist(ACTIONS[action], head, mask)
    sample = dist.sample(_rng(7))
    (dist.log_prob(sample).sum() + dist.entropy().sum()).backward()
    assert torch.isfinite(head.grad).all()
    assert (head.grad[~mask] == 0).all()
    if action == "multi_binary":
        assert (sample[~mask] == 0).all()


@pytest.mark.parametrize("action", ACTIONS)
def test_samples_have_the_frequencies_that_log_prob_tells(action: str) -> None:
    rows = 100_000
    head = _head(5, 1).float().expand(rows, 5)
    log_std = _log_std(action)
    dist = make_dist(ACTIONS[action], head, None, None if log_std is None else log_std.float())
    sample = dist.sample(_rng(rows))
    surprise = -dist.log_prob(sample)
    error = surprise.std() / rows**0.5
    assert abs(surprise.mean() - dist.entropy()[0]) < 5 * error
    assert torch.isfinite(dist.log_prob(dist.mode())).all()
