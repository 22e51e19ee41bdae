"""Weights that a policy starts from: `load: RUN` in an experiment, found in the folder of another run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import numpy as np

from srl.api.policy import Policy
from srl.core.errors import UserError
from srl.core.tree import leaves
from srl.graph.build import graph_from_yaml
from srl.graph.derive import Derived, PolicyInfo
from srl.graph.policies import acting_policy
from srl.graph.spec import Graph
from srl.store import checkpoint
from srl.store.run_folder import RunFolder, newest


def checkpoint_folder(run: Path, graph: Graph, policy: str) -> Path:
    """`checkpoints`, or `checkpoints/<policy>` where several policies learn."""
    folder = run / "checkpoints"
    return folder / policy if len(_learning(graph)) > 1 else folder


def archive_folder(run: Path, graph: Graph, policy: str) -> Path:
    """Where versions of the policy lie that are kept for good."""
    return checkpoint_folder(run, graph, policy) / "archive"


def initial_folder(run: Path, graph: Graph, policy: str) -> Path:
    """Where the policy lies as it was before any update."""
    return checkpoint_folder(run, graph, policy) / "initial"


def exact_run(load: str) -> str:
    """Of a folder of runs, the newest that holds weights now: later that could be the run that starts from it."""
    given = Path(load).expanduser()
    if not given.is_dir() or checkpoint.latest(given) or any((given / one).is_file() for one in ("manifest.json", "graph.yaml")):
        return load
    runs = [run for run in RunFolder.below(given) if next(run.checkpoints.rglob("manifest.json"), None)]
    return str(newest(runs).path) if runs else load


def find_weights(load: str, policy: str) -> Path:
    """The checkpoint that `load` means: itself, the newest of a folder of them, or a run's best (else its latest).

    Of a run with several policies, the one of the same name.
    """
    given = Path(load).expanduser()
    if (given / "manifest.json").is_file():
        return given
    if not (given / "graph.yaml").is_file() and (path := checkpoint.latest(given)) is not None:
        return path
    run = RunFolder.open(given)
    graph = graph_from_yaml(run.graph.read_text(), str(run.graph))
    learning = _learning(graph)
    name = policy if policy in learning else learning[0] if len(learning) == 1 else ""
    if not name:
        raise UserError(
            f"policy '{policy}' cannot start from {given}: that run trained no policy of this name",
            ("policies there", ", ".join(learning) or "none"),
            ("try", f"load: {given}/checkpoints/{learning[0] if learning else 'NAME'}"),
        )
    place = checkpoint_folder(run.path, graph, name)
    found = checkpoint.best(place) or checkpoint.latest(place)
    if found is None:
        raise UserError(f"policy '{policy}' cannot start from {run.path}: it has no checkpoint")
    return found


def read_weights(load: str, policy: str, fresh: Iterable[str] = ()) -> dict[str, Any]:
    """Arrays of the policy by name, without those that a pattern in `fresh` matches."""
    path = find_weights(load, policy)
    groups = checkpoint.read(path).groups
    if "policy" not in groups:
        raise UserError(f"{path} holds no policy", ("found", ", ".join(groups) or "nothing"))
    return _kept(groups["policy"], fresh)


def starting_weights(graph: Graph, policy: str, *, own: Iterable[Path | None] = ()) -> dict[str, Any] | None:
    """What `load` names; None without it, and where one of the runs in `own` has a checkpoint to go on from."""
    entry = graph.policies[policy]
    runs = [run for run in own if run is not None]
    if entry.load is None or any(checkpoint.latest(checkpoint_folder(run, graph, policy)) for run in runs):
        return None
    return read_weights(entry.load, policy, entry.fresh)


def ready_policy(graph: Graph, info: PolicyInfo, device: str = "cpu") -> Policy:
    """A policy that acts; one that is not trained has its weights already. What has no torch stays on the CPU."""
    policy = acting_policy(info)
    if device != "cpu" and hasattr(policy, "to"):
        policy.to(device)
    entry = graph.policies[info.name]
    if entry.algorithm is None and entry.load is not None and entry.source is None:
        policy.load(read_weights(entry.load, info.name), 0)
    return policy


def check_fresh(graph: Graph) -> None:
    """Layers can begin anew only where others are loaded, and where they are trained."""
    for name, entry in graph.policies.items():
        if entry.fresh and (entry.load is None or entry.algorithm is None):
            raise UserError(
                f"policy '{name}' has fresh layers, but {'loads nothing' if entry.load is None else 'nothing trains it'}",
                ("try", "`load: RUN` and an algorithm beside `fresh`, or no `fresh`"),
                code="E10",
            )


def check_weights(graph: Graph, derived: Derived, *, resumed: bool = False) -> None:
    """E09 if what a policy is to start from does not fit it; asked before anything starts."""
    for name, entry in graph.policies.items():
        if entry.load is None or (resumed and entry.algorithm is not None):
            continue
        shapes = {key: np.shape(array) for key, array in read_weights(entry.load, name).items()}
        params = {key: leaf.shape for key, leaf in leaves(derived.policies[name].params)}
        unused = [each for each in entry.fresh if not any(fnmatchcase(key, each) for key in [*shapes, *params])]
        if unused:
            raise UserError(f"no layer of policy '{name}' is called '{unused[0]}'", ("layers", ", ".join(params)), code="E10")
        have, want = _kept(shapes, entry.fresh), _kept(params, entry.fresh)
        if not want:
            raise UserError(f"all layers of policy '{name}' are fresh: nothing is left to load", ("try", "no `load`"), code="E10")
        if have == want:
            continue
        layer, *others = (key for key in {**want, **have} if want.get(key) != have.get(key))
        raise UserError(
            f"the weights to load do not fit policy '{name}': layer '{layer}' is "
            f"{_shape(have.get(layer))} there and {_shape(want.get(layer))} here",
            ("checkpoint", str(find_weights(entry.load, name))),
            ("try", "the settings under `policy:` and the env of the run that it comes from (its config.yaml)"),
            ("or", f"fresh: [{layer}], layers that begin anew, by pattern; others that differ: {', '.join(others) or 'none'}"),
            code="E09",
        )


def _kept(layers: Mapping[str, Any], fresh: Iterable[str]) -> dict[str, Any]:
    patterns = tuple(fresh)
    return {key: one for key, one in layers.items() if not any(fnmatchcase(key, each) for each in patterns)}


def _learning(graph: Graph) -> list[str]:
    return [name for name, entry in graph.policies.items() if entry.algorithm is not None]


def _shape(shape: tuple[int, ...] | None) -> str:
    return "absent" if shape is None else str(shape)
