"""Attention among few entities against torch's own."""

from __future__ import annotations

import pytest
import torch

from srl.nets.attention import FEW, EntityAttention, attend, attend_by_torch, seen_mean


def given(number: int, rows: int = 300, width: int = 16) -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    seen = torch.rand(rows, number) < 0.6
    seen[:, 0] = True
    return torch.randn(rows, number, 3, width, requires_grad=True), seen


@pytest.mark.parametrize("number", [1, FEW, FEW + 1, 17])
@pytest.mark.parametrize("heads", [1, 4])
def test_both_forms_are_torchs_own_attention_and_have_its_gradients(number: int, heads: int) -> None:
    qkv, seen = given(number)
    q, k, v = (part.unflatten(-1, (heads, -1)).transpose(1, 2) for part in qkv.unbind(2))
    own = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=seen[:, None, None])
    wanted = own.transpose(1, 2).flatten(2)
    weights = torch.randn_like(wanted)
    (expected,) = torch.autograd.grad((wanted * weights).sum(), qkv)
    for form in (attend, attend_by_torch):
        found = form(qkv, seen, heads)
        torch.testing.assert_close(found, wanted, atol=1e-5, rtol=1e-4)
        (grad,) = torch.autograd.grad((found * weights).sum(), qkv)
        torch.testing.assert_close(grad, expected, atol=1e-5, rtol=1e-4)


def test_what_is_not_seen_changes_nothing() -> None:
    torch.manual_seed(0)
    block = EntityAttention(16, 4)
    x, (_, seen) = torch.randn(300, 5, 16), given(5)
    other = torch.where(seen.unsqueeze(-1), x, torch.randn_like(x) * 100)
    one, two = block(x, seen), block(other, seen)
    torch.testing.assert_close(one[seen], two[seen])
    torch.testing.assert_close(seen_mean(one, seen), seen_mean(two, seen))


def test_heads_must_divide_the_width() -> None:
    with pytest.raises(ValueError, match="divide"):
        EntityAttention(16, 3)
