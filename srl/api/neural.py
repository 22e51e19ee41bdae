"""Policies that learn: torch modules with one forward for training and acting."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any, ClassVar, Protocol, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn

from srl.api.batch import Batch
from srl.api.policy import Act, Ask, Bounds, NoConfig, PolicySpec
from srl.api.value_head import ValueHead
from srl.core.seeds import Rng
from srl.core.spec import TreeSpec, check_layers
from srl.core.tree import Tree, leaves, map_tree

Heads: TypeAlias = dict[str, Any]
"""Outputs of a forward pass: "logits", "value", "q", ... and "memory" of a recurrent policy."""


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
    """A policy that learns. Exploration constants are buffers: published with the weights."""

    Config: ClassVar[type] = NoConfig
    memory: TreeSpec = {}
    reads: tuple[str, ...] = ("obs", "mask")
    bounds: ClassVar[Bounds] = "clip"

    def __init__(self, config: Any, spec: PolicySpec) -> None:
        super().__init__()
        self.config = config
        self.spec = spec
        self.version = -1

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

    @property
    def value_head(self) -> ValueHead | None:
        """The layer `value` if it can be rescaled; what is recorded of an act is a return then."""
        head = self._modules.get("value")
        return head if isinstance(head, ValueHead) else None

    @torch.inference_mode()
    def act(self, ask: Ask) -> Act:
        """A sample of the distribution of one row; a policy without one, such as of Q-values, has an `act` of its own."""
        heads, mask = self.heads(ask)
        dist = self.dist(heads, mask)
        action = dist.mode() if ask.greedy else dist.sample(ask.rng)
        extra = {"log_prob": dist.log_prob(action)}
        if "value" in heads:
            head = self.value_head
            extra["value"] = heads["value"] if head is None else head.returns(heads["value"])
        return self.answer(action, heads, extra)

    @torch.inference_mode()
    def heads(self, ask: Ask) -> tuple[Heads, Any]:
        """What `unroll` gives for the rows of a question, `[1, N, ...]`, and their mask: for an `act` of one's own."""
        batch = self._row(ask, self.device)
        return self.unroll(batch), batch.mask

    @staticmethod
    def answer(action: Any, heads: Heads, extra: Mapping[str, Tensor] | None = None) -> Act:
        """The answer to a question: tensors `[1, N, ...]` become arrays, memory is that of the heads."""
        recorded = {name: _numpy(leaf) for name, leaf in (extra or {}).items()}
        return Act(action=map_tree(_numpy, action), memory=map_tree(_array, heads.get("memory", {})), extra=recorded)

    def forward(self, obs: Any, memory: Any = None) -> Any:
        """The most likely actions for observations `[N, ...]`, before they are fitted to the env's bounds: for export.

        With memory: (actions, memory); None is the memory at the start of an episode.
        """
        rows = next(leaf for _, leaf in leaves(obs))
        first = torch.zeros_like(rows.reshape(len(rows), -1)[:, 0], dtype=torch.bool)[None]
        held: Any = {}
        if self.memory != {}:
            held = memory if memory is not None else map_tree(lambda leaf: self._nothing(leaf, len(rows)), self.memory)
        batch = Batch({"obs": map_tree(lambda leaf: leaf[None], obs), "mask": None, "state": None, "first": first, "memory": held,
                       "valid": ~first})  # fmt: skip
        heads = self.unroll(batch)
        action = map_tree(lambda leaf: leaf[0], self.dist(heads).mode())
        return action if self.memory == {} else (action, heads["memory"])

    def _nothing(self, leaf: Any, rows: int) -> Tensor:
        return torch.zeros((rows, *leaf.shape), device=self.device)

    def load(self, params: Tree, version: int) -> None:
        """Take parameters and buffers by name; they may be overwritten after this returns."""
        named = self.__dict__.get("_named")
        if named is None:
            named = self.__dict__["_named"] = dict(self.state_dict(keep_vars=True))
        given = _flat(params)
        check_fit(named, given, "policy")
        with torch.no_grad():
            for name, tensor in named.items():
                tensor.copy_(tensor_of(given[name]))
        self.version = version

    def _row(self, ask: Ask, device: torch.device) -> Batch:
        def row(leaf: Any) -> Tensor:
            return tensor_of(leaf).to(device)[None]

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
            "memory": map_tree(lambda leaf: tensor_of(leaf).to(device), ask.memory),
            "valid": torch.ones_like(first),
        }
        return Batch(rows)


def drawing_nothing() -> AbstractContextManager[None]:
    """For building modules whose weights are replaced: torch's generator is afterwards as it was."""
    scope: AbstractContextManager[None] = torch.random.fork_rng(devices=[])
    return scope


def check_fit(layers: Mapping[str, Tensor], given: Mapping[str, Any], what: str) -> None:
    """E09 if a layer is missing, unknown or of another size."""
    want, have = ({name: tuple(np.shape(one)) for name, one in named.items()} for named in (layers, given))
    hint = ("try", "the settings under `policy:` and `algorithm:` that the run was started with")
    check_layers(f"the checkpoint does not fit the {what}", want, have, hint)


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


def tensor_of(leaf: Any) -> Tensor:
    """A tensor on numpy's memory; read-only arrays are copied, torch knows no such tensors."""
    array = np.asarray(leaf)
    return torch.from_numpy(array if array.flags.writeable else array.copy())


def _numpy(tensor: Tensor) -> Any:
    return tensor[0].cpu().numpy()


def _array(tensor: Tensor) -> Any:
    return tensor.cpu().numpy()
