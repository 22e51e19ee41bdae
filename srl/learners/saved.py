"""Checkpoint state of an algorithm besides its policy: everything it holds, or an error that names what cannot be saved."""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from srl.api.algorithm import Algorithm
from srl.api.neural import check_fit
from srl.core.errors import UserError
from srl.core.tree import Array

_CONTAINERS = (list, tuple, dict, set, deque)
_BASE = {*vars(nn.Module()), "config", "spec", "clock", "device"}


class Saved:
    """The networks, tensors, numbers and torch.optim optimizers of one algorithm, by the names of its attributes.

    Made after `setup`: what is there then must stay what it is, so that a new process can take its values back.
    """

    def __init__(self, algorithm: Algorithm) -> None:
        self._algorithm = algorithm
        for name, value in self._attributes():
            for path, leaf in _walk(value, name):
                if isinstance(leaf, nn.Module):
                    raise _refused(
                        path,
                        "is a network among other things, which checkpoints would not find",
                        "an nn.ModuleList, an nn.ModuleDict, or an attribute of its own",
                    )
        self._shapes = {name: tuple(one.shape) for name, one in self._tensors().items()}
        self._numbers = {name: value for name, value in self._attributes() if _is_number(value)}
        self._plain = {name: copy.deepcopy(value) for name, value in self._attributes() if _is_plain(value)}
        self._modules = set(self._networks())

    def groups(self) -> dict[str, dict[str, Tensor]]:
        """`algorithm` and `optimizer`: live tensors, but for those of optimizers."""
        self._refuse_what_changed()
        optimizers: dict[str, Tensor] = {}
        for name, one in self._optimizers():
            optimizers |= {f"{name}.{key}": tensor for key, tensor in _optimizer_tensors(one).items()}
        return {"algorithm": {**self._networks(), **self._tensors()}, "optimizer": optimizers}

    def numbers(self) -> dict[str, float]:
        """Those that have changed since `setup`: the others are settings, which a resume may change."""
        found = {name: value for name, value in self._attributes() if _is_number(value)}
        return {name: np.asarray(value).item() for name, value in found.items() if self._numbers.get(name) != value}

    @torch.no_grad()
    def check(self, arrays: Mapping[str, Array]) -> None:
        """Raise if these are not the arrays of this algorithm. Tensors that `update` makes are not there yet."""
        own = {**self._networks(), **self._tensors()}
        later = {name for name in arrays if name not in own and "." not in name and not _held(self._algorithm, name)}
        named = {name: array for name, array in arrays.items() if name not in later}
        made = {name for name in own if name not in arrays and name not in self._shapes and name not in self._modules}
        check_fit({name: one for name, one in own.items() if name not in made}, named, "algorithm")

    @torch.no_grad()
    def restore(self, arrays: Mapping[str, Array], optimizers: Mapping[str, Array], numbers: Mapping[str, Any]) -> None:
        """Take back what `groups` and `numbers` gave; `check` has been called."""
        own = {**self._networks(), **self._tensors()}
        for name, array in arrays.items():
            given = torch.from_numpy(np.array(array))
            if name in own:
                own[name].copy_(given)
            else:
                setattr(self._algorithm, name, given.to(self._algorithm.device))
        for name, one in self._optimizers():
            mine = {key.removeprefix(f"{name}."): array for key, array in optimizers.items() if key.startswith(f"{name}.")}
            _restore_optimizer(one, mine)
        for name, value in numbers.items():
            setattr(self._algorithm, name, value)

    def _attributes(self) -> Iterator[tuple[str, Any]]:
        yield from ((name, value) for name, value in sorted(vars(self._algorithm).items()) if name not in _BASE)

    def _networks(self) -> dict[str, Tensor]:
        """The `state_dict` without the policy, which is a group of its own, under whatever name it is known here."""
        policy = {id(one) for one in self._algorithm.policy.state_dict(keep_vars=True).values()}
        named = self._algorithm.state_dict(keep_vars=True)
        return {name: one.detach() for name, one in named.items() if id(one) not in policy}

    def _tensors(self) -> dict[str, Tensor]:
        leaves = (pair for name, value in self._attributes() for pair in _walk(value, name))
        return {
            path: torch.from_numpy(leaf) if isinstance(leaf, np.ndarray) else leaf.detach()
            for path, leaf in leaves
            if isinstance(leaf, Tensor | np.ndarray)
        }

    def _optimizers(self) -> Iterator[tuple[str, torch.optim.Optimizer]]:
        for name, value in self._attributes():
            yield from ((path, leaf) for path, leaf in _walk(value, name) if isinstance(leaf, torch.optim.Optimizer))

    def _refuse_what_changed(self) -> None:
        """State that a new process could not restore."""
        if made := sorted(set(self._networks()) - self._modules):
            raise _refused(made[0].partition(".")[0], "was made in `update`, so a resume would not have it", "`setup`")
        for name, one in self._tensors().items():
            if name not in self._shapes and "." in name:
                raise _refused(name, "was added after `setup`, so a resume would not have it", "`setup`")
            if self._shapes.get(name, tuple(one.shape)) != tuple(one.shape):
                raise _refused(name, f"has changed its shape from {list(self._shapes[name])} to {list(one.shape)}", "one shape")
        for name, value in self._attributes():
            if _is_plain(value) and value != self._plain.get(name):
                raise _refused(
                    name, f"is a {type(value).__name__} that changes, which a resume would lose", "a tensor or a number"
                )


def _refused(path: str, why: str, instead: str) -> UserError:
    return UserError(f"algorithm: self.{path} {why}", ("try", instead))


def _walk(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Every leaf of lists, tuples and dicts by its path."""
    if isinstance(value, dict):
        for key, one in value.items():
            yield from _walk(one, f"{path}.{key}")
    elif isinstance(value, list | tuple | deque):
        for i, one in enumerate(value):
            yield from _walk(one, f"{path}.{i}")
    else:
        yield path, value


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | np.number) and not isinstance(value, np.ndarray)


def _is_plain(value: Any) -> bool:
    """A container of numbers and texts, perhaps empty."""
    return isinstance(value, _CONTAINERS) and all(
        leaf is None or isinstance(leaf, str) or _is_number(leaf) or isinstance(leaf, set) for _, leaf in _walk(value, "")
    )


def _held(algorithm: Algorithm, name: str) -> bool:
    """An attribute that is something else than a place for a tensor."""
    return vars(algorithm).get(name) is not None or name in algorithm._modules


def _optimizer_tensors(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """The state of a torch.optim optimizer, and the numbers of its groups, which a schedule may have moved."""
    plain = optimizer.state_dict()
    named: dict[str, Tensor] = {}
    for i, state in plain["state"].items():
        named |= {f"state.{i}.{key}": torch.as_tensor(one) for key, one in state.items() if one is not None}
    for i, group in enumerate(plain["param_groups"]):
        numbers = {key: one for key, one in group.items() if isinstance(one, float)}
        named |= {f"group.{i}.{key}": torch.tensor(one, dtype=torch.float64) for key, one in numbers.items()}
    return named


def _restore_optimizer(optimizer: torch.optim.Optimizer, arrays: Mapping[str, Array]) -> None:
    plain = optimizer.state_dict()
    state: dict[int, dict[str, Tensor]] = {}
    for path, array in arrays.items():
        kind, i, key = path.split(".", 2)
        if kind == "state":
            state.setdefault(int(i), {})[key] = torch.from_numpy(np.array(array))
        else:
            plain["param_groups"][int(i)][key] = float(array)
    optimizer.load_state_dict({**plain, "state": state})
