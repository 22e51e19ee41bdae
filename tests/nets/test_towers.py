"""Towers as one autograd node against the same layers as modules."""

from __future__ import annotations

import pytest
import torch

from srl.nets.mlp import Mlp, activate, linear
from srl.nets.towers import Towers


@pytest.mark.parametrize("activation", ["tanh", "relu", "elu"])
@pytest.mark.parametrize("sizes", [(4, 64, 64), (30, 40, 8, 40), (5,)])
@pytest.mark.parametrize("shared", [False, True])
def test_one_node_has_the_outputs_and_gradients_of_the_modules(activation: str, sizes: tuple[int, ...], shared: bool) -> None:
    torch.manual_seed(0)
    first, second = Mlp(sizes, activation), Mlp(sizes, activation)
    policy, value = linear(sizes[-1], 3, 1.0), linear(sizes[-1], 1, 1.0)
    x = torch.randn(2, 50, sizes[0], requires_grad=True)
    weights = torch.randn(2, 50, 4)
    modules = [first, policy, value] if shared else [first, second, policy, value]
    params = [x, *(one for module in modules for one in module.parameters())]

    top = first(x)
    wanted = [policy(top), value(top if shared else second(x))]
    expected = torch.autograd.grad((torch.cat(wanted, -1) * weights).sum(), params)
    towers = [(first, [policy, value])] if shared else [(first, [policy]), (second, [value])]
    outs = Towers(*towers)(x)
    found = torch.autograd.grad((torch.cat(outs, -1) * weights).sum(), params)
    for have, want in zip([*outs, *found], [*wanted, *expected], strict=True):
        torch.testing.assert_close(have, want, atol=2e-5, rtol=1e-4)


@pytest.mark.parametrize("activation", ["tanh", "relu", "elu"])
def test_layers_without_heads_leave_the_gradient_that_they_are_given_as_it_was(activation: str) -> None:
    torch.manual_seed(0)
    body, x = Mlp((4, 32, 16), activation), torch.randn(3, 9, 4, requires_grad=True)
    given = torch.randn(3, 9, 16)
    kept = given.clone()
    params = [x, *body.parameters()]
    expected = torch.autograd.grad(body(x), params, given)
    (y,) = Towers((body, []))(x)
    for _ in range(2):
        found = torch.autograd.grad(y, params, given, retain_graph=True)
        for have, want in zip(found, expected, strict=True):
            torch.testing.assert_close(have, want, atol=2e-5, rtol=1e-4)
    assert torch.equal(given, kept)
    torch.testing.assert_close(y, body(x), atol=2e-5, rtol=1e-4)


def test_a_head_that_the_loss_leaves_out_gets_no_gradient() -> None:
    torch.manual_seed(0)
    first, second, policy, value = Mlp((4, 32), "tanh"), Mlp((4, 32), "tanh"), linear(32, 2, 1.0), linear(32, 1, 1.0)
    logits, _ = Towers((first, [policy]), (second, [value]))(torch.randn(9, 4))
    logits.sum().backward()
    assert first.layers[0].weight.grad.abs().sum() > 0
    assert second.layers[0].weight.grad is None and value.weight.grad is None


def test_fast_tanh_is_tanh() -> None:
    x = torch.linspace(-20, 20, 10_001, requires_grad=True)
    y = activate(x, "tanh")
    assert (y - torch.tanh(x)).abs().max() < 1e-6
    y.sum().backward()
    assert (x.grad - (1 - torch.tanh(x.detach()) ** 2)).abs().max() < 1e-6


def test_no_rows_have_outputs_and_gradients_of_zero() -> None:
    body, head = Mlp((4, 32), "tanh"), linear(32, 2, 1.0)
    (out,) = Towers((body, [head]))(torch.zeros(1, 0, 4))
    assert out.shape == (1, 0, 2) and Towers((body, []))(torch.zeros(1, 0, 4))[0].shape == (1, 0, 32)
    out.sum().backward()
    assert head.weight.grad is not None and (head.weight.grad == 0).all()
