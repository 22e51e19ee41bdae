"""Products in every way that there is."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from srl.nets import products
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


@pytest.mark.parametrize("biased", [True, False])
@pytest.mark.parametrize("inner", [(), (4,)])
def test_numpy_and_torch_give_the_same_products_and_gradients(monkeypatch: Any, biased: bool, inner: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    x, weight, bias = (torch.randn(*shape, requires_grad=True) for shape in ((*inner, 30, 50), (20, 50), (20,)))
    given = [x, weight, bias] if biased else [x, weight]
    found = []
    for way in (True, False):
        monkeypatch.setattr(products, "by_numpy", lambda way=way: way)
        out = product(x, weight, bias if biased else None)
        found.append((out, *torch.autograd.grad(out.square().sum(), given), mm(x.detach().flatten(0, -2), weight.t())))
    for one, two in zip(*found, strict=True):
        torch.testing.assert_close(one, two, rtol=1e-4, atol=1e-4)
    assert type(found[0][0].grad_fn).__name__ == "_NumpyNodeBackward" != type(found[1][0].grad_fn).__name__
