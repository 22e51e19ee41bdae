"""Experts and teachers: a policy of another run says what should have been done in each row."""

from __future__ import annotations

from typing import Any, cast

from srl.api.transform import Transform
from srl.core.errors import UserError
from srl.core.tree import Tree, map_tree
from srl.loaded import load_run


class Expert(Transform):
    """Replaces the recorded actions by the most likely ones of the policy of a run, within the bounds of the env."""

    def __init__(self, run: str, which: str = "best", policy: str | None = None) -> None:
        """`which`: `best`, `latest` or the name of a checkpoint. `policy`: of several in that run."""
        self._policy = load_run(run).policy(which, name=policy)
        if self._policy.info.memory != {}:
            raise UserError("an expert must be a policy without memory", ("run", run), code="E10")

    def apply(self, slab: Tree) -> Tree:
        """The same slab with other actions."""
        rows = cast("dict[str, Any]", slab)
        lead = rows["reward"].shape

        def flat(leaf: Any) -> Any:
            return leaf[:-1].reshape(-1, *leaf.shape[3:])

        mask = map_tree(flat, rows["mask"]) if "mask" in rows else None
        action, _ = self._policy.predict(map_tree(flat, rows["obs"]), mask=mask)
        return {"action": map_tree(lambda leaf: leaf.reshape(*lead, *leaf.shape[1:]), action)}


def network(run: str, which: str = "best") -> Any:
    """The torch module of the policy of a run, with the weights of a checkpoint: the teacher of `distill`."""
    return load_run(run).network(which)
