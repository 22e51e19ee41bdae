"""Policies that learn: torch modules with one forward for training and acting."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any, ClassVar, Protocol, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn

from srl.api.batch import Batch
from srl.api.policy import Act, Ask, Bounds, NoConfig, PolicySpec
from srl.core.errors import UserError
from srl.core.seeds import Rng
from srl.core.spec import TreeSpec
from srl.core.tree import Tree, map_tree

Heads: TypeAlias = dict[str, Any]
"""What a forward gives: "logits", "value", "q", ... and "memory" of a policy that remembers."""


class Dist(Protocol):
    """A distribution over actions; its tensors have the leading sizes of the heads."""

    def sample(self, rng: Rng) -> Any:
        """Actions, one per row of `rng`."""
        ...

    def mode(self) -> Any: ...

    def log_prob(self, action: Any) -> Tensor: ...

    def entropy(self) -> Tensor: ...

    def kl(self, other: Any) -> Tensor:
        """From this one to `other`."""
        ...


class NeuralPolicy(nn.Module):
    """A policy that learns. Exploration constants are buffers: published with the weights.

    So is `value_moments`, by which the value head is read: `return = mean + deviation * value`. An algorithm that
    normalises values moves it; what is recorded of an act is a return.
    """

    Config: ClassVar[type] = NoConfig
    memory: TreeSpec = {}
    reads: tuple[str, ...] = ("obs", "mask")
    bounds: ClassVar[Bounds] = "clip"

    def __init__(self, config: Any, spec: PolicySpec) -> None:
        super().__init__()
        self.config = config
        self.spec = spec
        self.version = -1
        self.value_moments: Tensor
        self.register_buffer("value_moments", torch.tensor([0.0, 1.0]))

    def unroll(self, batch: Batch) -> Heads:
        """The forward: heads `[T, B, ...]` of every row of `batch.obs`, memory zeroed where `first`."""
        raise NotImplementedError(f"{type(self).__name__} has no unroll")

    def dist(self, heads: Heads, mask: Any = None) -> Dist:
        """The distribution over actions that the heads describe; `srl.nets.dists.make_dist` has one for every action spec."""
        raise NotImplementedError(f"{type(self).__name__} has no dist")

    def observe(self, batch: Batch) -> None:
        """Take input statistics; the learner calls it once per batch, after update, before publishing."""

    def numpy_twin(self) -> str | None:
        """`pkg.mod:Class` of a torch-free policy that acts the same."""
        return None

    @property
    def device(self) -> torch.device:
        for tensor in self.parameters():
            return tensor.device
        return torch.device("cpu")

    @torch.inference_mode()
    def act(self, ask: Ask) -> Act:
        """One row of `unroll`, and a sample of its distribution."""
        device = self.device
        batch = self._row(ask, device)
        heads = self.unroll(batch)
        dist = self.dist(heads, batch.mask)
        action = dist.mode() if ask.greedy else dist.sample(ask.rng)
        extra = {"log_prob": _numpy(dist.log_prob(action))}
        if "value" in heads:
            mean, deviation = self.value_moments
            extra["value"] = _numpy(mean + deviation * heads["value"])
        return Act(action=map_tree(_numpy, action), memory=map_tree(_array, heads.get("memory", {})), extra=extra)

    def load(self, params: Tree, version: int) -> None:
        """Take parameters and buffers by name; they may be overwritten after this returns."""
        named = self.__dict__.get("_named")
        if named is None:
            named = self.__dict__["_named"] = dict(self.state_dict(keep_vars=True))
        given = _flat(params)
        check_fit({name: tuple(tensor.shape) for name, tensor in named.items()}, given, "policy")
        with torch.no_grad():
            for name, tensor in named.items():
                tensor.copy_(_tensor(given[name]))
        self.version = version

    def _row(self, ask: Ask, device: torch.device) -> Batch:
        def row(leaf: Any) -> Tensor:
            return _tensor(leaf).to(device)[None]

        state = None
        if ask.state is not None:
            agents = len(ask.first) // max(len(_any_leaf(ask.state)), 1)
            state = map_tree(lambda leaf: row(np.repeat(leaf, agents, 0) if agents > 1 else leaf), ask.state)
        first = row(ask.first)
        rows = {
            "obs": map_tree(row, ask.obs),
            "mask": None if ask.mask is None else map_tree(row, ask.mask),
            "state": state,
            "first": first,
            "memory": map_tree(lambda leaf: _tensor(leaf).to(device), ask.memory),
            "valid": torch.ones_like(first),
        }
        return Batch(rows)


def drawing_nothing() -> AbstractContextManager[None]:
    """For building modules whose weights are replaced: torch's generator is afterwards as it was."""
    scope: AbstractContextManager[None] = torch.random.fork_rng(devices=[])
    return scope


def check_fit(layers: dict[str, tuple[int, ...]], given: dict[str, Any], what: str) -> None:
    """Raise E09, naming the first layer that is missing, unknown or of another size."""
    for name, shape in layers.items():
        if name not in given:
            raise UserError(f"{what}: the layer {name} is missing", ("expected", f"{name} {list(shape)}"), _TRY, code="E09")
        found = tuple(np.shape(given[name]))
        if found != shape:
            raise UserError(
                f"{what}: the layer {name} has other sizes",
                ("found", str(list(found))),
                ("expected", str(list(shape))),
                _TRY,
                code="E09",
            )
    for name in given:
        if name not in layers:
            raise UserError(
                f"{what}: there is no layer {name} here", ("found", f"{name} {list(np.shape(given[name]))}"), _TRY, code="E09"
            )


_TRY = ("try", "the settings under `policy:` and `algorithm:` that the run was started with")


def _flat(tree: Any, prefix: str = "") -> dict[str, Any]:
    if not isinstance(tree, dict):
        return {prefix: tree}
    named: dict[str, Any] = {}
    for key, part in tree.items():
        named.update(_flat(part, f"{prefix}.{key}" if prefix else key))
    return named


def _any_leaf(tree: Any) -> Any:
    while isinstance(tree, dict):
        tree = next(iter(tree.values()))
    return tree


def _tensor(leaf: Any) -> Tensor:
    """A tensor on numpy's memory; read-only arrays are copied, torch knows no such tensors."""
    array = np.asarray(leaf)
    return torch.from_numpy(array if array.flags.writeable else array.copy())


def _numpy(tensor: Tensor) -> Any:
    return tensor[0].cpu().numpy()


def _array(tensor: Tensor) -> Any:
    return tensor.cpu().numpy()
