"""Cells over whole sequences against torch's own, one row at a time, with resets anywhere."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from torch import Tensor, nn

from srl.nets.cells import CELLS, Cell

OWN = {"lstm": nn.LSTM, "gru": nn.GRU}
WEIGHTS = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")


def pair(kind: str) -> tuple[Cell, nn.LSTM | nn.GRU]:
    """A cell, and torch's with the same weights."""
    torch.manual_seed(0)
    cell, own = CELLS[kind](7, 12), OWN[kind](7, 12)
    with torch.no_grad():
        for name in WEIGHTS:
            getattr(cell, name).copy_(getattr(own, f"{name}_l0"))
    return cell, own


def slowly(cell: Cell, own: nn.LSTM | nn.GRU, x: Tensor, memory: Tensor, first: Tensor) -> tuple[Tensor, Tensor]:
    """Row by row in torch, the memory multiplied by 0 where a row is the first."""
    outs = []
    for row, restart in zip(x, first, strict=True):
        memory = memory * (~restart).float()[:, None]
        parts = tuple(part[None].contiguous() for part in memory.split(cell.width, 1))
        _, after = own(row[None], parts if isinstance(own, nn.LSTM) else parts[0])
        memory = torch.cat([part[0] for part in (after if isinstance(after, tuple) else (after,))], 1)
        outs.append(memory[:, : cell.width])
    return torch.stack(outs), memory


