"""Towers side by side as one node, against plain torch layers."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from srl.api.algorithm import Clock
from srl.learners.flat import FlatAdam
from srl.nets.ensemble import Ensemble
from srl.nets.norms import BatchRenorm, LayerNorms

ACTIVATIONS: dict[str, Any] = {"relu": nn.ReLU, "tanh": nn.Tanh, "elu": nn.ELU}


def _plain(net: Ensemble, tower: int, activation: str) -> nn.Sequential:
    layers: list[nn.Module] = []
    for i, (weight, bias) in enumerate(zip(net.weights, net.biases, strict=True)):
        layer = nn.Linear(weight.shape[2], weight.shape[1])
        layer.weight.data, layer.bias.data = weight[tower].detach().clone(), bias[tower].detach().clone()
        layers.append(layer)
        if i < len(net.weights) - 1:
            if net.norms is not None:
                norm = nn.LayerNorm(weight.shape[1])
                one: Any = net.norms[i]
                norm.weight.data, norm.bias.data = one.gain[tower, 0].detach().clone(), one.bias[tower, 0].detach().clone()
                layers.append(norm)
            layers.append(ACTIVATIONS[activation]())
    return nn.Sequential(*layers)


@pytest.mark.parametrize("norm", ["no", "layer"])
def test_an_optimizer_finds_the_gradients_of_all_uses_of_a_parameter(norm: Any) -> None:
    net = Ensemble((6, 8, 2), 2, norm=norm)
    same = copy.deepcopy(net)
    adam = FlatAdam(list(net.parameters()), Clock(), lr=1e-3)
    one, two = torch.randn(5, 6), torch.randn(3, 6)

    def loss(net: Ensemble) -> Tensor:
        decay = torch.stack([each.square().sum() for each in net.parameters()]).sum()
        return decay + net(one).square().sum() + net(two).sum()

    loss(same).backward()
    for _ in range(2):
        adam.backward(loss(net))
        for mine, theirs in zip(net.parameters(), same.parameters(), strict=True):
            torch.testing.assert_close(mine.grad, theirs.grad)


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize(
    ("count", "outputs", "hidden", "rows"), [(2, 1, (32, 16), 7), (1, 4, (8,), 5), (3, 2, (256, 256), 256), (2, 1, (), 4)]
)
@pytest.mark.parametrize("norm", ["no", "layer"])
def test_values_and_gradients_are_those_of_layers(
    activation: str, count: int, outputs: int, hidden: tuple[int, ...], rows: int, norm: Any
) -> None:
    torch.manual_seed(0)
    net = Ensemble((6, *hidden, outputs), count, activation=activation, norm=norm)
    _spread(net)
    x = torch.randn(2, rows, 6, requires_grad=True)
    given = torch.randn(count, 2, rows, outputs)
    values = net(x)
    (values * given).sum().backward()
    again = x.detach().clone().requires_grad_()
    plain = [_plain(net, tower, activation) for tower in range(count)]
    wanted = torch.stack([one(again) for one in plain])
    (wanted * given).sum().backward()
    np.testing.assert_allclose(values.detach(), wanted.detach(), atol=1e-4)
    np.testing.assert_allclose(_grad(x), _grad(again), atol=1e-3)
    for found, wanted in _gradients(net, plain):
        np.testing.assert_allclose(found, wanted, atol=3e-3, rtol=1e-3)


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("norm", ["no", "layer"])
@pytest.mark.parametrize("frozen", [False, True])
def test_half_products_are_those_of_layers_under_autocast(activation: str, frozen: bool, norm: Any) -> None:
    torch.manual_seed(3)
    net = Ensemble((6, 64, 48, 3), 2, activation=activation, norm=norm, half=True)
    _spread(net)
    x = torch.randn(32, 6, requires_grad=True)
    again = x.detach().clone().requires_grad_()
    given = torch.randn(2, 32, 3)
    values = net(x, frozen=frozen)
    assert values.dtype == torch.float32
    (values * given).sum().backward()
    plain = [_plain(net, tower, activation) for tower in range(2)]
    with torch.autocast("cpu", torch.bfloat16):
        wanted = torch.stack([one(again) for one in plain]).float()
    (wanted * given).sum().backward()
    assert _away(values.detach(), wanted.detach()) < 0.02
    assert _away(_grad(x), _grad(again)) < 0.02
    if frozen:
        assert all(one.grad is None for one in net.parameters())
        return
    for found, wanted in _gradients(net, plain):
        assert found.dtype == torch.float32
        assert _away(found, wanted) < 0.03


def _spread(net: Ensemble) -> None:
    """Biases and normalizations other than at the start."""
    with torch.no_grad():
        for name, one in net.named_parameters():
            if not name.startswith("weights"):
                one += 0.3 * torch.randn(one.shape)


def _gradients(net: Ensemble, plain: list[nn.Sequential]) -> Iterator[tuple[Tensor, Tensor]]:
    """Those of every parameter of every tower, and of the layers that stand for it."""
    norms: Any = net.norms or ()
    for tower, one in enumerate(plain):
        pairs = [*zip(net.weights, net.biases, strict=True), *((norm.gain, norm.bias) for norm in norms)]
        layers = [layer for kind in (nn.Linear, nn.LayerNorm) for layer in one if isinstance(layer, kind)]
        for (weight, bias), layer in zip(pairs, layers, strict=True):
            yield _grad(weight)[tower].reshape(layer.weight.shape), _grad(layer.weight)
            yield _grad(bias)[tower].reshape(layer.bias.shape), _grad(layer.bias)


def _away(found: Tensor, wanted: Tensor) -> float:
    """The distance, as a share of the length."""
    return float((found - wanted).norm() / wanted.norm())


@pytest.mark.parametrize("norm", ["no", "layer", "batch"])
def test_a_frozen_pass_reaches_the_inputs_alone_and_a_part_is_the_first_towers(norm: Any) -> None:
    torch.manual_seed(1)
    net = Ensemble((6, 16, 16, 1), 2, norm=norm)
    x = torch.randn(9, 6, requires_grad=True)
    whole = net(x, frozen=True)
    whole[0].sum().backward()
    wanted = _grad(x)
    x.grad = None
    part = net(x, frozen=True, only=1)
    part.sum().backward()
    np.testing.assert_allclose(part.detach()[0], whole.detach()[0], atol=1e-6)
    np.testing.assert_allclose(_grad(x), wanted, atol=1e-6)
    assert all(one.grad is None for one in net.parameters())


def test_rows_whose_gradient_is_zero_change_nothing() -> None:
    torch.manual_seed(2)
    net = Ensemble((6, 128, 128, 1), 2)
    x = torch.randn(256, 6)
    pick = torch.rand(256) < 0.4
    given = torch.where(torch.stack((pick, ~pick)), torch.randn(2, 256), torch.zeros(2, 256))
    one = x.clone().requires_grad_()
    (net(one, frozen=True)[..., 0] * given).sum().backward()
    other = x.clone().requires_grad_()
    wanted = torch.stack([_plain(net, tower, "relu")(other)[..., 0] for tower in range(2)])
    (wanted * given).sum().backward()
    np.testing.assert_allclose(_grad(one), _grad(other), atol=1e-5)


def test_batch_renormalization_begins_as_batch_normalization_and_ends_at_the_running_statistics() -> None:
    torch.manual_seed(4)
    norm, plain = BatchRenorm(1, 5, momentum=0.9, warmup=200), nn.BatchNorm1d(5, eps=1e-3)
    x = torch.randn(64, 5) * 3.0 + 2.0
    np.testing.assert_allclose(norm(x, False, 0).detach(), plain(x).detach(), atol=1e-4)
    for _ in range(300):
        batch = torch.randn(512, 5) * 3.0 + 2.0
        trained = norm(batch, False, 0)
    np.testing.assert_allclose(norm(batch, True, 0).detach(), trained.detach(), atol=0.2)
    assert float((norm.mean - 2.0).abs().max()) < 0.3 and float((norm.deviation - 3.0).abs().max()) < 0.3


@pytest.mark.parametrize("frozen", [False, True])
@pytest.mark.parametrize("kind", [LayerNorms, BatchRenorm])
def test_norms_of_several_networks_are_those_of_each(kind: Any, frozen: bool) -> None:
    torch.manual_seed(5)
    together, apart = kind(3, 4), kind(3, 4)
    with torch.no_grad():
        for one, other in zip(together.parameters(), apart.parameters(), strict=True):
            other.copy_(one.normal_())
    for _ in range(3):
        x = torch.randn(3, 9, 4) * 2.0 + 1.0
        whole = together(x, frozen, slice(None))
        np.testing.assert_allclose(whole[1].detach(), apart(x[1], frozen, 1).detach(), atol=1e-5)
    for one, other in zip(together.buffers(), apart.buffers(), strict=True):
        np.testing.assert_allclose(one[1], other[1], atol=1e-5)


def _grad(tensor: Tensor) -> Tensor:
    assert tensor.grad is not None
    return tensor.grad
