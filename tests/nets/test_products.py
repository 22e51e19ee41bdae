"""Rounded products beside exact ones."""

from __future__ import annotations

import pytest
import torch

from srl.nets.products import mm, product


@pytest.mark.parametrize("biased", [True, False])
def test_a_rounded_product_and_its_gradients_are_those_of_the_exact_one_to_two_digits(biased: bool) -> None:
    torch.manual_seed(0)
    x, weight, bias = (torch.randn(*shape, requires_grad=True) for shape in ((4, 30, 50), (20, 50), (20,)))
    given = [x, weight, bias] if biased else [x, weight]
    exact, rounded = (product(x, weight, bias if biased else None, half=half) for half in (False, True))
    assert rounded.dtype == torch.float32 and rounded.shape == exact.shape
    assert 0 < (exact - rounded).norm() < 0.01 * exact.norm()
    along = torch.randn_like(exact)
    grads = [torch.autograd.grad((out * along).sum(), given) for out in (exact, rounded)]
    for want, have in zip(*grads, strict=True):
        assert (want - have).norm() < 0.01 * want.norm()


@pytest.mark.parametrize("half", [True, False])
def test_a_product_goes_where_it_is_told(half: bool) -> None:
    torch.manual_seed(0)
    one, two, out = torch.randn(30, 50), torch.randn(50, 20), torch.empty(30, 20)
    assert mm(one, two, half=half, out=out) is out
    assert torch.equal(out, mm(one, two, half=half))
    assert (out - one @ two).norm() < 0.01 * out.norm()
