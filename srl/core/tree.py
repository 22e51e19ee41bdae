"""Trees: an array, or a dict of trees. Leaves are ordered by key, paths are joined by `/`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[Any]
Tree: TypeAlias = "Array | dict[str, Any]"


def leaves(tree: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Every (path, leaf), keys sorted; the path of a bare leaf is ``""``."""
    if isinstance(tree, Mapping):
        for key in sorted(tree):
            yield from leaves(tree[key], f"{prefix}/{key}" if prefix else key)
    else:
        yield prefix, tree


def build(pairs: Mapping[str, Any]) -> Any:
    """The tree whose leaves are `pairs`: the inverse of `dict(leaves(tree))`."""
    if "" in pairs:
        return pairs[""]
    tree: dict[str, Any] = {}
    for path, leaf in pairs.items():
        *parents, last = path.split("/")
        branch = tree
        for key in parents:
            branch = branch.setdefault(key, {})
        branch[last] = leaf
    return tree


def map_tree(function: Callable[..., Any], tree: Any, *others: Any) -> Any:
    """The tree of `function(leaf, other_leaf, ...)`."""
    if isinstance(tree, np.ndarray) or not isinstance(tree, Mapping):  # the usual one first: `Mapping` is slow to ask
        return function(tree, *others)
    return {key: map_tree(function, tree[key], *(other[key] for other in others)) for key in tree}


def copy_into(target: Any, source: Any) -> None:
    """Copy every leaf of `source` into the same leaf of `target`."""
    if isinstance(target, np.ndarray) or not isinstance(target, Mapping):
        target[...] = source
    else:
        for key in target:
            copy_into(target[key], source[key])
