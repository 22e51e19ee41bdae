"""Whether a checkpoint fits the experiment that goes on from it: asked before anything starts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from srl.core.errors import UserError
from srl.core.spec import Leaf
from srl.core.tree import leaves
from srl.graph.spec import Graph
from srl.plan.specs import Derived
from srl.store import checkpoint
from srl.workers.checkpoints import checkpoint_folder


def check_fit(run: Path, graph: Graph, derived: Derived, changes: Sequence[str]) -> None:
    """E09 names the layer that differs, and the setting that changed it."""
    for name, entry in graph.policies.items():
        if entry.algorithm is None:
            continue
        path = checkpoint.latest(checkpoint_folder(run, graph.policies, name))
        if path is None:
            raise UserError(f"{run} has no checkpoint to go on from", ("try", "start anew, without --resume"))
        saved = checkpoint.read(path).groups.get("policy", {})
        have = {key: Leaf(array.shape, array.dtype.name) for key, array in saved.items()}
        want = dict(leaves(derived.policies[name].params))
        if have == want:
            continue
        layer = next((key for key in [*want, *have] if want.get(key) != have.get(key)), "")
        there, here = _shape(have.get(layer)), _shape(want.get(layer))
        raise UserError(
            f"the checkpoint does not fit policy '{name}': layer '{layer}' is {there} there and {here} here",
            ("checkpoint", str(path)),
            *[("changed", text) for text in changes if text.startswith(("policy", "env", "policies"))],
            ("try", "take that setting back, or start anew without --resume"),
            code="E09",
        )


def nothing_left(run: Path, graph: Graph) -> str:
    """What a run has done, in words, if its `stop` asks for no more; else empty."""
    learning = [name for name, entry in graph.policies.items() if entry.algorithm is not None]
    paths = [path for name in learning if (path := checkpoint.latest(checkpoint_folder(run, graph.policies, name))) is not None]
    if not learning or len(paths) < len(learning):
        return ""
    states = [checkpoint.read(path).state for path in paths]
    done = {name: min(int(state.get(name, 0)) for state in states) for name in ("env_steps", "updates")}
    wanted = {"env_steps": graph.stop.env_steps, "updates": graph.stop.updates}
    asked = [f"stop.{name}={most}" for name, most in wanted.items() if most is not None and done[name] >= most]
    if not asked:
        return ""
    return f"nothing to do: {run} has {done['env_steps']:,} env steps and {done['updates']:,} updates, and {asked[0]}"


def _shape(leaf: Any) -> str:
    return f"{leaf.dtype} {leaf.shape}" if leaf is not None else "absent"
