"""Transforms: changes that a buffer worker makes to each slab before passing it on."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

from srl.core.spec import TreeSpec
from srl.core.tree import Tree


class Transform(ABC):
    """Made once in each buffer worker, with the `transform_args` of its node as keywords."""

    adds: ClassVar[TreeSpec] = {}
    """Leaves that go out and did not come in."""

    @abstractmethod
    def apply(self, slab: Tree) -> Tree:
        """The leaves of `slab` (`srl/api/slab.py`) that change, and those that `adds` names. `slab` itself is read-only."""
