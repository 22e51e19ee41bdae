"""Target networks against a loop over their parameters."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from srl.learners.flat import flatten
from srl.nets.target import Target


@pytest.mark.parametrize("flat", [False, True])
def test_a_target_follows_by_its_share_and_copies_buffers(flat: bool) -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))
    target = Target(net)
    if flat:
        assert flatten(net.parameters()) is not None
    wanted = [one.detach().clone() for one in net.parameters()]
    for _ in range(3):
        with torch.no_grad():
            for one in net.parameters():
                one += torch.randn(one.shape)
            net[1].running_mean += 1.0  # type: ignore[operator]
        wanted = [0.9 * old + 0.1 * new.detach() for old, new in zip(wanted, net.parameters(), strict=True)]
        target.follow(0.1)
    assert (target._whole is not None) == flat
    for one, want in zip(target.net.parameters(), wanted, strict=True):
        np.testing.assert_allclose(one, want, atol=1e-6)
        assert not one.requires_grad
    np.testing.assert_array_equal(target.net[1].running_mean, net[1].running_mean)  # type: ignore[arg-type]


def test_a_target_that_was_restored_still_follows_as_one_tensor() -> None:
    net = nn.Linear(3, 2)
    target = Target(net)
    flatten(net.parameters())
    with torch.no_grad():
        for one in target.state_dict().values():
            one.copy_(torch.full(one.shape, 5.0))
    target.follow(1.0)
    np.testing.assert_array_equal(target.net.weight, net.weight.detach())


def test_parameters_of_two_flat_tensors_are_not_taken_for_one() -> None:
    one, two = nn.Linear(3, 2), nn.Linear(3, 2)
    net = nn.Sequential(one, two)
    target = Target(net)
    flatten(one.parameters())
    flatten(two.parameters())
    target.follow(0.5)
    for mine, theirs in zip(target.net.parameters(), net.parameters(), strict=True):
        np.testing.assert_allclose(mine, theirs.detach(), atol=1e-6)
