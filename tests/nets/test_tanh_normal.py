"""The squashed Gaussian against slow references in double precision."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from srl.core.seeds import Rng, row_keys
from srl.nets.tanh_normal import TanhNormal

REAL = st.floats(-3.0, 3.0, width=32)


def _reference(mean: float, log_std: float, noise: float) -> tuple[float, float]:
    """(action, log-probability) by the change of variables, in double precision."""
    before = mean + math.exp(log_std) * noise
    density = -0.5 * noise**2 - log_std - 0.5 * math.log(2.0 * math.pi)
    return math.tanh(before), density - math.log(1.0 / math.cosh(before) ** 2)


@given(st.lists(st.tuples(REAL, st.floats(-5.0, 2.0, width=32), REAL), min_size=1, max_size=4))
def test_a_draw_has_the_log_probability_of_the_change_of_variables(rows: list[tuple[float, float, float]]) -> None:
    mean, log_std, noise = (torch.tensor(column)[None] for column in zip(*rows, strict=True))
    action, log_prob = TanhNormal(mean, log_std, (len(rows),)).draw(noise)
    wanted = [_reference(*row) for row in rows]
    np.testing.assert_allclose(action[0], [one for one, _ in wanted], atol=1e-6)
    assert float(log_prob[0]) == pytest.approx(sum(chance for _, chance in wanted), abs=1e-3, rel=1e-4)


@pytest.mark.parametrize("mean", [-200.0, -30.0, -12.0, 12.0, 30.0, 200.0])
def test_log_probabilities_are_finite_and_right_where_tanh_is_one(mean: float) -> None:
    head = torch.tensor([[mean]], requires_grad=True)
    log_std = torch.zeros(1, 1, requires_grad=True)
    action, log_prob = TanhNormal(head, log_std, (1,)).draw(torch.full((1, 1), 0.5))
    before = abs(mean + 0.5)
    slope = 2.0 * (math.log(2.0) - before - math.log1p(math.exp(-2.0 * before)))
    assert float(log_prob.detach()) == pytest.approx(-0.125 - 0.5 * math.log(2.0 * math.pi) - slope, rel=1e-5)
    (action.sum() + log_prob.sum()).backward()
    assert head.grad is not None and torch.isfinite(head.grad).all() and float(head.grad) != 0.0
    assert log_std.grad is not None and torch.isfinite(log_std.grad).all()
    assert torch.isfinite(TanhNormal(head, log_std, (1,)).log_prob(torch.sign(head.detach()))).all()


def test_gradients_are_those_of_autograd_in_double_precision() -> None:
    torch.manual_seed(0)
    mean, log_std, noise = (torch.randn(3, 5, 4, dtype=torch.float64) for _ in range(3))
    mean.requires_grad_()
    log_std.requires_grad_()
    assert torch.autograd.gradcheck(lambda m, s: TanhNormal(m, s, (4,)).draw(noise), (mean, log_std))


def test_the_log_probability_of_an_action_is_that_of_its_draw() -> None:
    torch.manual_seed(1)
    dist = TanhNormal(torch.randn(64, 3), torch.rand(64, 3) - 1.0, (3,))
    action, log_prob = dist.draw(torch.randn(64, 3))
    np.testing.assert_allclose(dist.log_prob(action), log_prob, atol=2e-3)


def test_densities_integrate_to_one() -> None:
    grid = torch.linspace(-1.0, 1.0, 200_001)[1:-1, None]
    dist = TanhNormal(torch.full_like(grid, 0.3), torch.full_like(grid, -0.2), (1,))
    assert float(dist.log_prob(grid).exp().sum() * 1e-5) == pytest.approx(1.0, abs=1e-3)


def test_samples_have_the_mean_of_the_density_and_the_shape_of_the_env() -> None:
    rows = 50_000
    dist = TanhNormal(torch.full((1, rows, 2), 0.5), torch.full((1, rows, 2), -0.5), (2, 1))
    sample = dist.sample(Rng(row_keys(3, np.arange(rows), 0)))
    assert sample.shape == (1, rows, 2, 1) and dist.mode().shape == (1, rows, 2, 1)
    grid = torch.linspace(-1.0, 1.0, 20_001)[1:-1, None]
    density = TanhNormal(torch.full_like(grid, 0.5), torch.full_like(grid, -0.5), (1,)).log_prob(grid).exp()
    assert float(sample.mean()) == pytest.approx(float((grid[:, 0] * density).sum() * 1e-4), abs=0.01)


def test_kl_is_that_of_samples() -> None:
    torch.manual_seed(2)
    one = TanhNormal(torch.full((200_000, 1), 0.2), torch.full((200_000, 1), -0.5), (1,))
    two = TanhNormal(torch.full((200_000, 1), -0.3), torch.full((200_000, 1), 0.1), (1,))
    action, log_prob = one.draw(torch.randn(200_000, 1))
    assert float((log_prob - two.log_prob(action)).mean()) == pytest.approx(float(one.kl(two)[0]), abs=0.01)