@pytest.mark.parametrize("kind", OWN)
@pytest.mark.parametrize("resets", [0.0, 0.25, 1.0])
def test_a_cell_has_the_outputs_and_gradients_of_torchs_own_with_resets(kind: str, resets: float) -> None:
    cell, own = pair(kind)
    x = torch.randn(9, 5, 7, requires_grad=True)
    memory = torch.randn(5, cell.leaf_of(12).shape[0], requires_grad=True)
    first = torch.rand(9, 5) < resets
    wanted, found = slowly(cell, own, x, memory, first), cell(x, memory, first)
    weights = [torch.randn_like(part) for part in found]
    sums = [sum((part * weight).sum() for part, weight in zip(parts, weights, strict=True)) for parts in (wanted, found)]
    expected = torch.autograd.grad(sums[0], [x, memory, *own.parameters()])
    grads = torch.autograd.grad(sums[1], [x, memory, *(getattr(cell, name) for name in WEIGHTS)])
    for have, want in zip([*found, *grads], [*wanted, *expected], strict=True):
        torch.testing.assert_close(have, want, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("kind", OWN)
def test_the_path_of_other_devices_is_the_same_recurrence(kind: str) -> None:
    cell, _ = pair(kind)
    cell.double()  # the numpy node takes single precision only
    x, first = torch.randn(6, 4, 7, dtype=torch.float64), torch.rand(6, 4) < 0.3
    memory = torch.randn(4, cell.leaf_of(12).shape[0], dtype=torch.float64)
    wanted = cell(x, memory, first)
    found = cell.float()(x.float(), memory.float(), first)
    for have, want in zip(found, wanted, strict=True):
        torch.testing.assert_close(have, want.float(), atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("kind", OWN)
@pytest.mark.parametrize("cut", [1, 4, 8])
def test_a_sequence_may_be_split_anywhere(kind: str, cut: int) -> None:
    cell, _ = pair(kind)
    x, first = torch.randn(9, 5, 7), torch.rand(9, 5) < 0.2
    memory = torch.randn(5, cell.leaf_of(12).shape[0])
    whole, after = cell(x, memory, first)
    head, between = cell(x[:cut], memory, first[:cut])
    tail, last = cell(x[cut:], between, first[cut:])
    torch.testing.assert_close(torch.cat([head, tail]), whole, atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(last, after, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("kind", OWN)
def test_nothing_of_an_episode_is_left_in_the_next(kind: str) -> None:
    cell, _ = pair(kind)
    x, first = torch.randn(6, 3, 7, requires_grad=True), torch.zeros(6, 3, dtype=torch.bool)
    first[4] = True
    y, last = cell(x, torch.randn(3, cell.leaf_of(12).shape[0]), first)
    (grad,) = torch.autograd.grad(y[4:].sum() + last.sum(), x)
    assert (grad[:4] == 0).all() and (grad[4:] != 0).any()
    alone, _ = cell(x[4:], torch.zeros(3, cell.leaf_of(12).shape[0]), first[4:])
    torch.testing.assert_close(y[4:], alone, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("kind", OWN)
def test_products_in_bfloat16_are_the_same_to_two_digits(kind: str) -> None:
    cell, _ = pair(kind)
    x, first = torch.randn(9, 50, 7, requires_grad=True), torch.rand(9, 50) < 0.2
    memory = torch.randn(50, cell.leaf_of(12).shape[0])
    found = []
    for half in (False, True):
        cell.bf16 = half
        y, last = cell(x, memory, first)
        found.append([y, last, *torch.autograd.grad((y * y).sum() + last.sum(), [x, *cell.parameters()])])
    for exact, rounded in zip(*found, strict=True):
        assert rounded.dtype == torch.float32 and not torch.equal(exact, rounded)
        assert (exact - rounded).norm() < 0.02 * exact.norm()


@pytest.mark.parametrize("kind", OWN)
def test_passes_that_overlap_and_graphs_that_are_kept_have_the_same_gradients(kind: str) -> None:
    cell, _ = pair(kind)
    x, first = torch.randn(2, 6, 3, 7), torch.rand(2, 6, 3) < 0.2
    memory = torch.randn(3, cell.leaf_of(12).shape[0])
    params = [getattr(cell, name) for name in WEIGHTS]
    alone = [torch.autograd.grad(cell(x[i], memory, first[i])[0].sum(), params) for i in range(2)]
    outs = [cell(x[i], memory, first[i])[0].sum() for i in range(2)]
    for _ in range(2):
        for out, want in zip(outs, alone, strict=True):
            for have, one in zip(torch.autograd.grad(out, params, retain_graph=True), want, strict=True):
                torch.testing.assert_close(have, one, atol=1e-6, rtol=1e-5)


def test_a_copy_of_a_cell_has_memory_of_its_own() -> None:
    cell, _ = pair("gru")
    x, first, memory = torch.randn(6, 3, 7), torch.zeros(6, 3, dtype=torch.bool), torch.zeros(3, 12)
    y, _ = cell(x, memory, first)
    other, _ = copy.deepcopy(cell)(x, memory, first)
    assert torch.equal(y, other)
    y.sum().backward()
    again = pickle.loads(pickle.dumps(cell))
    assert torch.equal(again(x, memory, first)[0], y)


@pytest.mark.parametrize("kind", OWN)
def test_gradients_end_where_they_are_told_to(kind: str) -> None:
    cell, _ = pair(kind)
    x, first = torch.randn(8, 5, 7, requires_grad=True), torch.rand(8, 5) < 0.1
    memory = torch.randn(5, cell.leaf_of(12).shape[0], requires_grad=True)
    stop = torch.zeros(8, 5, dtype=torch.bool)
    stop[3, :3] = True
    stop[5, 2:] = True
    y, last = cell(x, memory, first, stop)
    weight = torch.randn_like(y)
    params = [x, memory, *(getattr(cell, name) for name in WEIGHTS)]
    found = torch.autograd.grad((y * weight).sum() + last.sum(), params)

    outs, now = [], memory
    for t in range(8):
        now = torch.where(stop[t][:, None], now.detach(), now)
        row, now = cell(x[t : t + 1], now, first[t : t + 1])
        outs.append(row[0])
    expected = torch.autograd.grad((torch.stack(outs) * weight).sum() + now.sum(), params)
    for have, want in zip(found, expected, strict=True):
        torch.testing.assert_close(have, want, atol=1e-5, rtol=1e-4)
