"""The state of a learner in a checkpoint: policy, algorithm, optimizers and torch's generator, as named arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from srl.api.algorithm import NeuralPolicy
from srl.api.neural import check_fit
from srl.core.errors import UserError
from srl.core.tree import Array
from srl.learners.base import Groups
from srl.learners.flat import FlatOptimizer
from srl.learners.saved import Saved

RNG = "torch_rng"


def state_of(policy: NeuralPolicy, saved: Saved, optimizers: Sequence[FlatOptimizer]) -> Groups:
    """Copies of all arrays that learning depends on."""
    kept = saved.groups()
    kept["optimizer"] |= _moments(optimizers)
    groups = {group: {name: host(one) for name, one in live.items()} for group, live in kept.items()}
    groups["policy"] = {name: host(one) for name, one in named(policy).items()}
    groups["algorithm"][RNG] = torch.get_rng_state().numpy().copy()
    return groups


@torch.no_grad()
def restore_state(
    policy: NeuralPolicy, saved: Saved, optimizers: Sequence[FlatOptimizer], groups: Mapping[str, Mapping[str, Array]],
    numbers: Mapping[str, Any],
) -> None:  # fmt: skip
    """The inverse; nothing is taken unless everything fits."""
    algorithm = {name: array for name, array in groups.get("algorithm", {}).items() if name != RNG}
    rng = groups.get("algorithm", {}).get(RNG)
    moments = _moments(optimizers)
    optimizer = groups.get("optimizer", {})
    own = {name: array for name, array in optimizer.items() if name in moments or name[:1].isdigit()}
    for group, live, given in (("policy", named(policy), groups.get("policy", {})), ("optimizer", moments, own)):
        check_fit(live, given, group)
    saved.check(algorithm)
    if rng is None or rng.dtype != np.uint8:
        raise UserError("algorithm: the state of the random generator is missing", ("expected", RNG), code="E09")
    for live, given in ((named(policy), groups["policy"]), (moments, own)):
        for name, one in live.items():
            one.copy_(torch.from_numpy(np.array(given[name])))
    saved.restore(algorithm, {name: one for name, one in optimizer.items() if name not in own}, numbers)
    torch.set_rng_state(torch.from_numpy(np.array(rng, np.uint8)))


def named(module: nn.Module) -> dict[str, Tensor]:
    """Parameters and persistent buffers by name, in the order of the module."""
    return {name: one.detach() for name, one in module.state_dict().items()}


def host(tensor: Tensor) -> Array:
    """A copy."""
    return np.array(tensor.cpu().numpy())


def _moments(optimizers: Sequence[FlatOptimizer]) -> dict[str, Tensor]:
    """The live tensors of the optimizers, in the order in which they were made."""
    return {f"{i}.{name}": one for i, made in enumerate(optimizers) for name, one in made.tensors().items()}
