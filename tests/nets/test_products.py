"""Rounded products beside exact ones."""

from __future__ import annotations

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


@pytest.mark.parametrize("half", [True, False])
def test_a_product_goes_where_it_is_told(half: bool) -> None:
    torch.manual_seed(0)
    one, two, out = torch.randn(30, 50), torch.randn(50, 20), torch.empty(30, 20)
    assert mm(one, two, half=half, out=out) is out
    assert torch.equal(out, mm(one, two, half=half))
    assert (out - one @ two).norm() < 0.01 * out.norm()


@pytest.fixture
def onednn(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a CPU where large products are left to oneDNN, however small they are."""
    monkeypatch.setattr(products, "_MKL_IS_NARROW", True)
    monkeypatch.setattr(products, "LARGE", 0)


@pytest.mark.usefixtures("onednn")
@pytest.mark.parametrize("biased", [True, False])
@pytest.mark.parametrize("gaps", [True, False])
@pytest.mark.parametrize("shape", [(300, 11), (60, 5, 11)])
def test_products_by_onednn_and_their_gradients_are_those_of_torch(biased: bool, gaps: bool, shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    x, whole, bias = (torch.randn(*size, requires_grad=True) for size in (shape, (20, 31), (20,)))
    weight = whole[:, :11] if gaps else whole[:, :11].contiguous()
    given = [x, whole, bias] if biased else [x, whole]
    have, want = (one(x, weight, bias if biased else None) for one in (product, torch.nn.functional.linear))
    torch.testing.assert_close(have, want, rtol=1e-4, atol=1e-4)
    assert "OneDnn" in type(have.grad_fn).__name__
    along = torch.randn_like(want)
    grads = [torch.autograd.grad((out * along).sum(), given) for out in (have, want)]
    for one, other in zip(*grads, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-3)


@pytest.mark.usefixtures("onednn")
@pytest.mark.parametrize("turned", [True, False])
@pytest.mark.parametrize(("rows", "columns"), [(40, 10), (10, 40)])
def test_matrices_are_multiplied_by_onednn_whichever_way_they_lie(turned: bool, rows: int, columns: int) -> None:
    torch.manual_seed(0)
    one = torch.randn(500, rows).t() if turned else torch.randn(rows, 500)
    two, out = torch.randn(500, columns), torch.empty(rows, columns)
    torch.testing.assert_close(mm(one, two), torch.mm(one, two), rtol=1e-4, atol=1e-3)
    assert mm(one, two, out=out) is out and torch.equal(out, mm(one, two))
